//! Who does what: the queries cut into units, and the rows of a unit into splits that run at the same time and are put
//! together at the end (Flash-Decoding; Dao et al. 2023).

use super::bytes::{CHUNK, CHUNK_ROOM, FOURS_ROOM, GROUP, Kind, WEIGHTS_ROOM};
use super::matrix;
use super::sight::Sight;
use super::tile::{Piece, ROWS};
use super::unpack::Factors;
use kvlab_core::{Bytes, Value};
use kvlab_cpu::Isa;
use kvlab_store::codec::{Code, Packing, Scales};
use kvlab_store::{Input, Part};
use std::ops::Range;
use std::sync::atomic::AtomicUsize;

/// Queries of a unit of a long chunk.
const QUERIES: usize = 120;

/// The same where they meet rows as matrices: the more of them, the less it counts that rows are unpacked.
const MATRIX_QUERIES: usize = 512;

/// From so many queries on, unpacking rows of codes once costs less than multiplying bytes for each query does.
const MANY: usize = 40;

/// Up to so many queries for each head, a unit has all heads: then the rows of a slot are read where they lie together.
const FEW: usize = 16;

/// Fewer rows than this are not worth a split.
const LEAST_ROWS: usize = 128;

/// Multiplications that are not worth waking a thread for.
const LITTLE: usize = 100_000;

/// Sizes that every loop needs.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub heads: usize,
    /// Query heads for each head.
    pub group: usize,
    pub key: usize,
    pub value: usize,
    /// The same, rounded up to whole vectors.
    pub key_stride: usize,
    pub value_stride: usize,
}

impl Shape {
    fn new(input: &Input<'_>, isa: Isa) -> Self {
        let (key, value) = (input.row.key, input.row.value_dim());
        Self {
            heads: input.row.heads,
            group: input.query.q.dims()[1] / input.row.heads.max(1),
            key,
            value,
            key_stride: key.next_multiple_of(16),
            value_stride: match isa >= Isa::Amx {
                true => matrix::width(value),
                false => value.next_multiple_of(16),
            },
        }
    }
}

/// Queries that meet the same rows.
#[derive(Debug)]
pub struct Unit {
    /// Tokens of the step.
    pub tokens: Range<usize>,
    pub heads: Range<usize>,
    /// Queries of each head: tokens times query heads.
    pub queries: usize,
    /// Whether they and the rows are multiplied as matrices: `cpu::matrix`.
    pub matrix: bool,
    pub pieces: Vec<Piece>,
    pub rows: usize,
    pub splits: usize,
    /// The first of its splits among all partial results.
    pub partial: usize,
    /// Splits that are not done.
    pub left: AtomicUsize,
}

/// See the module.
pub struct Plan {
    pub shape: Shape,
    /// For each part and token.
    pub sights: Vec<Vec<Sight>>,
    pub units: Vec<Unit>,
    /// Unit and split, those that take longest first.
    pub tasks: Vec<(usize, usize)>,
    pub threads: usize,
    /// Rows of a tile.
    pub tile: usize,
    /// Whether rows become columns before they meet the queries: dearer, and pays where many do.
    pub columns: bool,
    /// For each part, how its keys and its values are multiplied as bytes, if they are.
    pub bytes: Vec<[Option<Kind>; 2]>,
    /// For each part, the slots that share scales of their keys: see [`Cursor`](super::tile::Cursor).
    pub blocks: Vec<usize>,
    pub room: Room,
}

/// How many f32 numbers a thread needs for what.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    /// As they are, and rotated.
    pub queries: [usize; 2],
    pub scores: usize,
    pub rows: usize,
    pub columns: usize,
    pub sums: usize,
    pub factors: [usize; 2],
    /// Queries as whole numbers, the weights of rows, and values four rows at a time: `cpu::bytes`.
    pub chunks: usize,
    pub weights: usize,
    pub fours: usize,
    /// Matrices: queries twice, keys, values, and the weights of rows.
    pub matrices: [usize; 5],
    /// Of all threads: results of splits.
    pub partials: usize,
    /// Of one split.
    pub partial: usize,
}

impl Room {
    /// Numbers of a thread: two for scales and zero points.
    pub fn thread(&self) -> usize {
        let parts = [
            self.queries[0],
            self.queries[1],
            self.scores,
            self.rows,
            self.columns,
            self.sums,
            2 * self.factors[0],
            2 * self.factors[1],
            self.chunks,
            self.weights,
            self.fours,
        ];
        parts.iter().chain(&self.matrices).map(|n| n + 64).sum()
    }
}

impl Plan {
    /// For so many threads with these instructions.
    pub fn new(input: &Input<'_>, threads: usize, isa: Isa) -> Self {
        let shape = Shape::new(input, isa);
        let sights = sights(input);
        let mut units: Vec<_> = (0..input.chunks.len())
            .flat_map(|chunk| units(input, shape, &sights, chunk, isa))
            .collect();
        let cost = |unit: &Unit| unit.rows * unit.queries * unit.heads.len();
        let total: usize = units.iter().map(cost).sum();
        let threads = if total * (shape.key + shape.value) < LITTLE {
            1
        } else {
            threads
        };
        let few = threads > 1 && units.len() < 3 * threads;
        let share = total.div_ceil(2 * threads).max(1);
        let mut partials = 0;
        for unit in &mut units {
            if few {
                unit.splits = cost(unit).div_ceil(share).min(unit.rows / LEAST_ROWS).max(1);
            }
            *unit.left.get_mut() = unit.splits;
            unit.partial = partials;
            partials += if unit.splits > 1 { unit.splits } else { 0 };
        }
        let mut order: Vec<_> = (0..units.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(cost(&units[i]) / units[i].splits));
        let tasks = order
            .into_iter()
            .flat_map(|i| (0..units[i].splits).map(move |split| (i, split)));
        let tasks: Vec<_> = tasks.collect();
        let threads = threads.min(tasks.len().max(1));
        let queries = units.iter().map(|unit| unit.queries).max().unwrap_or(0);
        let columns = 15 * queries > 2 * shape.key;
        let bytes = isa >= Isa::Avx512 && !(columns && queries >= MANY);
        let bytes: Vec<_> = input.parts.iter().map(|part| by_bytes(input, part, bytes)).collect();
        // Rows that are unpacked stay in the first cache; where they are not, the weights of a tile are cheaper by the dozen.
        let tile = match shape.key.max(shape.value) {
            ..=128 => ROWS,
            _ if bytes.iter().any(|sides| sides.iter().all(Option::is_some)) => ROWS,
            129..=256 => 32,
            _ if columns => 32,
            _ => 16,
        };
        let mut plan = Self {
            shape,
            sights,
            units,
            tasks,
            threads,
            tile,
            columns,
            blocks: input
                .parts
                .iter()
                .zip(&bytes)
                .map(|(part, bytes)| block(part, bytes[0].is_some()))
                .collect(),
            bytes,
            room: Room::default(),
        };
        plan.room = plan.rooms(input, partials);
        plan
    }

    fn rooms(&self, input: &Input<'_>, partials: usize) -> Room {
        let shape = self.shape;
        let all = |unit: &Unit| unit.queries * unit.heads.len();
        let matrices = self.units.iter().any(|unit| unit.matrix);
        let all = |unit: &Unit| match matrices {
            true => matrix::padded(all(unit)),
            false => all(unit),
        };
        let queries = self.units.iter().map(all).max().unwrap_or(0);
        let heads = self.units.iter().map(|unit| unit.heads.len()).max().unwrap_or(0);
        let most = self.units.iter().map(|unit| unit.queries).max().unwrap_or(0);
        let most = if matrices { queries } else { most };
        let any = |side: usize| self.bytes.iter().any(|bytes| bytes[side].is_some());
        let factors = |i: usize, dim: usize| {
            let packings = input.parts.iter().filter_map(|part| part.codecs[i].packing());
            let rooms = packings.map(|packing: Packing| Factors::room(packing.scales, dim, heads));
            rooms.max().unwrap_or(0)
        };
        let own = match input.row.value {
            Value::Own(dim) => factors(1, dim),
            Value::PrefixOfKey(_) => 0,
        };
        // Queries meet rotated keys rotated.
        let turned = input
            .parts
            .iter()
            .any(|part| part.codecs[0].packing().is_some_and(|packing| packing.rotate));
        let both = |plain: usize| [plain, if turned { plain } else { 0 }];
        // Largest score and sum of weights, and the sums of rows.
        let partial = queries * (2 + shape.value_stride);
        Room {
            queries: both(queries * shape.key_stride),
            scores: most * ROWS,
            rows: self.tile * shape.key_stride.max(shape.value_stride),
            columns: if self.columns { ROWS * shape.key_stride } else { 0 },
            sums: queries * shape.value_stride,
            factors: [factors(0, shape.key), own],
            chunks: if any(0) {
                queries * shape.key.div_ceil(CHUNK) * CHUNK_ROOM + 16
            } else {
                0
            },
            weights: if any(1) {
                most * shape.value.div_ceil(GROUP) * WEIGHTS_ROOM + 16
            } else {
                0
            },
            fours: if any(1) { FOURS_ROOM + 16 } else { 0 },
            matrices: match matrices {
                true => {
                    let [plain, keys, values, weights] = matrix::rooms(queries, shape.key, shape.value);
                    let [plain, rotated] = both(plain);
                    [plain, rotated, keys, values, weights]
                }
                false => [0; 5],
            },
            partials: partials * partial,
            partial,
        }
    }

    /// What all threads hold.
    pub fn bytes(&self) -> Bytes {
        Bytes(((self.threads * self.room.thread() + self.room.partials) * size_of::<f32>()) as u64)
    }
}

impl Unit {
    /// The rows of a split.
    pub fn split(&self, split: usize) -> Range<usize> {
        // Whole tiles, but for the last one.
        let cut = |i: usize| match i == self.splits {
            true => self.rows,
            false => (self.rows * i / self.splits).next_multiple_of(16).min(self.rows),
        };
        cut(split)..cut(split + 1)
    }
}

/// How keys and values of a part are multiplied as bytes, on a processor that does.
fn by_bytes(input: &Input<'_>, part: &Part<'_>, possible: bool) -> [Option<Kind>; 2] {
    let kind = |side: usize, dim: usize, keys: bool| {
        let packing = part.codecs[side].packing().filter(|_| possible)?;
        Kind::new(&packing, dim, keys)
    };
    let key = kind(0, input.row.key, true);
    match input.row.value {
        Value::Own(dim) => [key, kind(1, dim, false)],
        // The same rows: both or neither.
        Value::PrefixOfKey(dim) => [key.and_then(|_| kind(0, dim, false)); 2],
    }
}

/// Rows that share scales, if keys are multiplied as bytes: a query is then made ready for those.
fn block(part: &Part<'_>, keys: bool) -> usize {
    match part.codecs[0].packing().map(|packing| packing.scales) {
        Some(Scales::Across(rows)) if keys => rows,
        _ => usize::MAX,
    }
}

fn sights(input: &Input<'_>) -> Vec<Vec<Sight>> {
    let of_part = |form| {
        let chunks = input.chunks.iter();
        let tokens = chunks.flat_map(|chunk| (0..chunk.tokens.len()).map(|i| (chunk.start, chunk.start + i)));
        tokens
            .map(|(start, query)| Sight::new(input, form, start, query))
            .collect()
    };
    input.parts.iter().map(|part| of_part(part.form)).collect()
}

/// The units of a chunk, without splits.
fn units(input: &Input<'_>, shape: Shape, sights: &[Vec<Sight>], chunk: usize, isa: Isa) -> Vec<Unit> {
    let tokens = &input.chunks[chunk].tokens;
    // Rows in f32 are multiplied in f32: they are what others are compared with.
    let exact = |part: &Part<'_>| {
        part.codecs
            .iter()
            .any(|codec| codec.packing().is_some_and(|p| p.code == Code::F32))
    };
    let matrices = isa >= Isa::Amx && !input.parts.iter().any(exact);
    let few = tokens.len() * shape.group <= FEW || tokens.len() == 1;
    let step = if few {
        tokens.len()
    } else {
        // Alike, so that there is no small one at the end.
        let most = if matrices { MATRIX_QUERIES } else { QUERIES };
        let most = (most / shape.group).max(1);
        tokens.len().div_ceil(tokens.len().div_ceil(most))
    };
    let heads: Vec<Range<usize>> = match few {
        true => std::iter::once(0..shape.heads).collect(),
        false => (0..shape.heads).map(|head| head..head + 1).collect(),
    };
    let mut units = Vec::new();
    for first in tokens.clone().step_by(step.max(1)) {
        let tokens = first..(first + step).min(tokens.end);
        let pieces = pieces(input, sights, chunk, &tokens);
        let rows = pieces.iter().map(|piece| piece.run.len).sum();
        units.extend(heads.iter().map(|heads| Unit {
            tokens: tokens.clone(),
            heads: heads.clone(),
            queries: tokens.len() * shape.group,
            matrix: matrices && heads.len() == 1 && tokens.len() * shape.group >= matrix::LEAST,
            pieces: pieces.clone(),
            rows,
            splits: 1,
            partial: 0,
            left: AtomicUsize::new(1),
        }));
    }
    units
}

/// The rows that some of these tokens see.
fn pieces(input: &Input<'_>, sights: &[Vec<Sight>], chunk: usize, tokens: &Range<usize>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (i, part) in input.parts.iter().enumerate() {
        // Windows move with their query: the first and the last one's reach over those between.
        let sight = sights[i][tokens.start].or(sights[i][tokens.end - 1]);
        let runs = part.runs[chunk].iter().flat_map(|&run| sight.clip(run));
        pieces.extend(runs.map(|run| Piece { part: i, run }));
    }
    pieces
}
