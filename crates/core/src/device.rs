//! Where tensors are.

use burn::backend::DispatchDevice;
use burn::tensor::Device;

/// Whether the tensors of a device lie in the processor's memory, where code of our own can read them.
pub fn is_processor(device: &Device) -> bool {
    matches!(device.as_dispatch(), DispatchDevice::Flex(_))
}
