//! Opens the device that a config names, after a look whether it is there.

use crate::EngineError;
use burn::tensor::Device;
use kvlab_config::Device as Name;

/// A device that is there.
#[derive(Clone, Debug)]
pub struct OpenDevice {
    /// Burn's handle.
    pub device: Device,
    /// As in the config.
    pub name: Name,
    /// What it is, in words.
    pub description: String,
}

impl OpenDevice {
    /// Probes and opens.
    ///
    /// # Errors
    /// [`EngineError::Device`], with what to do.
    pub fn open(name: Name) -> Result<Self, EngineError> {
        let (device, description) = match name {
            Name::Cpu => (Device::flex(), format!("CPU ({})", cpu_name())),
            Name::Wgpu(index) => pick(name, index, gpu::wgpu()?)?,
            Name::Cuda(index) => pick(name, index, gpu::cuda()?)?,
        };
        Ok(Self {
            device,
            name,
            description,
        })
    }

    /// Waits until everything asked for so far is done.
    ///
    /// # Errors
    /// [`EngineError::Execution`].
    pub fn sync(&self) -> Result<(), EngineError> {
        self.device.sync().map_err(|e| EngineError::Execution(e.to_string()))
    }
}

/// The devices of this machine that this build can use: their names in a config, and what they are.
pub fn devices() -> Vec<(String, String)> {
    let mut found = vec![("cpu".to_owned(), cpu_name())];
    let mut add = |prefix: &str, devices: Vec<Device>| {
        for (i, device) in devices.into_iter().enumerate() {
            found.push((format!("{prefix}:{i}"), describe(&device)));
        }
    };
    add("wgpu", gpu::wgpu().unwrap_or_default());
    add("cuda", gpu::cuda().unwrap_or_default());
    found
}

fn pick(name: Name, index: Option<usize>, devices: Vec<Device>) -> Result<(Device, String), EngineError> {
    let count = devices.len();
    let found = devices.into_iter().nth(index.unwrap_or(0));
    let device = found.ok_or_else(|| {
        let reason = match (name, count) {
            (Name::Cuda(_), 0) => {
                "no NVIDIA GPU (or no driver) was found; set backend.device to \"cpu\" or \"wgpu\"".to_owned()
            }
            (_, 0) => "no graphics device was found; install a Vulkan, Metal or DX12 driver (software: Debian's mesa-vulkan-drivers), or set backend.device = \"cpu\"".to_owned(),
            (_, count) => format!("this machine has {count} such devices, counted from 0"),
        };
        EngineError::Device { device: name.to_string(), reason }
    })?;
    let description = describe(&device);
    Ok((device, description))
}

#[cfg(any(feature = "wgpu", feature = "cuda"))]
fn describe(device: &Device) -> String {
    match device.identity() {
        Some(identity) => identity.name,
        None => format!("{device:?}"),
    }
}

#[cfg(not(any(feature = "wgpu", feature = "cuda")))]
fn describe(device: &Device) -> String {
    format!("{device:?}")
}

/// The processor's name, from the operating system.
pub fn cpu_name() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// Sets the threads of the processor, once a process: those of Burn's operations and of the own kernels.
///
/// # Errors
/// [`EngineError::Setting`] if they were set to something else before.
pub(crate) fn set_threads(threads: Option<usize>) -> Result<usize, EngineError> {
    let Some(threads) = threads else {
        return Ok(rayon::current_num_threads());
    };
    let set = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    let now = rayon::current_num_threads();
    match set {
        _ if now == threads => {
            kvlab_cpu::set_threads(threads);
            Ok(now)
        }
        Ok(()) => Ok(now),
        Err(_) => Err(EngineError::Setting(format!(
            "backend.threads = {threads}, but this process already runs {now} threads; the number is set once, by the first model that is loaded"
        ))),
    }
}

mod gpu {
    use crate::EngineError;
    use burn::tensor::Device;

    #[cfg(all(feature = "wgpu", not(feature = "vulkan")))]
    pub fn wgpu() -> Result<Vec<Device>, EngineError> {
        Ok(Device::enumerate(burn::tensor::DeviceType::Wgpu).into_vec())
    }

    #[cfg(feature = "vulkan")]
    pub fn wgpu() -> Result<Vec<Device>, EngineError> {
        Ok(Device::enumerate(burn::tensor::DeviceType::Vulkan).into_vec())
    }

    #[cfg(not(feature = "wgpu"))]
    pub fn wgpu() -> Result<Vec<Device>, EngineError> {
        Err(missing("wgpu"))
    }

    #[cfg(feature = "cuda")]
    pub fn cuda() -> Result<Vec<Device>, EngineError> {
        Ok(Device::enumerate(burn::tensor::DeviceType::Cuda).into_vec())
    }

    #[cfg(not(feature = "cuda"))]
    pub fn cuda() -> Result<Vec<Device>, EngineError> {
        Err(missing("cuda"))
    }

    #[cfg(not(all(feature = "wgpu", feature = "cuda")))]
    fn missing(feature: &str) -> EngineError {
        EngineError::Device {
            device: feature.to_owned(),
            reason: format!(
                "this kvlab was built without it; rebuild with `cargo build --release --features {feature}`"
            ),
        }
    }
}
