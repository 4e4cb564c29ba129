//! Packed rows to f32 numbers.

#![allow(unsafe_code)] // Loads of vectors through pointers into planes, whose sizes `Side` has checked.

use super::planes::{Raw, Side};
use super::simd::{HALVES, Op, Simd};
use super::tile::{ROWS, Tile};
use burn::tensor::DType;
use kvlab_cpu::f16_to_f32;
use kvlab_store::codec::{Code, Scales};
use std::ops::Range;

/// Formats as constants, for loops that are compiled for each of them.
pub const F32: u8 = 0;
pub const F16: u8 = 1;
pub const BF16: u8 = 2;
pub const E4M3: u8 = 3;
pub const E5M2: u8 = 4;
pub const INT8: u8 = 5;
pub const INT4: u8 = 6;
pub const INT2: u8 = 7;

/// The constant of a code.
pub fn format(code: Code) -> u8 {
    match code {
        Code::F32 => F32,
        Code::F16 => F16,
        Code::Bf16 => BF16,
        Code::E4m3 => E4M3,
        Code::E5m2 => E5M2,
        Code::Int { bits: 8, .. } => INT8,
        Code::Int { bits: 4, .. } => INT4,
        Code::Int { .. } => INT2,
    }
}

/// Whether it has numbers, and not codes that are scaled.
pub const fn is_float(format: u8) -> bool {
    format <= BF16
}

/// Vectors of a row, up to which its scales are not looked up number by number.
const VECTORS: usize = 96;

/// Vector number `i` of a row.
///
/// # Safety
/// The row has it, and the processor has `S`.
#[inline(always)]
pub unsafe fn vector<S: Simd, const K: u8>(row: *const u8, i: usize) -> S::V {
    // SAFETY: the caller's promise.
    unsafe {
        let i = i * S::LANES;
        match K {
            F32 => S::load(row.cast::<f32>().add(i)),
            F16 => S::f16(row.add(2 * i)),
            BF16 => S::bf16(row.add(2 * i)),
            E4M3 => S::e4m3(row.add(i)),
            E5M2 => S::e5m2(row.add(i)),
            INT8 => S::codes8(row.add(i)),
            INT4 => S::codes4(row.add(i / 2)),
            _ => S::codes2(row.add(i / 4)),
        }
    }
}

/// Number `i` of a row before it is scaled.
unsafe fn number(code: Code, row: *const u8, i: usize) -> f32 {
    // SAFETY: the caller promises that the row has it.
    unsafe {
        let bits = |bits: usize| *row.add(i * bits / 8) >> (i * bits % 8) & ((1_u16 << bits) - 1) as u8;
        match code {
            Code::F32 => row.cast::<f32>().add(i).read_unaligned(),
            Code::F16 => f16_to_f32(row.cast::<u16>().add(i).read_unaligned()),
            Code::Bf16 => f32::from_bits(u32::from(row.cast::<u16>().add(i).read_unaligned()) << 16),
            Code::E5m2 => f16_to_f32(u16::from(*row.add(i)) << 8),
            Code::E4m3 => {
                let code = u16::from(*row.add(i));
                match code & 0x7F {
                    0x7F => f32::NAN,
                    size => f16_to_f32((code & 0x80) << 8 | size << 7) * 256.0,
                }
            }
            Code::Int { bits: n, .. } => f32::from(bits(n as usize)),
        }
    }
}

/// Numbers of a float plane, side by side, to f32.
#[inline(always)]
unsafe fn widen<S: Simd>(from: *const u8, dtype: DType, n: usize, to: *mut f32) {
    // SAFETY: the caller promises `n` numbers and room for them.
    unsafe {
        if dtype == DType::F32 {
            return to.copy_from_nonoverlapping(from.cast(), n);
        }
        let whole = n / S::LANES;
        for i in 0..whole {
            S::store(to.add(i * S::LANES), S::f16(from.add(2 * i * S::LANES)));
        }
        for i in whole * S::LANES..n {
            to.add(i).write(f16_to_f32(from.cast::<u16>().add(i).read_unaligned()));
        }
    }
}

/// Room for the scales and zero points of a tile, as f32: `[heads, groups][ROWS]` where rows have their own, and else
/// those of a block of rows.
#[derive(Clone, Copy)]
pub struct Factors {
    pub scale: *mut f32,
    pub zero: *mut f32,
    /// The heads that it is for.
    pub first: usize,
    pub heads: usize,
}

impl Factors {
    /// Numbers of each of the two, for tiles of rows of vectors of `dim` numbers.
    pub fn room(scales: Scales, dim: usize, heads: usize) -> usize {
        match scales {
            Scales::None => 0,
            // The square that is turned last may be larger than what is left.
            Scales::Along(group) => ROWS * (heads * (dim / group.unwrap_or(dim).max(1))).next_multiple_of(16),
            Scales::Across(_) => dim.max(ROWS),
        }
    }

    /// Those of a head, if rows have their own.
    pub fn of(&self, side: &Side, head: usize) -> [*mut f32; 2] {
        let at = (head - self.first) * side.groups() * ROWS;
        [self.scale.wrapping_add(at), self.zero.wrapping_add(at)]
    }

    /// Reads those of all heads, where each row has its own, and asks for those of a later tile. `zeros`: also where there are no
    /// zero points.
    ///
    /// # Safety
    /// There is [`room`](Self::room), the slots are inside of the planes, and the processor has `S`.
    pub unsafe fn read<S: Simd>(&self, side: &Side, tile: &Tile, next: &[usize], zeros: bool) {
        if !matches!(side.scales, Scales::Along(_)) {
            return;
        }
        let factors = self;
        for (raw, to) in [(&side.scale, self.scale), (&side.zero, self.zero)] {
            if let Some(raw) = raw {
                // SAFETY: the caller's promise.
                unsafe {
                    S::call(ReadPlane {
                        factors,
                        raw,
                        tile,
                        next,
                        to,
                    })
                };
            }
        }
        if zeros && side.zero.is_none() {
            // SAFETY: as many zeros as scales.
            unsafe { self.zeros(side.code, self.heads * side.groups() * ROWS) };
        }
    }

    /// Reads those of a head, where each block of rows has its own.
    ///
    /// # Safety
    /// There is [`room`](Self::room), the block is inside of the planes, and the processor has `S`.
    pub unsafe fn read_block<S: Simd>(&self, side: &Side, block: usize, head: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            for (raw, to) in [(&side.scale, self.scale), (&side.zero, self.zero)] {
                if let Some(raw) = raw {
                    widen::<S>(raw.at(block, head), raw.dtype, side.dim, to);
                }
            }
            if side.zero.is_none() {
                self.zeros(side.code, side.dim);
            }
        }
    }

    /// What is added to so many scaled codes, where there are no zero points: the code in the middle stands for 0.
    unsafe fn zeros(&self, code: Code, n: usize) {
        let middle = middle(code);
        // SAFETY: the caller promises as many scales and room for as many zeros.
        unsafe {
            let scales = std::slice::from_raw_parts(self.scale, n);
            let zeros = std::slice::from_raw_parts_mut(self.zero, n);
            zeros
                .iter_mut()
                .zip(scales)
                .for_each(|(zero, scale)| *zero = -middle * scale);
        }
    }
}

struct ReadPlane<'a> {
    factors: &'a Factors,
    raw: &'a Raw,
    tile: &'a Tile,
    /// Slots of a later tile.
    next: &'a [usize],
    to: *mut f32,
}

impl Op for ReadPlane<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self {
            factors,
            raw,
            tile,
            next,
            to,
        } = self;
        let width = raw.dims[2];
        // Rows that share a line are asked for once, if they follow each other.
        for &slot in next.iter().step_by((64 / raw.slot_stride().max(1)).max(1)) {
            // SAFETY: an address is asked for, not read.
            unsafe { S::prefetch(raw.at(slot, factors.first)) };
        }
        let n = factors.heads * width;
        let wide = raw.dtype == DType::F32;
        let together = if wide { S::LANES } else { HALVES };
        let base = raw.at(0, factors.first);
        // Nothing is read behind the plane's end.
        let end = tile.last * raw.slot_stride() + n.next_multiple_of(together) * raw.number();
        let inside = raw.heads_touch() && end <= raw.behind(base);
        for row in (0..tile.len).step_by(S::LANES) {
            for first in (0..n).step_by(together) {
                let to = to.wrapping_add(first * ROWS + row);
                // SAFETY: the plane has the slots, and there is the room of a square more than there are numbers.
                unsafe {
                    if inside && row + S::LANES <= tile.len {
                        let base = base.wrapping_add(first * raw.number());
                        let slots = &tile.slots[row..row + S::LANES];
                        turn::<S>(wide, |i| base.wrapping_add(slots[i] * raw.slot_stride()), to);
                    } else {
                        let slots = &tile.slots[row..(row + S::LANES).min(tile.len)];
                        let last = last_numbers(raw, slots, factors.first, first..n.min(first + together));
                        turn::<S>(wide, |i| last[i].as_ptr(), to);
                    }
                }
            }
        }
    }
}

/// Numbers of as many rows as there are lanes as columns, [`ROWS`] from one to the next.
///
/// # Safety
/// The rows have a vector's numbers in f32, or [`HALVES`] in f16; there is room for as many columns.
#[inline(always)]
unsafe fn turn<S: Simd>(wide: bool, row: impl Fn(usize) -> *const u8, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        if !wide {
            return S::transpose_f16(row, to, ROWS);
        }
        let mut square = [S::splat(0.0); 16];
        for (i, numbers) in square[..S::LANES].iter_mut().enumerate() {
            *numbers = S::load(row(i).cast());
        }
        S::transpose(&square, to, ROWS);
    }
}

/// Bytes of a vector of f32 numbers.
const LAST: usize = 64;

/// Some numbers of the heads of up to sixteen slots, counted from the first number of `head`: as many as a vector has at most.
/// Rows that are none have zeros.
#[cold]
fn last_numbers(raw: &Raw, slots: &[usize], head: usize, range: Range<usize>) -> [[u8; LAST]; 16] {
    let mut all = [[0; LAST]; 16];
    let size = raw.number();
    for (numbers, &slot) in all.iter_mut().zip(slots) {
        for (number, i) in numbers.chunks_exact_mut(size).zip(range.clone()) {
            let at = raw
                .at(slot, head + i / raw.dims[2])
                .wrapping_add(i % raw.dims[2] * size);
            // SAFETY: the plane has this number.
            unsafe { at.copy_to_nonoverlapping(number.as_mut_ptr(), size) };
        }
    }
    all
}

/// Writes the rows of a head as f32, `stride` numbers from one to the next, with zeros up to a whole vector.
#[derive(Clone, Copy)]
pub struct Unpack<'a> {
    pub side: &'a Side,
    pub tile: &'a Tile,
    pub head: usize,
    pub factors: &'a Factors,
    pub to: *mut f32,
    pub stride: usize,
}

impl Unpack<'_> {
    /// Does it.
    ///
    /// # Safety
    /// The tile's slots are inside of the planes, the factors have been read, `to` has room for all rows, and the
    /// processor has `S`.
    pub unsafe fn call<S: Simd>(self) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.side.code {
                Code::F32 => S::call(UnpackAs::<F32>(self)),
                Code::F16 => S::call(UnpackAs::<F16>(self)),
                Code::Bf16 => S::call(UnpackAs::<BF16>(self)),
                Code::E4m3 => S::call(UnpackAs::<E4M3>(self)),
                Code::E5m2 => S::call(UnpackAs::<E5M2>(self)),
                Code::Int { bits: 8, .. } => S::call(UnpackAs::<INT8>(self)),
                Code::Int { bits: 4, .. } => S::call(UnpackAs::<INT4>(self)),
                Code::Int { .. } => S::call(UnpackAs::<INT2>(self)),
            }
        }
    }
}

struct UnpackAs<'a, const K: u8>(Unpack<'a>);

impl<const K: u8> Op for UnpackAs<'_, K> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the promise of `Unpack::call`.
        unsafe { rows::<S, K>(self.0) }
    }
}

/// What is taken off a code before it is scaled.
fn middle(code: Code) -> f32 {
    match code {
        Code::Int {
            bits,
            zero_points: false,
        } => (1 << (bits - 1)) as f32,
        _ => 0.0,
    }
}

#[inline(always)]
unsafe fn rows<S: Simd, const K: u8>(unpack: Unpack<'_>) {
    let Unpack {
        side,
        tile,
        head,
        factors,
        to,
        stride,
    } = unpack;
    // SAFETY: the caller's promise.
    unsafe {
        // No division in the loop: a short row costs less than one.
        let fits = side.dim.is_multiple_of(S::LANES);
        let group = side.group();
        let vectors = side.dim / S::LANES;
        let whole = fits && group.is_multiple_of(S::LANES) && vectors <= VECTORS;
        let mut scales = [0; VECTORS];
        if whole {
            let groups = scales[..vectors].chunks_mut(group / S::LANES).enumerate();
            groups.for_each(|(i, scales)| scales.fill(i));
        }
        let mut block = usize::MAX;
        for row in 0..tile.len {
            let (slot, to) = (tile.slots[row], to.add(row * stride));
            let codes = side.codes.at(slot, head);
            match side.scales {
                Scales::None => plain::<S, K>(side, codes, to),
                Scales::Along(_) => {
                    let [scale, zero] = factors.of(side, head).map(|of| of.wrapping_add(row).cast_const());
                    if !whole {
                        one_by_one::<S>(side, codes, scale, zero, ROWS, to);
                    } else {
                        along::<S, K>(codes, scale, zero, &scales[..vectors], to);
                    }
                }
                Scales::Across(rows) => {
                    if block != slot / rows {
                        block = slot / rows;
                        factors.read_block::<S>(side, block, head);
                    }
                    match fits {
                        true => across::<S, K>(side.dim, codes, factors.scale, factors.zero, to),
                        false => one_by_one::<S>(side, codes, factors.scale, factors.zero, 1, to),
                    }
                }
            }
        }
    }
}

/// Without scales.
#[inline(always)]
unsafe fn plain<S: Simd, const K: u8>(side: &Side, codes: *const u8, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        let whole = side.dim / S::LANES;
        for i in 0..whole {
            S::store(to.add(i * S::LANES), vector::<S, K>(codes, i));
        }
        let first = whole * S::LANES;
        for i in first..side.dim {
            to.add(i).write(number(side.code, codes, i));
        }
        for i in side.dim..side.dim.next_multiple_of(S::LANES) {
            to.add(i).write(0.0);
        }
    }
}

/// A scale and what is added for each vector, `ROWS` numbers from one group to the next: `groups` says which.
#[inline(always)]
unsafe fn along<S: Simd, const K: u8>(
    codes: *const u8,
    scale: *const f32,
    zero: *const f32,
    groups: &[usize],
    to: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for (i, &group) in groups.iter().enumerate() {
            let (scale, zero) = (S::splat(*scale.add(group * ROWS)), S::splat(*zero.add(group * ROWS)));
            S::store(to.add(i * S::LANES), S::fma(vector::<S, K>(codes, i), scale, zero));
        }
    }
}

/// A scale for each number.
#[inline(always)]
unsafe fn across<S: Simd, const K: u8>(
    dim: usize,
    codes: *const u8,
    scale: *const f32,
    zero: *const f32,
    to: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for i in 0..dim / S::LANES {
            let at = i * S::LANES;
            let (codes, scale) = (vector::<S, K>(codes, i), S::load(scale.add(at)));
            S::store(to.add(at), S::fma(codes, scale, S::load(zero.add(at))));
        }
    }
}

/// Whatever does not fit vectors; `stride` numbers from one factor to the next.
unsafe fn one_by_one<S: Simd>(
    side: &Side,
    codes: *const u8,
    scale: *const f32,
    zero: *const f32,
    stride: usize,
    to: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let group = side.group();
        for i in 0..side.dim {
            let (code, group) = (number(side.code, codes, i), i / group * stride);
            to.add(i).write(code * *scale.add(group) + *zero.add(group));
        }
        for i in side.dim..side.dim.next_multiple_of(S::LANES) {
            to.add(i).write(0.0);
        }
    }
}
