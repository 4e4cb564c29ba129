//! `[backend]`: the device and its threads.

use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::section::{Findings, Section};

/// Where a model runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendConfig {
    /// `cpu` when left out.
    pub device: Device,
    /// Threads of the processor, at least 1; left out: all cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// How closely the processor multiplies prompts with packed weights; `high` when left out.
    #[serde(default, skip_serializing_if = "MatmulPrecision::is_default")]
    pub matmul_precision: MatmulPrecision,
}

/// In torch's words (`set_float32_matmul_precision`). Up to 15 tokens at a time are always multiplied as closely as f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MatmulPrecision {
    /// f32.
    Highest,
    /// Numbers of 16 bits.
    #[default]
    High,
    /// bf16 where the processor has AMX; with AVX-512, activations of 8 bits where weights are quantised; with AVX2, where they have
    /// 4 bits; elsewhere as `high`.
    Medium,
}

impl MatmulPrecision {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

const PRECISIONS: [(&str, MatmulPrecision); 3] = [
    ("highest", MatmulPrecision::Highest),
    ("high", MatmulPrecision::High),
    ("medium", MatmulPrecision::Medium),
];

impl BackendConfig {
    pub(crate) fn read(mut section: Section<'_>, findings: &mut Findings) -> Self {
        let device = section.take("device").and_then(|field| {
            let text = field.text(findings)?;
            text.parse()
                .map_err(|error| findings.add(field.at(), format!("`{}`: {error}", field.path), None))
                .ok()
        });
        let threads = section.take("threads").and_then(|field| field.whole(1, findings));
        let precision = section.take("matmul_precision");
        let precision = precision.and_then(|field| field.choice(&PRECISIONS, &[], findings));
        section.finish(findings);
        Self {
            device: device.unwrap_or_default(),
            threads,
            matmul_precision: precision.unwrap_or_default(),
        }
    }
}
