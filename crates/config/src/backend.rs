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
}

impl BackendConfig {
    pub(crate) fn read(mut section: Section<'_>, findings: &mut Findings) -> Self {
        let device = section.take("device").and_then(|field| {
            let text = field.text(findings)?;
            text.parse()
                .map_err(|error| findings.add(field.at(), format!("`{}`: {error}", field.path), None))
                .ok()
        });
        let threads = section.take("threads").and_then(|field| field.whole(1, findings));
        section.finish(findings);
        Self {
            device: device.unwrap_or_default(),
            threads,
        }
    }
}
