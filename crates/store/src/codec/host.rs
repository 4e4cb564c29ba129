//! Planes to slices in host memory and back. This is how the packed codecs read and write today, on every
//! device: on the processor it is one copy of the codes; from a graphics card it is a read-back, right but slow.

use crate::Plane;
use burn::tensor::{DType, Device, Element, Int, Tensor, TensorData};
use half::slice::HalfFloatSliceExt;

/// Numbers of any float type, as f32.
pub(super) fn numbers(t: Tensor<3>) -> Vec<f32> {
    let data = t.into_data();
    if data.dtype() == DType::F16 {
        // The slice conversion uses the processor's instruction for it.
        let halves: Vec<half::f16> = bytemuck::pod_collect_to_vec(data.as_bytes());
        let mut out = vec![0.0; halves.len()];
        halves.convert_to_f32_slice(&mut out);
        return out;
    }
    bytemuck::pod_collect_to_vec(data.convert::<f32>().as_bytes())
}

pub(super) fn tensor<E: Element>(numbers: Vec<E>, shape: [usize; 3], device: &Device) -> Tensor<3> {
    Tensor::from_data(TensorData::new(numbers, shape), (device, E::dtype()))
}

/// What bytes are stored in: bytes, or 32-bit words on a device without bytes (WGSL).
pub(super) fn word(device: &Device) -> DType {
    match device.supports_dtype(DType::U8) {
        true => DType::U8,
        false => DType::U32,
    }
}

/// A plane of bytes, `[slots, heads, bytes]`, or words in the processor's byte order.
pub(super) fn codes(bytes: Vec<u8>, [slots, heads, width]: [usize; 3], device: &Device) -> Plane {
    let dtype = word(device);
    let width = width / dtype.size();
    let data = match dtype {
        DType::U8 => TensorData::new(bytes, [slots, heads, width]),
        _ => {
            let words: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes);
            TensorData::new(words, [slots, heads, width])
        }
    };
    Plane::Int(Tensor::<3, Int>::from_data(data, (device, dtype)))
}
