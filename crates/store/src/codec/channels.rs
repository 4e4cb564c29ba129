//! Packed codecs with groups along the channel: `group` tokens of one channel share a scale, and maybe a zero point
//! (KIVI, Liu et al. 2024: a few channels of the keys are large in every token, and then cost nobody but themselves).
//!
//! A block of `group` rows is packed at once; see [`Seal`](kvlab_core::Seal) for when.
//!
//! Planes: codes as in [`blocks`](super::blocks), `[slots, heads, ceil(dim * bits / 8)]` bytes; scales
//! `[slots / group, heads, dim]`; zero points, the same. The bounds are those of the quantiser.

use super::blocks::{
    Quantiser, check_device, check_rotation, metadata, pack, parts, planes, rotated_error, unpack, width,
};
use super::scale::Scale;
use super::{Codec, Packing, Scales, hadamard, host};
use crate::Plane;
use burn::tensor::{Device, Int, Tensor};
use kvlab_core::Format;

/// A codec of groups along the channel.
pub(super) struct Channels<Q> {
    /// With the options that are not its default's.
    pub name: &'static str,
    pub quantiser: Q,
    /// Tokens of a group.
    pub group: usize,
    /// Whether vectors are rotated first.
    pub rotate: bool,
}

impl<Q: Quantiser> Codec for Channels<Q> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn block(&self) -> usize {
        self.group
    }

    fn format(&self, _dim: usize) -> Format {
        Format {
            name: self.name.into(),
            payload_bits: self.quantiser.bits(),
            group: self.group,
            per_channel: true,
            metadata_bits: metadata(&self.quantiser).map(Scale::bits).sum(),
        }
    }

    fn max_error(&self, dim: usize, max_abs: f32) -> f32 {
        match self.rotate {
            true => rotated_error(&self.quantiser, dim, max_abs),
            false => self.quantiser.max_error(max_abs),
        }
    }

    fn check(&self, parts: &[usize], device: &Device) -> Result<(), String> {
        check_device(&self.quantiser, width(&self.quantiser, parts.iter().sum()), device)?;
        check_rotation(self.rotate, parts)
    }

    fn allocate(&self, [slots, heads, dim]: [usize; 3], device: &Device) -> Vec<Plane> {
        let word = host::word(device);
        let codes = [slots, heads, width(&self.quantiser, dim) / word.size()];
        let scales = [slots / self.group, heads, dim];
        let metadata = metadata(&self.quantiser);
        std::iter::once(Plane::Int(Tensor::<3, Int>::zeros(codes, (device, word))))
            .chain(metadata.map(|scale| Plane::Float(Tensor::zeros(scales, (device, scale.dtype())))))
            .collect()
    }

    fn encode(&self, rows: Tensor<3>) -> Vec<Plane> {
        let ([count, heads, dim], device) = (rows.dims(), rows.device());
        let (group, bits, row) = (self.group, self.quantiser.bits(), heads * dim);
        let mut numbers = host::numbers(rows);
        if self.rotate {
            numbers.chunks_exact_mut(dim).for_each(hadamard::rotate);
        }
        let mut codes = vec![0; numbers.len()];
        let (mut scales, mut zeros) = (Vec::with_capacity(numbers.len() / group), Vec::new());
        let (mut column, mut coded) = (vec![0.0; group], vec![0; group]);
        for (numbers, codes) in numbers
            .chunks_exact(group * row)
            .zip(codes.chunks_exact_mut(group * row))
        {
            for channel in 0..row {
                let of_channel = numbers.iter().skip(channel).step_by(row);
                column.iter_mut().zip(of_channel).for_each(|(to, &x)| *to = x);
                let (scale, zero) = self.quantiser.encode(&column, &mut coded);
                let of_channel = codes.iter_mut().skip(channel).step_by(row);
                of_channel.zip(&coded).for_each(|(to, &code)| *to = code);
                scales.push(scale);
                zeros.push(zero);
            }
        }
        let width = width(&self.quantiser, dim);
        let mut packed = vec![0; count * heads * width];
        let vectors = codes.chunks_exact(dim).zip(packed.chunks_exact_mut(width));
        vectors.for_each(|(vector, packed)| pack(vector, bits, packed));
        let codes = host::codes(packed, [count, heads, width], &device);
        planes(
            &self.quantiser,
            codes,
            [scales, zeros],
            [count / group, heads, dim],
            &device,
        )
    }

    fn decode(&self, planes: &[Plane]) -> Tensor<3> {
        let (codes, mut metadata) = parts(planes);
        let [rows, heads, words] = codes.dims();
        let (bits, width) = (self.quantiser.bits(), words * codes.dtype().size());
        let (dim, scales) = metadata.next().unwrap_or_default();
        let zeros = metadata
            .next()
            .map_or_else(|| vec![0.0; scales.len()], |(_, zeros)| zeros);
        let device = codes.device();
        let data = codes.clone().into_data();
        let mut numbers = vec![0.0; rows * heads * dim];
        let mut unpacked = vec![0; width * 8 / bits as usize];
        let vectors = numbers
            .chunks_exact_mut(dim.max(1))
            .zip(data.as_bytes().chunks_exact(width.max(1)));
        for (i, (numbers, bytes)) in vectors.enumerate() {
            let codes = unpack(bytes, bits, &mut unpacked);
            let first = (i / heads / self.group * heads + i % heads) * dim;
            let (scales, zeros) = (&scales[first..first + dim], &zeros[first..first + dim]);
            let channels = numbers.iter_mut().zip(codes).zip(scales.iter().zip(zeros));
            for ((x, &code), (&scale, &zero)) in channels {
                self.quantiser.decode(&[code], scale, zero, std::slice::from_mut(x));
            }
            if self.rotate {
                hadamard::rotate(numbers);
            }
        }
        host::tensor(numbers, [rows, heads, dim], &device)
    }

    fn packing(&self) -> Option<Packing> {
        Some(Packing {
            code: self.quantiser.code(),
            scales: Scales::Across(self.group),
            rotate: self.rotate,
        })
    }
}
