//! What a device can do: a preset from a file, or this machine, measured.

use crate::weights::Precision;
use crate::{PlanError, preset};
use kvlab_config::Capacity;
use kvlab_core::Bytes;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::path::Path;

/// Rates that a device may have, far beyond any on both sides, so that no time that comes of them is infinite.
const RATES: RangeInclusive<f64> = 1e-9..=1e15;

/// The presets that come with kvlab: name, text of `configs/devices/NAME.toml`.
pub const DEVICES: &[(&str, &str)] = &[
    ("h200-sxm", include_str!("../../../configs/devices/h200-sxm.toml")),
    ("h100-sxm", include_str!("../../../configs/devices/h100-sxm.toml")),
    (
        "a100-80gb-sxm",
        include_str!("../../../configs/devices/a100-80gb-sxm.toml"),
    ),
    ("l4", include_str!("../../../configs/devices/l4.toml")),
    ("t4", include_str!("../../../configs/devices/t4.toml")),
    ("rtx-4090", include_str!("../../../configs/devices/rtx-4090.toml")),
    ("m4-max", include_str!("../../../configs/devices/m4-max.toml")),
    ("epyc-9654", include_str!("../../../configs/devices/epyc-9654.toml")),
];

/// A device, as its vendor describes it or as it was measured. Rates are the most that it can do; no program reaches them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Version of the format.
    pub schema: u32,
    /// What it is called.
    pub name: String,
    /// Where the figures are from.
    pub source: String,
    /// Its memory; left out where that is up to the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Capacity>,
    /// Gigabytes (10^9) a second that it reads from memory.
    pub bandwidth_gb_s: f64,
    /// Operations without sparsity; left out where nobody publishes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dense_tflops: Option<Tflops>,
}

/// Tera (10^12) operations a second by number format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tflops {
    /// 32-bit floats, without reduced formats in between.
    pub f32: f64,
    /// 16-bit IEEE floats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f16: Option<f64>,
    /// bfloat16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bf16: Option<f64>,
    /// 8-bit floats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp8: Option<f64>,
    /// 8-bit integers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub int8: Option<f64>,
}

impl Device {
    /// The preset of that name, the file of that path, or `this`: the machine, measured in about a second.
    ///
    /// # Errors
    /// An unknown name; a file that is no preset.
    pub fn find(name: &str) -> Result<Self, PlanError> {
        if name == "this" {
            return Ok(Self::this());
        }
        let example = "such as configs/devices/h100-sxm.toml";
        let device: Self = preset::find("device", name, DEVICES, example)?;
        device.check(Path::new(name))?;
        Ok(device)
    }

    /// This machine's processor.
    pub fn this() -> Self {
        let probe = crate::probe::probe();
        let (name, threads) = (kvlab_engine::cpu_name(), probe.threads);
        Self {
            schema: preset::SCHEMA,
            name: format!("this machine ({name}, {threads} threads)"),
            source: format!(
                "measured: the fastest passes over {} of memory, and of multiply-adds on registers",
                Bytes(probe.buffer_bytes as u64)
            ),
            memory: kvlab_engine::free_memory().map(|bytes| Capacity::Bytes(bytes.0)),
            bandwidth_gb_s: probe.read_bytes_per_second / 1e9,
            dense_tflops: Some(Tflops {
                f32: probe.f32_flops_per_second / 1e12,
                ..Tflops::default()
            }),
        }
    }

    /// Bytes of its memory.
    pub fn memory(&self) -> Option<Bytes> {
        match self.memory {
            Some(Capacity::Bytes(bytes)) => Some(Bytes(bytes)),
            _ => None,
        }
    }

    /// Bytes a second.
    pub fn bandwidth(&self) -> f64 {
        self.bandwidth_gb_s * 1e9
    }

    /// Operations a second with weights of that precision, and their number format. Weights of fewer than 16 bits are unpacked and
    /// multiplied in 16 bits, which saves bytes and no operations; a device without a 16-bit rate multiplies in f32.
    pub fn rate(&self, weights: Precision) -> Option<(f64, &'static str)> {
        let rates = self.dense_tflops?;
        let half = rates
            .f16
            .map(|rate| (rate, "f16"))
            .or(rates.bf16.map(|rate| (rate, "bf16")));
        let (rate, format) = half
            .filter(|_| weights != Precision::Fp32)
            .unwrap_or((rates.f32, "f32"));
        Some((rate * 1e12, format))
    }

    fn check(&self, path: &Path) -> Result<(), PlanError> {
        let bad = |problem: String| PlanError::Preset {
            path: path.to_owned(),
            problem,
        };
        let rates = self.dense_tflops.unwrap_or(Tflops {
            f32: 1.0,
            ..Tflops::default()
        });
        let optional = [rates.f16, rates.bf16, rates.fp8, rates.int8];
        let all = [self.bandwidth_gb_s, rates.f32]
            .into_iter()
            .chain(optional.into_iter().flatten());
        if let Some(wrong) = all.into_iter().find(|rate| !RATES.contains(rate)) {
            let (least, most) = (RATES.start(), RATES.end());
            return Err(bad(format!(
                "a rate of {wrong:?}; rates must be above 0: from {least:?} to {most:?}"
            )));
        }
        match self.memory {
            Some(Capacity::Tokens(_)) => Err(bad("memory must have a unit of bytes, such as \"24 GiB\"".into())),
            _ => Ok(()),
        }
    }
}
