//! What the packed codecs have in common: vectors cut into groups that lie within one head of one row, each
//! with its scale and maybe a zero point. Nothing depends on other rows, so rows are encoded one by one and
//! written once, in whatever chunks they come.
//!
//! Planes: codes `[slots, heads, ceil(dim * bits / 8)]` bytes, lowest bits first; scales `[slots, heads, groups]`;
//! zero points, the same. A vector ends at a byte. Where the device has no bytes, four are a 32-bit word.
//!
//! A group with a number that is not finite decodes to NaN, so that quantising hides no broken model.

use super::scale::Scale;
use super::{Code, Codec, Packing, Scales, hadamard, host};
use crate::Plane;
use burn::tensor::{DType, Device, Int, Tensor};
use kvlab_core::Format;

/// Vectors that a thread encodes at a time.
const PART: usize = 128;

/// How the numbers of one group become codes.
pub(super) trait Quantiser: Send + Sync {
    /// What its codes mean; their bits are a divisor of 8.
    fn code(&self) -> Code;

    /// Bits of a code.
    fn bits(&self) -> u32 {
        self.code().bits()
    }

    /// The format of its scales, if it has any.
    fn scale(&self) -> Option<Scale>;

    /// Whether a group has a zero point beside its scale.
    fn zero_points(&self) -> bool;

    /// Codes of a group of finite numbers, its scale, its zero point. Unused metadata is 1 and 0.
    fn encode(&self, group: &[f32], codes: &mut [u8]) -> (f32, f32);

    /// The numbers of a group.
    fn decode(&self, codes: &[u8], scale: f32, zero: f32, out: &mut [f32]);

    /// See [`Codec::max_error`], without the rotation.
    fn max_error(&self, max_abs: f32) -> f32;
}

/// A codec of groups.
pub(super) struct Blocks<Q> {
    /// With the options that are not its default's.
    pub name: &'static str,
    pub quantiser: Q,
    /// Numbers of a group; `None` is the whole vector.
    pub group: Option<usize>,
    /// Whether vectors are rotated first.
    pub rotate: bool,
}

impl<Q: Quantiser> Blocks<Q> {
    fn group(&self, dim: usize) -> usize {
        self.group.unwrap_or(dim).max(1)
    }

    fn check_groups(&self, parts: &[usize]) -> Result<(), String> {
        let (dim, first) = (parts.iter().sum::<usize>(), parts.first().copied().unwrap_or(0));
        let group = self.group(dim);
        let fits = parts.iter().fold(self.group.unwrap_or(0), |a, &b| gcd(a, b));
        if !dim.is_multiple_of(group) {
            return Err(format!(
                "the head size of {dim} is not a multiple of the group of {group}; group = {fits} divides both"
            ));
        }
        if !first.is_multiple_of(group) && self.quantiser.scale().is_some() {
            return Err(format!(
                "a group of {group} values would share one scale between the {first} latent values of a row and the \
                 {} that rotate; group = {fits} divides both",
                dim - first
            ));
        }
        check_rotation(self.rotate, parts)
    }
}

/// Bytes of the codes of a vector.
pub(super) fn width(quantiser: &impl Quantiser, dim: usize) -> usize {
    (dim * quantiser.bits() as usize).div_ceil(8)
}

/// Scales and zero points of a group, in this order.
pub(super) fn metadata(quantiser: &impl Quantiser) -> impl Iterator<Item = Scale> {
    let count = 1 + usize::from(quantiser.zero_points());
    quantiser
        .scale()
        .into_iter()
        .flat_map(move |s| std::iter::repeat_n(s, count))
}

/// Codes, with the scales and zero points that a quantiser stores beside them, each of this shape.
pub(super) fn planes(
    quantiser: &impl Quantiser,
    codes: Plane,
    numbers: [Vec<f32>; 2],
    shape: [usize; 3],
    device: &Device,
) -> Vec<Plane> {
    let metadata = numbers.into_iter().zip(metadata(quantiser));
    let metadata = metadata.map(|(numbers, scale)| scale.plane(numbers, shape, device));
    std::iter::once(codes).chain(metadata).collect()
}

/// The inverse of [`planes`]: codes; scales and zero points, with how many of them a vector has.
pub(super) fn parts(planes: &[Plane]) -> (&Tensor<3, Int>, impl Iterator<Item = (usize, Vec<f32>)>) {
    let [Plane::Int(codes), metadata @ ..] = planes else {
        unreachable!("a packed codec allocates and encodes a plane of codes first");
    };
    let metadata = metadata.iter().map(|plane| match plane {
        Plane::Float(t) => (t.dims()[2], host::numbers(t.clone())),
        Plane::Int(_) => unreachable!("its scales are floats"),
    });
    (codes, metadata)
}

/// Whether a device has the number formats for vectors of so many bytes.
pub(super) fn check_device(quantiser: &impl Quantiser, width: usize, device: &Device) -> Result<(), String> {
    let mut dtypes = metadata(quantiser).map(Scale::dtype);
    if let Some(dtype) = dtypes.find(|&dtype| !device.supports_dtype(dtype)) {
        return Err(format!("this device has no {} numbers for its scales", dtype.name()));
    }
    let word = host::word(device);
    if !width.is_multiple_of(word.size()) {
        return Err(format!(
            "this device has no bytes, and a vector of {width} bytes does not fill its 32-bit words"
        ));
    }
    if word != DType::U8 && !device.supports_dtype(word) {
        return Err("this device has neither bytes nor 32-bit words".into());
    }
    Ok(())
}

/// Whether vectors of these parts can be rotated, if they are.
pub(super) fn check_rotation(rotate: bool, parts: &[usize]) -> Result<(), String> {
    let (dim, first) = (parts.iter().sum::<usize>(), parts.first().copied().unwrap_or(0));
    let block = hadamard::block(dim);
    if rotate && dim > 0 && (block < 2 || !first.is_multiple_of(block)) {
        return Err(format!(
            "rotate = true needs a head size that a power of two divides, and is refused where it would mix the \
             latent of a row with its rotary part: it has {parts:?} values"
        ));
    }
    Ok(())
}

/// The largest error of a number in a rotated vector.
pub(super) fn rotated_error(quantiser: &impl Quantiser, dim: usize, max_abs: f32) -> f32 {
    // A rotation by n makes a number at most sqrt(n) times as large; turning back adds up as many errors.
    let grown = (hadamard::block(dim) as f32).sqrt();
    let rounding = 16.0 * f32::EPSILON * grown * max_abs;
    quantiser.max_error(max_abs * grown) * grown + rounding
}

impl<Q: Quantiser> Codec for Blocks<Q> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn format(&self, dim: usize) -> Format {
        let metadata_bits = metadata(&self.quantiser).map(Scale::bits).sum();
        Format {
            name: self.name.into(),
            payload_bits: self.quantiser.bits(),
            group: if metadata_bits == 0 { 0 } else { self.group(dim) },
            per_channel: false,
            metadata_bits,
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
        self.check_groups(parts)
    }

    fn allocate(&self, [slots, heads, dim]: [usize; 3], device: &Device) -> Vec<Plane> {
        let word = host::word(device);
        let codes = Tensor::<3, Int>::zeros(
            [slots, heads, width(&self.quantiser, dim) / word.size()],
            (device, word),
        );
        let groups = dim / self.group(dim);
        let metadata =
            metadata(&self.quantiser).map(|s| Plane::Float(Tensor::zeros([slots, heads, groups], (device, s.dtype()))));
        std::iter::once(Plane::Int(codes)).chain(metadata).collect()
    }

    fn encode(&self, rows: Tensor<3>) -> Vec<Plane> {
        let ([slots, heads, dim], device) = (rows.dims(), rows.device());
        let (group, width, bits) = (self.group(dim), width(&self.quantiser, dim), self.quantiser.bits());
        let mut numbers = host::numbers(rows);
        let (vectors, groups) = (slots * heads, dim / group);
        let mut packed = vec![0; vectors * width];
        let (mut scales, mut zeros) = (vec![0.0; vectors * groups], vec![0.0; vectors * groups]);
        let numbers = numbers.chunks_mut(PART * dim).zip(packed.chunks_mut(PART * width));
        let factors = scales.chunks_mut(PART * groups).zip(zeros.chunks_mut(PART * groups));
        kvlab_cpu::for_each(numbers.zip(factors), |((numbers, packed), (scales, zeros))| {
            let mut codes = vec![0; dim];
            let factors = scales.chunks_exact_mut(groups).zip(zeros.chunks_exact_mut(groups));
            let vectors = numbers.chunks_exact_mut(dim).zip(packed.chunks_exact_mut(width));
            for ((vector, packed), (scales, zeros)) in vectors.zip(factors) {
                if self.rotate {
                    hadamard::rotate(vector);
                }
                let parts = vector.chunks_exact(group).zip(codes.chunks_exact_mut(group));
                for ((numbers, codes), (scale, zero)) in parts.zip(scales.iter_mut().zip(zeros)) {
                    (*scale, *zero) = self.quantiser.encode(numbers, codes);
                }
                pack(&codes, bits, packed);
            }
        });
        let codes = host::codes(packed, [slots, heads, width], &device);
        planes(&self.quantiser, codes, [scales, zeros], [slots, heads, groups], &device)
    }

    fn decode(&self, planes: &[Plane]) -> Tensor<3> {
        let (codes, mut metadata) = parts(planes);
        let [slots, heads, words] = codes.dims();
        let (bits, width) = (self.quantiser.bits(), words * codes.dtype().size());
        let (groups, scales) = metadata.next().unwrap_or_else(|| (1, vec![1.0; slots * heads]));
        let (_, zeros) = metadata.next().unwrap_or_else(|| (groups, vec![0.0; scales.len()]));
        let dim = match self.group {
            Some(group) => groups * group,
            None => width * 8 / bits as usize,
        };
        let device = codes.device();
        let data = codes.clone().into_data();
        let mut numbers = vec![0.0; slots * heads * dim];
        let mut unpacked = vec![0; width * 8 / bits as usize];
        let vectors = numbers.chunks_exact_mut(dim).zip(data.as_bytes().chunks_exact(width));
        let vectors = vectors.zip(scales.chunks_exact(groups).zip(zeros.chunks_exact(groups)));
        for ((numbers, bytes), (scales, zeros)) in vectors {
            let codes = unpack(bytes, bits, &mut unpacked);
            let parts = numbers
                .chunks_exact_mut(dim / groups)
                .zip(codes.chunks_exact(dim / groups));
            for ((numbers, codes), (&scale, &zero)) in parts.zip(scales.iter().zip(zeros)) {
                self.quantiser.decode(codes, scale, zero, numbers);
            }
            if self.rotate {
                hadamard::rotate(numbers);
            }
        }
        host::tensor(numbers, [slots, heads, dim], &device)
    }

    fn packing(&self) -> Option<Packing> {
        Some(Packing {
            code: self.quantiser.code(),
            scales: match self.quantiser.scale() {
                Some(_) => Scales::Along(self.group),
                None => Scales::None,
            },
            rotate: self.rotate,
        })
    }
}

/// Puts codes of so many bits into bytes, lowest bits first.
pub(super) fn pack(codes: &[u8], bits: u32, bytes: &mut [u8]) {
    match bits {
        8 => bytes.copy_from_slice(codes),
        4 if codes.len().is_multiple_of(2) => {
            let pairs = bytes.iter_mut().zip(codes.as_chunks().0);
            pairs.for_each(|(byte, [low, high])| *byte = low | high << 4);
        }
        _ => {
            let per_byte = (8 / bits) as usize;
            let join = |part: &[u8]| part.iter().rev().fold(0, |byte, code| byte << bits | code);
            bytes
                .iter_mut()
                .zip(codes.chunks(per_byte))
                .for_each(|(byte, part)| *byte = join(part));
        }
    }
}

/// The codes of every byte: a look-up and one write a byte, where shifts would be a write for each code.
static NIBBLES: [[u8; 2]; 256] = table();
static PAIRS: [[u8; 4]; 256] = table();

const fn table<const N: usize>() -> [[u8; N]; 256] {
    let (mut table, bits) = ([[0; N]; 256], 8 / N);
    let mut byte = 0;
    while byte < 256 {
        let mut i = 0;
        while i < N {
            table[byte][i] = (byte >> (i * bits) & ((1 << bits) - 1)) as u8;
            i += 1;
        }
        byte += 1;
    }
    table
}

/// The codes in bytes: the bytes themselves, or in `codes`, which has room for them.
pub(super) fn unpack<'a>(bytes: &'a [u8], bits: u32, codes: &'a mut [u8]) -> &'a [u8] {
    match bits {
        4 => {
            let pairs = codes.as_chunks_mut().0.iter_mut().zip(bytes);
            pairs.for_each(|(out, &byte)| *out = NIBBLES[usize::from(byte)]);
        }
        2 => {
            let pairs = codes.as_chunks_mut().0.iter_mut().zip(bytes);
            pairs.for_each(|(out, &byte)| *out = PAIRS[usize::from(byte)]);
        }
        _ => return bytes,
    }
    codes
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
