//! One task: the queries of a unit over the rows of a split.

#![allow(unsafe_code)] // The loops of `inner` and `softmax` over a thread's own memory, and results that no other writes.

use super::bytes::{self, CHUNK};
use super::inner::{self, Ahead, Lines, Place, Queries, Scaled, Turned};
#[cfg(target_arch = "x86_64")]
use super::matrix;
use super::plan::{Plan, Unit};
use super::planes::{Raw, Rows, Side};
use super::simd::{Op, Simd};
use super::softmax::{Cap, Softmax, Weigh};
use super::tile::{Cursor, ROWS, Tile};
use super::unpack::{F32, Factors, Unpack, format, is_float};
use kvlab_core::EMPTY_LSE;
#[cfg(target_arch = "x86_64")]
use kvlab_cpu::tiles::{BLOCK, Tiles};
use kvlab_store::codec::{Scales, hadamard};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Scales of rows that have none.
static ONES: [f32; ROWS] = [1.0; ROWS];

/// What all tasks read, and where their results go.
pub struct Job {
    pub plan: Plan,
    /// `[tokens, query heads, key]`, f32.
    pub q: Raw,
    pub scale: f32,
    pub softcap: Option<f32>,
    pub parts: Vec<Option<Rows>>,
    pub sinks: Option<Vec<f32>>,
    pub results: Results,
    /// The next task that nobody does yet.
    pub next: AtomicUsize,
}

/// Memory for results. Every task writes its own part of it.
pub struct Results {
    /// `[tokens, query heads, value]`.
    pub out: *mut f32,
    /// `[tokens, query heads]`.
    pub lse: Option<*mut f32>,
    /// Results of splits.
    pub partials: *mut f32,
}

// SAFETY: tasks write to places of their own; the last split of a unit reads what the others wrote, after the count of
// splits that are left said so.
unsafe impl Sync for Job {}

/// A thread's memory, cut up.
struct Memory {
    /// Queries as they are and rotated, `[heads, queries, key_stride]`.
    q: [*mut f32; 2],
    scores: *mut f32,
    rows: *mut f32,
    columns: *mut f32,
    /// `[heads, queries, value_stride]`.
    sums: *mut f32,
    factors: [[*mut f32; 2]; 2],
    /// The queries as whole numbers, `[heads, queries, chunks]`, and the weights of a tile, `[queries, groups]`.
    chunks: *mut bytes::Chunk,
    weights: *mut bytes::Weights,
    /// A chunk of the values of a tile, for [`bytes`].
    fours: *mut bytes::Fours,
    /// As matrices: queries as they are and rotated, keys, values, weights.
    matrices: [*mut f32; 5],
}

impl Memory {
    fn new(plan: &Plan, memory: &mut Vec<f32>) -> Self {
        if memory.len() < plan.room.thread() {
            memory.resize(plan.room.thread(), 0.0);
        }
        let mut at = memory.as_mut_ptr();
        // A line of the cache begins each part.
        at = at.wrapping_add(at.align_offset(64));
        let mut take = |n: usize| {
            let part = at;
            at = at.wrapping_add(n.next_multiple_of(16));
            part
        };
        let room = plan.room;
        Self {
            q: room.queries.map(&mut take),
            factors: room.factors.map(|n| [take(n), take(n)]),
            chunks: take(room.chunks).cast(),
            weights: take(room.weights).cast(),
            fours: take(room.fours).cast(),
            matrices: room.matrices.map(&mut take),
            scores: take(room.scores),
            rows: take(room.rows),
            columns: take(room.columns),
            sums: take(room.sums),
        }
    }
}

/// Does tasks until there are none left.
///
/// # Safety
/// The processor has `S`, and [`Results`] have room.
pub unsafe fn work<S: Simd>(job: &Job, memory: &mut Vec<f32>) {
    let memory = Memory::new(&job.plan, memory);
    let mut states = Vec::new();
    #[cfg(target_arch = "x86_64")]
    let mut registers = None;
    while let Some(&(unit, split)) = job.plan.tasks.get(job.next.fetch_add(1, Ordering::Relaxed)) {
        let unit = &job.plan.units[unit];
        // SAFETY: there are matrices only with AMX.
        #[cfg(target_arch = "x86_64")]
        let registers = unit
            .matrix
            .then(|| &*registers.get_or_insert_with(|| unsafe { Tiles::new() }));
        let mut task = Task {
            job,
            unit,
            memory: &memory,
            states: &mut states,
            rotated: None,
            #[cfg(target_arch = "x86_64")]
            registers,
        };
        // SAFETY: the caller's promise.
        unsafe {
            task.begin();
            task.attend::<S>(split);
            task.end(split);
        }
    }
}

struct Task<'a> {
    job: &'a Job,
    unit: &'a Unit,
    memory: &'a Memory,
    /// `[heads, queries]`.
    states: &'a mut Vec<Softmax>,
    /// How many numbers of the sums are rotated together.
    rotated: Option<usize>,
    /// For matrices.
    #[cfg(target_arch = "x86_64")]
    registers: Option<&'a Tiles>,
}

impl Task<'_> {
    /// Query number `i` of a head: its token and its query head.
    fn query(&self, head: usize, i: usize) -> (usize, usize) {
        let group = self.job.plan.shape.group;
        (self.unit.tokens.start + i / group, head * group + i % group)
    }

    /// Empties the sums, and brings the queries into order.
    unsafe fn begin(&mut self) {
        let (shape, unit) = (self.job.plan.shape, self.unit);
        let all = unit.heads.len() * unit.queries;
        self.states.clear();
        self.states.resize(all, Softmax::EMPTY);
        // With powers of two instead of e; a soft cap comes in between.
        let scale = match self.job.softcap {
            Some(cap) => self.job.scale / cap,
            None => self.job.scale * std::f32::consts::LOG2_E,
        };
        let rotated = self.job.parts.iter().flatten().find_map(|rows| rows.key.rotated);
        // SAFETY: the memory has room for all queries and sums of a unit, and the query tensor has that shape.
        unsafe {
            self.memory.sums.write_bytes(0, self.job.plan.room.sums);
            for i in 0..all {
                let (token, head) = self.query(unit.heads.start + i / unit.queries, i % unit.queries);
                let from = std::slice::from_raw_parts(self.job.q.at(token, head).cast::<f32>(), shape.key);
                let to = std::slice::from_raw_parts_mut(self.memory.q[0].add(i * shape.key_stride), shape.key_stride);
                to[shape.key..].fill(0.0);
                to.iter_mut().zip(from).for_each(|(to, x)| *to = x * scale);
                if let Some(n) = rotated {
                    let other = self.memory.q[1].add(i * shape.key_stride);
                    let other = std::slice::from_raw_parts_mut(other, shape.key_stride);
                    other.copy_from_slice(to);
                    hadamard::rotate_blocks(&mut other[..shape.key], n);
                }
            }
            #[cfg(target_arch = "x86_64")]
            if self.registers.is_some() {
                for i in 0..1 + usize::from(rotated.is_some()) {
                    let q = Queries {
                        first: self.memory.q[i],
                        stride: shape.key_stride,
                        count: all,
                    };
                    matrix::left(q, shape.key, self.memory.matrices[i]);
                }
            }
            // A layer has one format of packed keys. Those with scales by channel want the query anew for each tile.
            let mut parts = self.job.parts.iter().zip(&self.job.plan.bytes);
            let packed = parts.find_map(|(rows, bytes)| rows.as_ref().zip(bytes[0]));
            let packed = packed.filter(|_| !unit.matrix);
            if let Some((rows, kind)) = packed.filter(|(_, kind)| !kind.by_channel()) {
                let q = Queries {
                    first: self.memory.q[usize::from(rows.key.rotated.is_some())],
                    stride: shape.key_stride,
                    count: all,
                };
                bytes::queries(kind, q, shape.key, None, self.memory.chunks);
            }
        }
    }

    unsafe fn attend<S: Simd>(&mut self, split: usize) {
        let plan = &self.job.plan;
        let mut cursor = Cursor::new(&self.unit.pieces, self.unit.split(split), plan.tile, &plan.blocks);
        let (mut tile, mut next) = (&mut Tile::new(), &mut Tile::new());
        let mut unpacked = [[0; ROWS]; 2];
        // SAFETY: the caller's promise.
        unsafe { self.fill::<S>(&mut cursor, tile) };
        while tile.len > 0 {
            // SAFETY: as above.
            unsafe { self.fill::<S>(&mut cursor, next) };
            if let Some(rows) = &self.job.parts[tile.part] {
                self.turn(rows.rotated_values());
                // SAFETY: the caller's promise; `Rows` has looked at the slots.
                unsafe { self.tile::<S>(rows, tile, next, &mut unpacked) };
            }
            (tile, next) = (next, tile);
        }
    }

    /// # Safety
    /// The processor has `S`.
    unsafe fn fill<S: Simd>(&self, cursor: &mut Cursor<'_>, tile: &mut Tile) {
        let parts = &self.job.parts;
        // SAFETY: the caller's promise.
        unsafe { S::call(Fill { cursor, tile, parts }) }
    }

    /// Turns the sums so far, if the next rows are rotated and they are not, or the other way round.
    fn turn(&mut self, rotated: Option<usize>) {
        if self.rotated == rotated {
            return;
        }
        let shape = self.job.plan.shape;
        // The matrix is its own inverse.
        if let Some(n) = self.rotated.or(rotated) {
            for i in 0..self.states.len() {
                // SAFETY: the memory has room for the sums of every query.
                let sums = unsafe {
                    std::slice::from_raw_parts_mut(self.memory.sums.add(i * shape.value_stride), shape.value)
                };
                hadamard::rotate_blocks(sums, n);
            }
        }
        self.rotated = rotated;
    }

    unsafe fn tile<S: Simd>(&mut self, rows: &Rows, tile: &Tile, next: &Tile, unpacked: &mut [[usize; ROWS]; 2]) {
        let (plan, unit, memory) = (&self.job.plan, self.unit, self.memory);
        let (shape, queries) = (plan.shape, unit.queries);
        let next_rows = self.job.parts[next.part].as_ref().filter(|_| next.len > 0);
        let factors = memory.factors.map(|[scale, zero]| Factors {
            scale,
            zero,
            first: unit.heads.start,
            heads: unit.heads.len(),
        });
        // SAFETY: the caller's promise; the memory was measured for these.
        unsafe {
            // A side whose factors are not those of the next tile asks for what it does not need.
            let soon = &next.slots[..if next_rows.is_some() && next.part == tile.part {
                next.len
            } else {
                0
            }];
            // Rows that are multiplied as bytes know by themselves which code stands for 0.
            let zeros = plan.bytes[tile.part].map(|kind| unit.matrix || kind.is_none());
            factors[0].read::<S>(&rows.key, tile, soon, zeros[0]);
            if let Some(value) = &rows.value {
                factors[1].read::<S>(value, tile, soon, zeros[1]);
            }
            let share = Ahead::share(unit.heads.len());
            for (i, head) in unit.heads.clone().enumerate() {
                let first = |memory: *mut f32, stride| Queries {
                    first: memory.add(i * queries * stride),
                    stride,
                    count: queries,
                };
                let q = first(memory.q[usize::from(rows.key.rotated.is_some())], shape.key_stride);
                let sums = first(memory.sums, shape.value_stride);
                let ahead = |side: Option<&Side>, number: usize| match side {
                    None => Ahead::NOTHING,
                    Some(side) => Ahead {
                        place: Place {
                            base: side.codes.head(unit.heads.start),
                            offsets: &next.offsets[number],
                        },
                        len: next.len,
                        width: unit.heads.len() * side.codes.width(),
                        head: i,
                        share,
                    },
                };
                let [keys_unpacked, values_unpacked] = &mut *unpacked;
                #[cfg(target_arch = "x86_64")]
                if let Some(registers) = self.registers {
                    let [plain, rotated, keys_to, values_to, weights_to] = memory.matrices;
                    let queries_from = match rows.key.rotated {
                        Some(_) => rotated,
                        None => plain,
                    };
                    let scores = Queries {
                        first: memory.scores,
                        stride: ROWS,
                        count: queries,
                    };
                    let blocks = tile.len.div_ceil(BLOCK);
                    let keys = Lines {
                        ahead: ahead(next_rows.map(|rows| &rows.key), 0),
                        ..self.lines::<S>((&rows.key, 0), tile, head, &factors[0], keys_unpacked)
                    };
                    matrix::keys(keys, keys_to);
                    let sides = [queries_from.cast_const(), keys_to];
                    matrix::multiply(registers, sides, shape.key.div_ceil(BLOCK), blocks, scores, false);
                    self.weigh::<S>(tile, i * queries, sums);
                    let soon = ahead(next_rows.and_then(|rows| rows.value.as_ref()), 1);
                    let values = self.value_lines::<S>(rows, keys, soon, tile, head, &factors[1], values_unpacked);
                    matrix::values(values, values_to);
                    matrix::left(scores, tile.len, weights_to);
                    let sides = [weights_to.cast_const(), values_to];
                    matrix::multiply(registers, sides, blocks, matrix::width(shape.value) / BLOCK, sums, true);
                    continue;
                }
                let [key_kind, value_kind] = plan.bytes[tile.part];
                let mut keys = match key_kind {
                    Some(_) => packed(&rows.key, tile, 0, head, &factors[0]),
                    None => self.lines::<S>((&rows.key, 0), tile, head, &factors[0], keys_unpacked),
                };
                keys.ahead = ahead(next_rows.map(|rows| &rows.key), 0);
                match key_kind {
                    Some(kind) => {
                        let chunks = memory.chunks.add(i * queries * (shape.key / CHUNK));
                        if let Scales::Across(block) = rows.key.scales {
                            factors[0].read_block::<S>(&rows.key, tile.slots[0] / block, head);
                            let channels = [factors[0].scale, factors[0].zero].map(<*mut f32>::cast_const);
                            bytes::queries(kind, q, shape.key, Some(channels), chunks);
                            // The query has the scales in it: for the rows, all are 1.
                            keys.scaled = Scaled {
                                scale: ONES.as_ptr(),
                                zero: ONES.as_ptr(),
                                group: shape.key / 16,
                            };
                        }
                        bytes::scores(kind, keys, chunks, queries, shape.key, memory.scores);
                    }
                    None => self.scores::<S>(keys, q),
                }
                self.weigh::<S>(tile, i * queries, sums);
                let (side, number) = match &rows.value {
                    Some(value) => (value, 1),
                    None => (&rows.key, 0),
                };
                let soon = next_rows.and_then(|rows| rows.value.as_ref());
                if let Some(kind) = value_kind {
                    let groups = shape.value.div_ceil(side.group());
                    let lines = packed(side, tile, number, head, &factors[number]);
                    let ahead = ahead(soon, 1);
                    bytes::weights(
                        kind,
                        lines.scaled,
                        tile.len,
                        groups,
                        memory.scores,
                        queries,
                        memory.weights,
                    );
                    bytes::values(
                        kind,
                        Lines { ahead, ..lines },
                        memory.weights,
                        side.group(),
                        shape.value,
                        sums,
                        memory.fours,
                    );
                    continue;
                }
                let soon = ahead(soon, 1);
                let values = self.value_lines::<S>(rows, keys, soon, tile, head, &factors[1], values_unpacked);
                inner::add_rows::<S>(values, memory.scores, sums);
            }
        }
    }

    /// Where the values of a head lie: with the keys, or where [`lines`](Self::lines) puts them.
    #[expect(clippy::too_many_arguments, reason = "what lines takes, and two more")]
    unsafe fn value_lines<'l, S: Simd>(
        &self,
        rows: &Rows,
        keys: Lines<'l>,
        ahead: Ahead<'l>,
        tile: &'l Tile,
        head: usize,
        factors: &Factors,
        unpacked: &'l mut [usize; ROWS],
    ) -> Lines<'l> {
        match &rows.value {
            None => Lines {
                vectors: self.job.plan.shape.value.div_ceil(S::LANES),
                ahead: Ahead::NOTHING,
                ..keys
            },
            // SAFETY: the caller's promise.
            Some(value) => Lines {
                ahead,
                ..unsafe { self.lines::<S>((value, 1), tile, head, factors, unpacked) }
            },
        }
    }

    /// Where the rows of a head lie: in the plane, if the loops can read them there, or unpacked. The side is that of the
    /// keys (0) or of the values (1).
    unsafe fn lines<'l, S: Simd>(
        &self,
        (side, number): (&Side, usize),
        tile: &'l Tile,
        head: usize,
        factors: &Factors,
        unpacked: &'l mut [usize; ROWS],
    ) -> Lines<'l> {
        let vectors = side.dim.div_ceil(S::LANES);
        let lines = |format, base, offsets| Lines {
            format,
            place: Place { base, offsets },
            len: tile.len,
            vectors,
            scaled: Scaled::NOT,
            ahead: Ahead::NOTHING,
        };
        let format = format(side.code);
        let columns = number == 0 && self.job.plan.columns && !self.unit.matrix;
        let passes = self.unit.queries.div_ceil(inner::most::<S>(format));
        let in_place = match side.scales {
            Scales::None => is_float(format) && (format == F32 || columns || self.unit.matrix || passes <= 2),
            Scales::Along(_) => (columns || passes <= 2) && side.group().is_multiple_of(S::LANES),
            Scales::Across(_) => false,
        };
        if in_place && side.dim.is_multiple_of(S::LANES) {
            let direct = lines(format, side.codes.head(head), &tile.offsets[number]);
            if is_float(format) {
                return direct;
            }
            let scaled = scaled(side, head, factors, S::LANES);
            return Lines { scaled, ..direct };
        }
        let (to, stride) = (self.memory.rows, side.dim.next_multiple_of(16));
        let unpack = Unpack {
            side,
            tile,
            head,
            factors,
            to,
            stride,
        };
        // SAFETY: the caller's promise; there is room for a tile.
        unsafe { unpack.call::<S>() };
        for (i, offset) in unpacked.iter_mut().enumerate() {
            *offset = i.min(tile.len.saturating_sub(1)) * stride * size_of::<f32>();
        }
        lines(F32, to.cast_const().cast(), unpacked)
    }

    /// Scores of all queries of a head.
    unsafe fn scores<S: Simd>(&self, keys: Lines<'_>, q: Queries) {
        let (plan, memory) = (&self.job.plan, self.memory);
        // SAFETY: the caller's promise; the memory was measured for these.
        unsafe {
            if !plan.columns {
                return inner::scores::<S>(keys, q, memory.scores);
            }
            inner::columns::<S>(keys, memory.columns);
            let turned = Turned {
                columns: memory.columns,
                rows: keys.len,
                dim: plan.shape.key,
            };
            inner::column_scores::<S>(turned, q, memory.scores);
        }
    }

    /// Scores to weights: soft cap, mask, softmax. `first` is the head's first query among those of all heads.
    unsafe fn weigh<S: Simd>(&mut self, tile: &Tile, first: usize, sums: Queries) {
        let shape = self.job.plan.shape;
        let sights = &self.job.plan.sights[tile.part];
        let (begin, end) = tile.ends();
        for i in 0..self.unit.queries {
            // SAFETY: the memory has ROWS scores and the sums of each query.
            unsafe {
                let scores = self.memory.scores.add(i * ROWS);
                if let Some(cap) = self.job.softcap {
                    let rows = tile.len;
                    S::call(Cap { scores, rows, cap });
                }
                let all = std::slice::from_raw_parts_mut(scores, ROWS);
                all[tile.len..tile.len.next_multiple_of(16)].fill(f32::NEG_INFINITY);
                let sight = &sights[self.unit.tokens.start + i / shape.group];
                if !sight.sees_all(begin, end) {
                    for (score, &position) in all.iter_mut().zip(&tile.positions[..tile.len]) {
                        if !sight.sees(position) {
                            *score = f32::NEG_INFINITY;
                        }
                    }
                }
            }
        }
        // SAFETY: as above.
        unsafe {
            S::call(Weigh {
                scores: self.memory.scores,
                rows: tile.len,
                states: &mut self.states[first..first + self.unit.queries],
                sums,
                vectors: shape.value.div_ceil(S::LANES),
            });
        }
    }

    /// Hands the results in; the last split of a unit puts all of them together.
    unsafe fn end(&mut self, split: usize) {
        self.turn(None);
        let (plan, unit) = (&self.job.plan, self.unit);
        if unit.splits == 1 {
            // SAFETY: the sums are this thread's.
            return unsafe { self.write() };
        }
        // SAFETY: every split has room of its own among the partial results, and the last one, which reads them all,
        // has seen that the others are done.
        unsafe {
            self.partial(split)
                .copy_from_nonoverlapping(self.memory.sums, self.states.len() * plan.shape.value_stride);
            let states = self.partial(split).add(self.states.len() * plan.shape.value_stride);
            states
                .cast::<Softmax>()
                .copy_from_nonoverlapping(self.states.as_ptr(), self.states.len());
            if unit.left.fetch_sub(1, Ordering::AcqRel) > 1 {
                return;
            }
            for other in (0..unit.splits).filter(|&other| other != split) {
                self.merge(self.partial(other));
            }
            self.write();
        }
    }

    fn partial(&self, split: usize) -> *mut f32 {
        let at = (self.unit.partial + split) * self.job.plan.room.partial;
        self.job.results.partials.wrapping_add(at)
    }

    unsafe fn merge(&mut self, other: *const f32) {
        let stride = self.job.plan.shape.value_stride;
        // SAFETY: a partial result has the sums and then the states of all queries.
        unsafe {
            let states = other.add(self.states.len() * stride).cast::<Softmax>();
            for (i, state) in self.states.iter_mut().enumerate() {
                let (merged, [own, share]) = state.merge(states.add(i).read());
                *state = merged;
                let sums = std::slice::from_raw_parts_mut(self.memory.sums.add(i * stride), stride);
                let other = std::slice::from_raw_parts(other.add(i * stride), stride);
                let pairs = sums.iter_mut().zip(other);
                pairs.for_each(|(sum, x)| *sum = *sum * own + x * share);
            }
        }
    }

    /// Divides by the sum of the weights.
    unsafe fn write(&self) {
        let (shape, unit, results) = (self.job.plan.shape, self.unit, &self.job.results);
        for (i, &state) in self.states.iter().enumerate() {
            let (token, head) = self.query(unit.heads.start + i / unit.queries, i % unit.queries);
            // A learned sink is one more score, without a value.
            let sink = self.job.sinks.as_ref().map_or(Softmax::EMPTY, |sinks| Softmax {
                max: sinks[head] * std::f32::consts::LOG2_E,
                sum: 1.0,
            });
            let (state, [share, _]) = state.merge(sink);
            let nothing = state.max == f32::NEG_INFINITY && state.sum == 0.0;
            let factor = if nothing { 0.0 } else { share / state.sum };
            let at = token * shape.heads * shape.group + head;
            // SAFETY: this task alone writes the results of its queries, and they have this shape.
            unsafe {
                let sums = std::slice::from_raw_parts(self.memory.sums.add(i * shape.value_stride), shape.value);
                let out = std::slice::from_raw_parts_mut(results.out.add(at * shape.value), shape.value);
                out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum * factor);
                if let Some(lse) = results.lse {
                    lse.add(at).write(match nothing {
                        true => EMPTY_LSE,
                        false => (state.max + state.sum.log2()) * std::f32::consts::LN_2,
                    });
                }
            }
        }
    }
}

/// The next rows, and where they lie.
struct Fill<'a, 'c> {
    cursor: &'a mut Cursor<'c>,
    tile: &'a mut Tile,
    parts: &'a [Option<Rows>],
}

impl Op for Fill<'_, '_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        self.cursor.fill(self.tile);
        if let Some(rows) = &self.parts[self.tile.part] {
            self.tile.locate(rows);
        }
    }
}

/// The scales of a head.
fn scaled(side: &Side, head: usize, factors: &Factors, lanes: usize) -> Scaled {
    let [scale, zero] = factors.of(side, head).map(<*mut f32>::cast_const);
    Scaled {
        scale,
        zero,
        group: side.group() / lanes,
    }
}

/// The rows of a head as they are packed, for [`bytes`].
fn packed<'l>(side: &Side, tile: &'l Tile, number: usize, head: usize, factors: &Factors) -> Lines<'l> {
    Lines {
        format: format(side.code),
        place: Place {
            base: side.codes.head(head),
            offsets: &tile.offsets[number],
        },
        len: tile.len,
        vectors: 0,
        scaled: scaled(side, head, factors, 16),
        ahead: Ahead::NOTHING,
    }
}
