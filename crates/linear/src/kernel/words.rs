//! Many rows in whole numbers: `vpdpwssd` (AVX-512 VNNI) multiplies pairs of 16-bit integers and adds both products, 32 of them in
//! an instruction, at twice the pace of f32; `vpmaddwd` (AVX2) does half as many, and leaves the addition to another.
//!
//! Four panels at a time (AVX2: one) become 16-bit codes and scales, once for all rows ([`Source`]); quantised weights are exact so,
//! and floats nearly ([`fixed`]). Activations come in tiles ([`Words`]). Some rows of a tile times four vectors of
//! weights have their sums of integers in registers for a block, or for the columns that have a scale in common, and their sums in
//! f32 in the nearest cache. Six rows and four vectors take ten loads for 24 products, twelve rows and two vectors fourteen: an
//! Ice Lake that does two products a cycle loads little more than one register of 64 bytes.
//!
//! [`bytes`] multiplies four codes of 8 bits instead (`vpdpbusd`, `vpmaddubsw`), at twice the pace: activations of 8 bits times
//! quantised weights.
#![allow(unsafe_code)]

mod bytes;
mod fixed;
mod quant;

use super::Part;
use super::integer::Integers;
use super::vector::{Narrow, Vector, Wide};
use crate::Format;
use crate::layout::{BLOCK, Line, PANEL, Q4_0, Q4_1, Q4K};
use crate::packed::{Panel, with_codes, with_quantised};
use crate::words::{BESIDE, FOURS, HEIGHT, Most, Outlier, Tile, Words};
use bytes::Bytes;
use kvlab_cpu::Isa;
use std::arch::x86_64::*;
use std::cell::Cell;
use std::ops::Range;

/// Where a weight has codes of floats, up to `2^14` ([`fixed`]): with half of each code added by rounding, `2^14` times this is less
/// than `2^31`.
pub(super) const BESIDE_FLOATS: Most = Most {
    code: i16::MAX,
    sum: 131_000.0,
};
/// How many blocks ahead activations are asked for.
const AHEAD: usize = 2;
/// Most vectors of weights that are multiplied together.
const MOST_VECTORS: usize = 4;
/// Most blocks that are unpacked at a time, those of all vectors: with those of a tile they fit into the nearest cache.
const CHUNK: usize = 24;

/// How a block becomes codes.
trait Source<V: Vector> {
    /// Words of a block and row: as many vectors.
    const WORDS: usize;
    /// Scales of a block: products that have one in common are added up as integers, and that sum cannot overflow.
    const SCALES: usize;
    /// Whether there are minima.
    const MINIMA: bool;
    /// Whether sums of integers begin with [`Unpacked::begin`], and not with zero.
    const BEGIN: bool = false;

    /// Writes the codes of a block, a word of each row in every `stride`th vector, as [`crate::words`] orders them, from a row
    /// on.
    ///
    /// # Safety
    /// The panel has this block; the machine has what the vector needs.
    unsafe fn unpack(panel: Panel<'_>, block: usize, row: usize, codes: &mut [V], stride: usize) -> Unpacked<V>;

    /// Adds the products of the codes of each row to its sum; `x` has one word of activations in all places.
    ///
    /// # Safety
    /// The machine has what the vector needs.
    unsafe fn dot(sum: V, codes: V, x: V) -> V;

    /// What [`Self::dot`] adds up, as one number for each row.
    ///
    /// # Safety
    /// The machine has what the vector needs.
    unsafe fn sums(sums: V) -> V;

    /// The word of a column of a block, and by how many bits its code is below the highest.
    fn place(column: usize) -> (usize, u32);
    /// Bits of a code.
    const BITS: u32;
}

/// What a block has besides its codes.
#[derive(Clone, Copy)]
struct Unpacked<V: Vector> {
    /// Of both halves: the same, unless there are two.
    scales: [V::Floats; 2],
    minimum: V::Floats,
    begin: [V; 2],
}

/// What a kernel needs whose functions are not inlined.
trait Kernel: Vector {
    /// [`add_block`].
    ///
    /// # Safety
    /// As there.
    unsafe fn block<L: Source<Self>, const P: usize, const R: usize, const Q: usize>(
        sums: *mut Self::Floats,
        weights: *const Self,
        x: *const i32,
        first: usize,
    );

    /// What the thread keeps for its next part.
    fn room() -> &'static std::thread::LocalKey<Cell<Room<Self>>>;
}

/// Implements [`Kernel`] with the instructions of a vector.
macro_rules! kernel {
    ($vector:ty, $features:literal) => {
        impl Kernel for $vector {
            #[inline(never)]
            #[target_feature(enable = $features)]
            unsafe fn block<L: Source<Self>, const P: usize, const R: usize, const Q: usize>(
                sums: *mut Self::Floats,
                weights: *const Self,
                x: *const i32,
                first: usize,
            ) {
                // SAFETY: passed on to the caller.
                unsafe { add_block::<L, Self, P, R, Q>(sums, weights, x, first) }
            }

            fn room() -> &'static std::thread::LocalKey<Cell<Room<Self>>> {
                thread_local! {
                    static ROOM: Cell<Room<$vector>> = const {
                        Cell::new(Room {
                            weights: Vec::new(),
                            sums: Vec::new(),
                        })
                    };
                }
                &ROOM
            }
        }
    };
}

kernel!(Wide, "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni");
kernel!(Narrow, "avx2,fma,f16c");

/// # Safety
/// As [`super::compute`], for a weight that is not F32, with AVX2.
pub(super) unsafe fn compute(isa: Isa, part: &Part<'_>, x: &Words) {
    // SAFETY: passed on to the caller.
    unsafe {
        match isa >= Isa::Avx512 {
            true => wide(part, x),
            false => narrow(part, x),
        }
    }
}

/// # Safety
/// As [`compute`], with AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn wide(part: &Part<'_>, x: &Words) {
    // SAFETY: passed on to the caller.
    unsafe {
        match x.words() {
            FOURS => with_quantised!(part.weight.format(), wide_bytes(part, x)),
            _ => with_codes!(part.weight.format(), wide_words(part, x)),
        }
    }
}

/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn narrow(part: &Part<'_>, x: &Words) {
    // SAFETY: passed on to the caller.
    unsafe {
        match x.words() {
            FOURS => match part.weight.format() {
                Format::Q4_0 => narrow_bytes::<Q4_0>(part, x),
                Format::Q4_1 => narrow_bytes::<Q4_1>(part, x),
                Format::Q4_K => narrow_bytes::<Q4K>(part, x),
                _ => unreachable!("sums of 16 bits have no room for more than 4"),
            },
            _ => with_codes!(part.weight.format(), narrow_words(part, x)),
        }
    }
}

/// # Safety
/// As [`all_panels`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn wide_words<L: Source<Wide>>(part: &Part<'_>, x: &Words) {
    // SAFETY: passed on to the caller.
    unsafe { all_panels::<L, Wide>(part, x) }
}

/// # Safety
/// As [`all_panels`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn wide_bytes<L: Integers>(part: &Part<'_>, x: &Words) {
    // SAFETY: passed on to the caller.
    unsafe { all_panels::<Bytes<L>, Wide>(part, x) }
}

/// # Safety
/// As [`all_panels`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn narrow_words<L: Source<Narrow>>(part: &Part<'_>, x: &Words) {
    // SAFETY: passed on to the caller.
    unsafe { all_panels::<L, Narrow>(part, x) }
}

/// # Safety
/// As [`all_panels`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn narrow_bytes<L: Integers>(part: &Part<'_>, x: &Words) {
    // SAFETY: passed on to the caller.
    unsafe { all_panels::<Bytes<L>, Narrow>(part, x) }
}

/// # Safety
/// No other thread computes these panels; the machine has what the vector needs.
#[inline(always)]
unsafe fn all_panels<L: Source<V>, V: Kernel>(part: &Part<'_>, x: &Words) {
    // SAFETY: passed on to the caller.
    unsafe {
        let mut room = V::room().take();
        room.weights.resize(CHUNK * lines::<L, V, 1>(), V::numbers(0));
        room.sums.resize(MOST_VECTORS * x.height(), V::float(0.0));
        let mut panel = part.panels.start;
        while panel < part.panels.end {
            panel += match (part.panels.end - panel) * V::PARTS {
                1 => panels::<L, V, 1>(part, panel, &mut room, x),
                4.. if V::PARTS == 1 => panels::<L, V, 4>(part, panel, &mut room, x),
                _ => panels::<L, V, 2>(part, panel, &mut room, x),
            };
        }
        V::room().set(room);
    }
}

/// What a thread works with, kept for its next part.
struct Room<V: Vector> {
    /// Blocks of some panels: codes, scales, minima.
    weights: Vec<V>,
    /// `[rows][vectors]`
    sums: Vec<V::Floats>,
}

impl<V: Vector> Default for Room<V> {
    fn default() -> Self {
        Self {
            weights: Vec::new(),
            sums: Vec::new(),
        }
    }
}

/// Vectors of a block that belong to `P` vectors of rows.
const fn lines<L: Source<V>, V: Vector, const P: usize>() -> usize {
    P * (L::WORDS + L::SCALES * (1 + L::BEGIN as usize) + L::MINIMA as usize)
}

/// The vector of a block with the scales of a half.
const fn scale<L: Source<V>, V: Vector, const P: usize>(half: usize) -> usize {
    P * (L::WORDS + half)
}

/// The vector with the minima.
const fn minimum<L: Source<V>, V: Vector, const P: usize>() -> usize {
    P * (L::WORDS + L::SCALES)
}

/// The vector with what the sums of a half begin with.
const fn begin<L: Source<V>, V: Vector, const P: usize>(half: usize) -> usize {
    P * (L::WORDS + L::SCALES + L::MINIMA as usize + half)
}

/// `P` vectors of rows, from `panel` on, times all rows of activations; gives back how many panels they are.
///
/// # Safety
/// As [`all_panels`].
#[inline(always)]
unsafe fn panels<L: Source<V>, V: Kernel, const P: usize>(
    part: &Part<'_>,
    panel: usize,
    room: &mut Room<V>,
    x: &Words,
) -> usize {
    let count = P / V::PARTS;
    let all = part.weight.cols().div_ceil(BLOCK);
    let chunk = all.div_ceil(all.div_ceil(CHUNK / P));
    // SAFETY: passed on to the caller.
    unsafe {
        let sums = &mut room.sums.as_chunks_mut::<P>().0[..x.height()];
        sums.fill([V::float(0.0); P]);
        for first in (0..all).step_by(chunk) {
            let blocks = first..all.min(first + chunk);
            let weights = &mut room.weights[..blocks.len() * lines::<L, V, P>()];
            for p in 0..P {
                unpack::<L, V, P>(part.weight.panel(panel + p / V::PARTS), p, blocks.clone(), weights);
            }
            let mut ahead: [&[Line]; P] = [&[]; P];
            for (p, ahead) in ahead.iter_mut().enumerate().take(count) {
                *ahead = next_codes(part, panel + p, count, &blocks);
            }
            let share = ahead[0].len().div_ceil(x.height().div_ceil(HEIGHT));
            for tile in x.tiles() {
                for lines in &mut ahead {
                    let now;
                    (now, *lines) = lines.split_at(share.min(lines.len()));
                    for line in now {
                        _mm_prefetch::<_MM_HINT_T1>(line.0.as_ptr().cast());
                    }
                }
                let last = blocks.end == all;
                if last {
                    ask::<V, P>(part, panel, &tile);
                }
                match tile.height {
                    4 => one_tile::<L, V, P, 4>(sums, weights, blocks.clone(), &tile),
                    8 => one_tile::<L, V, P, 8>(sums, weights, blocks.clone(), &tile),
                    _ => one_tile::<L, V, P, 12>(sums, weights, blocks.clone(), &tile),
                }
                if last {
                    store::<V, P>(part, panel, &tile, &sums[tile.first..]);
                }
            }
        }
    }
    count
}

/// The codes that are unpacked after some blocks: while those are multiplied, the memory is asked for these.
fn next_codes<'a>(part: &Part<'a>, panel: usize, panels: usize, blocks: &Range<usize>) -> &'a [Line] {
    let lines = part.weight.panel(panel).codes;
    let block = lines.len() / part.weight.cols().div_ceil(BLOCK);
    let (from, to) = (blocks.end * block, (blocks.end + blocks.len()) * block);
    if from < lines.len() {
        &lines[from..to.min(lines.len())]
    } else if panel + panels < part.panels.end {
        &part.weight.panel(panel + panels).codes[..blocks.len() * block]
    } else {
        &[]
    }
}

/// Unpacks some blocks of a panel, for vector `p` of `P`.
///
/// # Safety
/// The panel has these blocks; the machine has what the vector needs.
#[inline(always)]
unsafe fn unpack<L: Source<V>, V: Vector, const P: usize>(
    panel: Panel<'_>,
    p: usize,
    blocks: Range<usize>,
    out: &mut [V],
) {
    let row = p % V::PARTS * V::ROWS;
    for (block, out) in blocks.zip(out.chunks_exact_mut(lines::<L, V, P>())) {
        // SAFETY: the block is there, and a vector has room for as many floats.
        unsafe {
            let unpacked = L::unpack(panel, block, row, &mut out[p..], P);
            for half in 0..L::SCALES {
                V::store_floats((&raw mut out[scale::<L, V, P>(half) + p]).cast(), unpacked.scales[half]);
                if L::BEGIN {
                    out[begin::<L, V, P>(half) + p] = unpacked.begin[half];
                }
            }
            if L::MINIMA {
                V::store_floats((&raw mut out[minimum::<L, V, P>() + p]).cast(), unpacked.minimum);
            }
        }
    }
}

/// Some blocks of `P` vectors times a tile of `R` rows.
///
/// # Safety
/// The machine has what the vector needs.
#[inline(always)]
unsafe fn one_tile<L: Source<V>, V: Kernel, const P: usize, const R: usize>(
    sums: &mut [[V::Floats; P]],
    weights: &[V],
    blocks: Range<usize>,
    tile: &Tile<'_>,
) {
    let Some(sums) = sums[tile.first..].first_chunk_mut::<R>() else {
        unreachable!("as many rows as tiles have");
    };
    let size = lines::<L, V, P>();
    // Later on nothing checks that they are there.
    assert!(
        tile.height == R
            && weights.len() >= blocks.len() * size
            && tile.data.len() >= blocks.end * (L::WORDS + BESIDE) * R
    );
    for (i, block) in blocks.clone().enumerate() {
        // SAFETY: both have this block.
        unsafe {
            let weights = weights.as_ptr().add(i * size);
            let x = tile.data.as_ptr().add(block * (L::WORDS + BESIDE) * R);
            let sums = sums.as_mut_ptr().cast();
            // As many rows as the registers have room for.
            match (P * V::PARTS, R) {
                (4, 12) => {
                    V::block::<L, P, R, 6>(sums, weights, x, 0);
                    V::block::<L, P, R, 6>(sums, weights, x, 6);
                }
                (4, 8) => {
                    V::block::<L, P, R, 4>(sums, weights, x, 0);
                    V::block::<L, P, R, 4>(sums, weights, x, 4);
                }
                _ => V::block::<L, P, R, R>(sums, weights, x, 0),
            }
        }
    }
    for outlier in tile.outliers(blocks.clone()) {
        let block = outlier.block - blocks.start;
        // SAFETY: the block is there.
        unsafe { add_outlier::<L, V, P>(&mut sums[outlier.row], weights.as_ptr().add(block * size), outlier) };
    }
}

/// Asks for the places that [`store`] writes to.
///
/// # Safety
/// As [`all_panels`].
#[inline(always)]
unsafe fn ask<V: Vector, const P: usize>(part: &Part<'_>, panel: usize, tile: &Tile<'_>) {
    for row in 0..tile.rows {
        for p in 0..P / V::PARTS {
            let (to, _) = part.out.lanes(tile.first + row, panel + p);
            // SAFETY: an address is asked for, not read.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(to.cast()) };
        }
    }
}

/// Hands a tile's sums in.
///
/// # Safety
/// As [`all_panels`].
#[inline(always)]
unsafe fn store<V: Vector, const P: usize>(part: &Part<'_>, panel: usize, tile: &Tile<'_>, sums: &[[V::Floats; P]]) {
    for (i, sums) in sums.iter().enumerate().take(tile.rows) {
        for (p, sums) in sums.chunks_exact(V::PARTS).enumerate() {
            let (to, count) = part.out.lanes(tile.first + i, panel + p);
            // SAFETY: there is room for so many numbers, and the caller promises that nobody else writes there.
            unsafe {
                if count == PANEL {
                    for (part, sum) in sums.iter().enumerate() {
                        V::store_floats(to.add(part * V::ROWS), *sum);
                    }
                } else {
                    std::ptr::copy_nonoverlapping(sums.as_ptr().cast(), to, count);
                }
            }
        }
    }
}

/// Adds what the codes do not have.
///
/// # Safety
/// `weights` points to the vectors of a block; the machine has what the vector needs.
#[inline(always)]
unsafe fn add_outlier<L: Source<V>, V: Vector, const P: usize>(
    sums: &mut [V::Floats; P],
    weights: *const V,
    outlier: &Outlier,
) {
    let (word, below) = L::place(outlier.column);
    for (p, sum) in sums.iter_mut().enumerate() {
        // SAFETY: passed on to the caller.
        unsafe {
            let codes = V::cut(*weights.add(word * P + p), below, 32 - L::BITS);
            let scale = scale::<L, V, P>(word * L::SCALES / L::WORDS) + p;
            let factor = V::times(V::load_floats(weights.add(scale).cast()), V::float(outlier.number));
            *sum = V::fused(V::floats(codes), factor, *sum);
        }
    }
}

/// Adds a block's products with `Q` of the `R` rows of a tile, from `first` on.
///
/// # Safety
/// `weights` points to the vectors of a block, `x` to the words, steps and sums of one; the machine has what the vector needs.
#[inline(always)]
unsafe fn add_block<L: Source<V>, V: Vector, const P: usize, const R: usize, const Q: usize>(
    sums: *mut V::Floats,
    weights: *const V,
    x: *const i32,
    first: usize,
) {
    // SAFETY: passed on to the caller.
    unsafe {
        let steps = x.add(L::WORDS * R + first).cast::<f32>();
        for half in 0..L::SCALES {
            let words = L::WORDS / L::SCALES;
            let mut products = [[V::numbers(0); P]; Q];
            // Sums that are not numbers yet have it added later.
            if L::BEGIN && V::PARTS == 1 {
                for p in 0..P {
                    let begin = *weights.add(begin::<L, V, P>(half) + p);
                    products.iter_mut().for_each(|products| products[p] = begin);
                }
            }
            for word in half * words..(half + 1) * words {
                let mut codes = [V::numbers(0); P];
                for (p, codes) in codes.iter_mut().enumerate() {
                    *codes = *weights.add(word * P + p);
                }
                let ahead = x.wrapping_add(AHEAD * (L::WORDS + BESIDE) * R + word * R + first);
                _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
                for (i, products) in products.iter_mut().enumerate() {
                    let x = V::numbers(*x.add(word * R + first + i));
                    for (product, codes) in products.iter_mut().zip(&codes) {
                        *product = L::dot(*product, *codes, x);
                    }
                }
            }
            let last = half + 1 == L::SCALES;
            let mut scales = [V::float(0.0); P];
            let mut minima = [V::float(0.0); P];
            let mut begins = [V::numbers(0); P];
            for p in 0..P {
                scales[p] = V::load_floats(weights.add(scale::<L, V, P>(half) + p).cast());
                if L::MINIMA && last {
                    minima[p] = V::load_floats(weights.add(minimum::<L, V, P>() + p).cast());
                }
                if L::BEGIN && V::PARTS > 1 {
                    begins[p] = *weights.add(begin::<L, V, P>(half) + p);
                }
            }
            for (i, products) in products.iter().enumerate() {
                let step = V::float(*steps.add(i));
                let total = V::float(*steps.add(R + i));
                for (p, product) in products.iter().enumerate() {
                    let sum = sums.add((first + i) * P + p);
                    let mut product = L::sums(*product);
                    if L::BEGIN && V::PARTS > 1 {
                        product = V::add(product, begins[p]);
                    }
                    let mut new = V::fused(V::floats(product), V::times(scales[p], step), *sum);
                    if L::MINIMA && last {
                        new = V::fused(minima[p], total, new);
                    }
                    *sum = new;
                }
            }
        }
    }
}

/// What 16-bit codes have in common.
macro_rules! of_16_bits {
    ($vector:ident) => {
        const WORDS: usize = crate::words::PAIRS;
        const BITS: u32 = 16;

        #[inline(always)]
        unsafe fn dot(sum: $vector, codes: $vector, x: $vector) -> $vector {
            // SAFETY: passed on to the caller.
            unsafe { $vector::dot_words(sum, codes, x) }
        }

        #[inline(always)]
        unsafe fn sums(sums: $vector) -> $vector {
            sums
        }

        fn place(column: usize) -> (usize, u32) {
            (column / 4 * 2 + column % 2, 16 * (1 - column as u32 % 4 / 2))
        }
    };
}
use of_16_bits;
