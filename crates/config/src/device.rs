//! Where the tensors live: `cpu`, `wgpu`, `wgpu:1`, `cuda`, `cuda:0`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A device, with its index when the config names one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// The processor.
    #[default]
    Cpu,
    /// A graphics device through WebGPU (Vulkan, Metal, DX12); `None` is the default one.
    Wgpu(Option<usize>),
    /// An NVIDIA device; `None` is the first.
    Cuda(Option<usize>),
}

/// Why a text is no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// No such device.
    #[error("unknown device `{0}`: one of cpu, wgpu, wgpu:N, cuda, cuda:N")]
    Unknown(String),
    /// What follows the colon is not a number.
    #[error("`{0}` is no device index: a whole number of at least 0")]
    Index(String),
    /// `cpu:0`.
    #[error("`cpu` takes no index")]
    CpuIndex,
}

impl FromStr for Device {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let (name, index) = match text.split_once(':') {
            Some((name, index)) => (name, Some(index)),
            None => (text, None),
        };
        let index = || match index {
            None => Ok(None),
            // `usize::from_str` takes a sign, a device index does not.
            Some(index) if index.bytes().all(|byte| byte.is_ascii_digit()) => index
                .parse()
                .map(Some)
                .map_err(|_| DeviceError::Index(index.to_owned())),
            Some(index) => Err(DeviceError::Index(index.to_owned())),
        };
        match name {
            "cpu" if index()?.is_none() => Ok(Self::Cpu),
            "cpu" => Err(DeviceError::CpuIndex),
            "wgpu" => Ok(Self::Wgpu(index()?)),
            "cuda" => Ok(Self::Cuda(index()?)),
            _ => Err(DeviceError::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Wgpu(None) => f.write_str("wgpu"),
            Self::Wgpu(Some(index)) => write!(f, "wgpu:{index}"),
            Self::Cuda(None) => f.write_str("cuda"),
            Self::Cuda(Some(index)) => write!(f, "cuda:{index}"),
        }
    }
}

impl Serialize for Device {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Device {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_prints_as_it_is_written() {
        for text in ["cpu", "wgpu", "wgpu:0", "wgpu:12", "cuda", "cuda:1"] {
            assert_eq!(
                text.parse::<Device>().map(|device| device.to_string()).as_deref(),
                Ok(text)
            );
        }
    }

    #[test]
    fn refuses_other_texts() {
        let cases = [
            ("gpu", DeviceError::Unknown("gpu".into())),
            ("", DeviceError::Unknown(String::new())),
            ("CPU", DeviceError::Unknown("CPU".into())),
            ("cpu:0", DeviceError::CpuIndex),
            ("cuda:", DeviceError::Index(String::new())),
            ("cuda:-1", DeviceError::Index("-1".into())),
            ("cuda:+1", DeviceError::Index("+1".into())),
            (
                "wgpu:99999999999999999999999",
                DeviceError::Index("99999999999999999999999".into()),
            ),
        ];
        for (text, expect) in cases {
            assert_eq!(text.parse::<Device>(), Err(expect));
        }
    }
}
