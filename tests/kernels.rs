//! Every kernel over the small catalogue, with lengths on both sides of what kernels cut at, which the laws do not reach;
//! and every instruction set of the processor's kernel against the reference, over problems drawn at random.

use burn::tensor::{Device, Distribution, Tensor, TensorData};
use kvlab_core::{Query, Retention, RowSpec, Span, Value, Visibility};
use kvlab_cpu::Isa;
use kvlab_kernels::cpu::Cpu;
use kvlab_kernels::reference::Reference;
use kvlab_store::layout::Run;
use kvlab_store::{Codec, Form, Input, Kernel, LayerStore, Options, Part, Plane, QueryChunk, codec};
use kvlab_testkit::Size;
use kvlab_testkit::catalogue::small;
use kvlab_testkit::driver::{Driver, tokens};
use serde_json::json;
use std::num::NonZeroUsize;

#[test]
fn the_small_catalogue() {
    for case in small() {
        for mut subject in crate::laws::subjects::of_shape(&case.shape) {
            subject.name = format!("{}: {}", case.name, subject.name);
            let size = Size {
                capacity: case.depth + case.chunk + 1,
                sequences: 1,
            };
            let mut driver = Driver::new(&subject, size);
            let mut seq = driver.open();
            if case.depth > 0 {
                driver.feed(&mut seq, &tokens(1, case.depth));
            }
            driver.feed(&mut seq, &tokens(2, case.chunk));
            driver.feed(&mut seq, &tokens(3, 1));
        }
    }
}

/// Numbers without a pattern.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.next() as usize % of.len()].clone()
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    fn rows(&mut self, shape: [usize; 3]) -> Tensor<3> {
        let n = shape.iter().product();
        let numbers: Vec<f32> = (0..n)
            .map(|_| self.next() as f32 / u64::MAX as f32 * 2.0 - 1.0)
            .collect();
        Tensor::from_data(TensorData::new(numbers, shape), &Device::flex())
    }
}

/// What a kernel is asked, and the rows that its [`Input`] borrows.
#[derive(Clone)]
struct Asked {
    row: RowSpec,
    codecs: [&'static dyn Codec; 2],
    stores: [LayerStore; 2],
    /// Of the past, for each chunk.
    runs: Vec<Vec<Run>>,
    chunks: Vec<QueryChunk>,
    visibility: Visibility,
    retention: Retention,
    query: Query,
    name: String,
}

impl Asked {
    fn input(&self) -> Input<'_> {
        let own = self.chunks.iter().map(|chunk| {
            vec![Run {
                slot: chunk.tokens.start,
                position: chunk.start,
                len: chunk.tokens.len(),
            }]
        });
        let past = Part {
            store: &self.stores[0],
            codecs: self.codecs,
            runs: self.runs.clone(),
            form: Form::Only,
        };
        let fresh = Part {
            store: &self.stores[1],
            codecs: [codec::EXACT; 2],
            runs: own.collect(),
            form: Form::Only,
        };
        let parts = match self.query.span {
            Span::All => vec![past, fresh],
            Span::Past => vec![past],
        };
        Input {
            row: self.row,
            parts,
            chunks: &self.chunks,
            visibility: self.visibility,
            retention: self.retention,
            seal: None,
            query: self.query.clone(),
        }
    }
}

/// Codecs that hold vectors of these parts.
fn codecs(parts: &[usize]) -> Vec<&'static dyn Codec> {
    let mut options = vec![
        json!({}),
        json!({ "scheme": "symmetric" }),
        json!({ "scheme": "asymmetric", "rotate": true }),
        json!({ "scheme": "asymmetric", "scale": "f32" }),
    ];
    for group in [1, 2, 4, 5, 8, 16, 32, 64, 128] {
        options.push(json!({ "group": group }));
        options.push(json!({ "group": group, "scheme": "asymmetric" }));
        options.push(json!({ "group": group, "scheme": "asymmetric", "scale": "f32", "rotate": true }));
        options.push(json!({ "group": group, "scheme": "symmetric", "scale": "f32", "rotate": true }));
        options.push(json!({ "group": group, "rotate": true }));
        options.push(json!({ "group": group, "axis": "channel" }));
        options.push(json!({ "group": group, "axis": "channel", "scheme": "asymmetric", "scale": "f32" }));
    }
    options.push(json!({ "scale": "none" }));
    options.push(json!({ "scale": "none", "rotate": true }));
    let options: Vec<_> = options
        .iter()
        .map(|o| Options(o.as_object().unwrap().clone().into_iter().collect()))
        .collect();
    let made = codec::ALL
        .iter()
        .flat_map(|family| options.iter().filter_map(|o| codec::make(family.name, o).ok()));
    made.filter(|codec| codec.check(parts, &Device::flex()).is_ok())
        .collect()
}

/// Rows as one codec each stores them.
fn store(row: RowSpec, codecs: [&dyn Codec; 2], rows: usize, draw: &mut Draw) -> LayerStore {
    LayerStore {
        key: codecs[0].encode(draw.rows([rows, row.heads, row.key])),
        value: match row.value {
            Value::Own(dim) => codecs[1].encode(draw.rows([rows, row.heads, dim])),
            Value::PrefixOfKey(_) => Vec::new(),
        },
    }
}

/// `len` rows in pages of so many slots, in no order, from a slot on.
fn pages(first: usize, len: usize, page: usize, draw: &mut Draw) -> Vec<Run> {
    let count = len.div_ceil(page);
    let mut order: Vec<usize> = (0..count).collect();
    for i in (1..count).rev() {
        order.swap(i, draw.next() as usize % (i + 1));
    }
    let runs = order.iter().enumerate().map(|(i, place)| Run {
        slot: first + place * page,
        position: i * page,
        len: page.min(len - i * page),
    });
    runs.collect()
}

/// `len` rows of which the old ones are gone, but for the first `sinks`, as a ring of `ring` slots holds them.
fn ring(first: usize, len: usize, sinks: usize, ring: usize, draw: &mut Draw, block: usize) -> Vec<Run> {
    let oldest = len.saturating_sub(ring).max(sinks.min(len));
    let held = len - oldest;
    // Where the oldest row lies.
    let turn = draw.next() as usize % (held / block).max(1) * block;
    let after = first + sinks.min(len);
    let runs = [
        Run {
            slot: first,
            position: 0,
            len: sinks.min(len),
        },
        Run {
            slot: after + turn,
            position: oldest,
            len: held - turn,
        },
        Run {
            slot: after,
            position: len - turn,
            len: turn,
        },
    ];
    runs.into_iter().filter(|run| run.len > 0).collect()
}

fn drawn(draw: &mut Draw) -> Asked {
    let (key, value) = draw.one(&[
        (8, Value::Own(6)),
        (10, Value::Own(10)),
        (1, Value::Own(3)),
        (16, Value::Own(16)),
        (24, Value::Own(40)),
        (32, Value::Own(32)),
        (64, Value::Own(64)),
        (64, Value::Own(64)),
        (80, Value::Own(80)),
        (96, Value::Own(96)),
        (64, Value::Own(96)),
        (128, Value::Own(128)),
        (128, Value::Own(128)),
        (192, Value::Own(128)),
        (192, Value::Own(192)),
        (10, Value::PrefixOfKey(6)),
        (64, Value::PrefixOfKey(40)),
        (96, Value::PrefixOfKey(64)),
        (128, Value::PrefixOfKey(64)),
        (576, Value::PrefixOfKey(512)),
    ]);
    let heads = if key > 500 { 1 } else { draw.one(&[1, 2, 3, 4, 5]) };
    let row = RowSpec { heads, key, value };
    let group = draw.one(&[1, 2, 3, 4, 5, 7, 8, 12, 16]);
    // Half of the time whole numbers, of which there is most to go wrong.
    let whole = |codec: &&dyn Codec| codec.name().starts_with("int8") || codec.name().starts_with("int4");
    let one = |draw: &mut Draw, of: Vec<&'static dyn Codec>| {
        let some: Vec<_> = of.iter().copied().filter(whole).collect();
        match draw.chance(50) && !some.is_empty() {
            true => draw.one(&some),
            false => draw.one(&of),
        }
    };
    let of_key = one(draw, codecs(&row.key_parts()));
    let fits = |codec: &&'static dyn Codec| {
        let blocks = [codec.block(), of_key.block()];
        blocks[0].max(blocks[1]).is_multiple_of(blocks[0].min(blocks[1]))
    };
    // Blocks of keys and values lie in each other, as the reference needs them.
    let values: Vec<_> = codecs(&[row.value_dim()]).into_iter().filter(fits).collect();
    let codecs = [of_key, one(draw, values)];
    let block = codecs.iter().map(|codec| codec.block()).max().unwrap();
    let long = draw.chance(20);
    let depths: &[usize] = if long {
        &[700, 1100]
    } else {
        &[0, 1, 3, 15, 16, 17, 63, 64, 65, 100, 129]
    };
    let lengths = [1, 1, 1, 1, 2, 3, 5, 9, 17, 21, 40];
    let (mut chunks, mut runs) = (Vec::new(), Vec::new());
    let (mut token, mut slot) = (0, 0);
    for _ in 0..draw.one(&[1, 1, 2, 3]) {
        let depth = draw.one(depths).next_multiple_of(block);
        let new = match draw.chance(25) {
            true => {
                let [sinks, held] =
                    [[0, 1, 4], [16, 33, 130]].map(|of: [usize; 3]| draw.one(&of).next_multiple_of(block));
                ring(slot, depth, sinks, held, draw, block)
            }
            false => {
                let page = draw.one(&[block, 16 * block, usize::MAX / 2]).min(depth.max(1));
                pages(slot, depth, page, draw)
            }
        };
        // The plane ends with the last row: nothing may be read behind it.
        slot = new.iter().map(|run| run.slot + run.len).max().unwrap_or(slot);
        runs.push(new);
        let len = draw.one(&lengths);
        chunks.push(QueryChunk {
            tokens: token..token + len,
            start: depth,
        });
        token += len;
    }
    let window = |draw: &mut Draw| NonZeroUsize::new(draw.one(&[1, 4, 33, 64, 500])).unwrap();
    let visibility = match draw.chance(30) {
        true => Visibility::Window(window(draw)),
        false => Visibility::Causal,
    };
    let retention = match draw.chance(30) {
        true => Retention::Window {
            window: window(draw),
            sinks: draw.one(&[0, 1, 4, 70]),
        },
        false => Retention::All,
    };
    let query_heads = heads * group;
    let mut query = Query::new(draw.rows([token, query_heads, key]), 4.0 / (key as f32).sqrt());
    query.lse = draw.chance(50);
    query.softcap = draw.chance(25).then(|| draw.one(&[0.5, 5.0, 50.0]));
    query.sinks = draw
        .chance(25)
        .then(|| draw.rows([query_heads, 1, 1]).reshape([query_heads]) * 3.0);
    query.span = if draw.chance(25) { Span::Past } else { Span::All };
    Asked {
        name: format!(
            "{row:?} x {group}, {:?}, {chunks:?}, runs {:?}, {visibility}, {retention}, {:?}, cap {:?}, sinks {}",
            codecs.map(Codec::name),
            runs.iter().map(Vec::len).collect::<Vec<_>>(),
            query.span,
            query.softcap,
            query.sinks.is_some(),
        ),
        stores: [
            store(row, codecs, slot.max(block), draw),
            store(row, [codec::EXACT; 2], token, draw),
        ],
        row,
        codecs,
        runs,
        chunks,
        visibility,
        retention,
        query,
    }
}

/// The instruction sets that are tested: each is told by name, whatever the machine would choose.
const SETS: [(Isa, Cpu); 4] = [
    (Isa::Portable, Cpu::with(Isa::Portable)),
    (Isa::Avx2, Cpu::with(Isa::Avx2)),
    (Isa::Avx512, Cpu::with(Isa::Avx512)),
    (Isa::Amx, Cpu::with(Isa::Amx)),
];

fn here() -> impl Iterator<Item = &'static (Isa, Cpu)> {
    let available = Isa::available();
    SETS.iter().filter(move |(isa, _)| available.contains(isa))
}

fn floats<const D: usize>(t: Tensor<D>) -> Vec<f32> {
    t.into_data().iter::<f32>().collect()
}

/// The largest difference, weighed down where numbers are large.
fn apart(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let pairs = a.iter().zip(b);
    pairs.fold(0.0, |most, (a, b)| {
        let apart = (a - b).abs() / b.abs().max(1.0);
        if apart.is_nan() { f32::INFINITY } else { most.max(apart) }
    })
}

fn check(asked: &Asked) {
    let input = asked.input();
    let want = Reference.attend(&input).unwrap().attended;
    let (out, lse) = (floats(want.out), want.lse.map(floats));
    for (isa, kernel) in here() {
        kernel.supports(&input.problem()).unwrap();
        let got = kernel.attend(&input).unwrap().attended;
        // Codes of 8 and 4 bits are multiplied with whole numbers of 16 there: docs/design/0008-whole-numbers.md.
        let whole = |codec: &&dyn Codec| codec.name().starts_with("int8") || codec.name().starts_with("int4");
        let whole = *isa >= Isa::Avx512 && asked.codecs.iter().any(whole);
        // Tile registers take many queries, their rows and the weights as two bf16 each, 2^-18 of a product off.
        let bound = match isa {
            _ if whole => 2e-4,
            Isa::Amx => 4e-5,
            _ => 1e-5,
        };
        let off = apart(&floats(got.out), &out);
        assert!(off < bound, "{isa}: off by {off:e} for {}", asked.name);
        assert_eq!(got.lse.is_some(), lse.is_some());
        if let (Some(got), Some(lse)) = (got.lse, &lse) {
            let off = apart(&floats(got), lse);
            assert!(off < bound, "{isa}: lse off by {off:e} for {}", asked.name);
        }
    }
}

#[test]
fn the_processor_agrees_with_the_reference() {
    assert!(here().count() >= 1);
    let mut draw = Draw(11);
    for _ in 0..300 {
        check(&drawn(&mut draw));
    }
}

/// One sequence and many threads: its length is split, and the results are merged.
#[test]
fn splits_are_merged() {
    let mut draw = Draw(11);
    let row = RowSpec {
        heads: 2,
        key: 64,
        value: Value::Own(64),
    };
    for (tokens, depth) in [(1, 2000), (2, 1025), (30, 1500)] {
        let codecs = [codec::EXACT; 2];
        let mut query = Query::new(draw.rows([tokens, 6, 64]), 0.5);
        query.lse = true;
        let asked = Asked {
            name: format!("{tokens} tokens behind {depth}"),
            stores: [
                store(row, codecs, depth, &mut draw),
                store(row, codecs, tokens, &mut draw),
            ],
            row,
            codecs,
            runs: vec![pages(0, depth, depth, &mut draw)],
            chunks: vec![QueryChunk {
                tokens: 0..tokens,
                start: depth,
            }],
            visibility: Visibility::Causal,
            retention: Retention::All,
            query,
        };
        let before = kvlab_cpu::threads();
        for threads in [1, 2, 7] {
            kvlab_cpu::set_threads(threads);
            check(&asked);
        }
        kvlab_cpu::set_threads(before);
    }
}

/// A row that is not a number makes outputs that are none, in every place that it can have in a tile.
#[test]
fn a_broken_row_is_not_hidden() {
    let mut draw = Draw(11);
    let row = RowSpec {
        heads: 1,
        key: 16,
        value: Value::Own(16),
    };
    for broken in [0, 1, 16, 63, 64, 80] {
        let mut key = floats(draw.rows([81, 1, 16]));
        key[broken * 16 + 3] = f32::NAN;
        let key = Tensor::from_data(TensorData::new(key, [81, 1, 16]), &Device::flex());
        let mut past = store(row, [codec::EXACT; 2], 81, &mut draw);
        past.key = codec::EXACT.encode(key);
        let asked = Asked {
            name: String::new(),
            stores: [past, store(row, [codec::EXACT; 2], 1, &mut draw)],
            row,
            codecs: [codec::EXACT; 2],
            runs: vec![pages(0, 81, 81, &mut draw)],
            chunks: vec![QueryChunk {
                tokens: 0..1,
                start: 81,
            }],
            visibility: Visibility::Causal,
            retention: Retention::All,
            query: Query::new(draw.rows([1, 2, 16]), 1.0),
        };
        for (isa, kernel) in here() {
            let out = floats(kernel.attend(&asked.input()).unwrap().attended.out);
            assert!(out.iter().all(|x| x.is_nan()), "{isa}, row {broken}: {out:?}");
        }
    }
}

/// Numbers with some that are none.
fn spoilt(shape: [usize; 3], places: &[usize], with: f32, draw: &mut Draw) -> Tensor<3> {
    let mut numbers = floats(draw.rows(shape));
    places.iter().for_each(|&place| numbers[place] = with);
    Tensor::from_data(TensorData::new(numbers, shape), &Device::flex())
}

/// The same of queries and of rows in every format: where the reference has no finite number, no instruction set has one.
#[test]
fn nothing_broken_is_hidden_in_any_format() {
    let mut draw = Draw(11);
    let row = RowSpec {
        heads: 2,
        key: 64,
        value: Value::Own(64),
    };
    let formats = codecs(&[64]);
    let (rows, new) = ([256, 2, 64], [1, 6, 64]);
    let all: Vec<usize> = (0..64).collect();
    for with in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for (place, values) in [
            (Some(0), &all[..1]),
            (Some(0), &all),
            (Some(1), &all[3..4]),
            (Some(2), &all[40..]),
            (None, &[]),
        ] {
            for &codec in formats.iter().filter(|codec| 256_usize.is_multiple_of(codec.block())) {
                let codecs = [codec; 2];
                let mut tensors = [rows, rows, new].map(|shape| draw.rows(shape));
                if let Some(place) = place {
                    tensors[place] = spoilt([rows, rows, new][place], values, with, &mut draw);
                }
                let [key, value, q] = tensors;
                let past = LayerStore {
                    key: codec.encode(key),
                    value: codec.encode(value),
                };
                let mut query = Query::new(q, 0.125);
                query.lse = true;
                let asked = Asked {
                    name: format!("{with} in {place:?} of {}", codec.name()),
                    stores: [past, store(row, [codec::EXACT; 2], 1, &mut draw)],
                    row,
                    codecs,
                    runs: vec![pages(0, 256, 256, &mut draw)],
                    chunks: vec![QueryChunk {
                        tokens: 0..1,
                        start: 256,
                    }],
                    visibility: Visibility::Causal,
                    retention: Retention::All,
                    query,
                };
                let want = floats(Reference.attend(&asked.input()).unwrap().attended.out);
                for (isa, kernel) in here() {
                    let got = floats(kernel.attend(&asked.input()).unwrap().attended.out);
                    for (i, (want, got)) in want.iter().zip(&got).enumerate() {
                        assert!(
                            want.is_finite() == got.is_finite() && (!want.is_finite() || (want - got).abs() < 1e-3),
                            "{isa}: number {i} is {got} and not {want} for {}",
                            asked.name
                        );
                    }
                }
            }
        }
    }
}

/// Rows and queries that are views, as models hand them over: nothing is contiguous.
#[test]
fn views_are_read_as_they_lie() {
    let mut draw = Draw(11);
    let row = RowSpec {
        heads: 2,
        key: 16,
        value: Value::Own(16),
    };
    let device = Device::flex();
    let turned = |tokens: usize| {
        let t = Tensor::<3>::random([2, 16, tokens + 3], Distribution::Uniform(-1.0, 1.0), &device);
        t.slice([0..2, 0..16, 2..tokens + 2]).permute([2, 0, 1])
    };
    let fresh = LayerStore {
        key: codec::EXACT.encode(turned(5)),
        value: codec::EXACT.encode(turned(5)),
    };
    check(&Asked {
        name: "views".into(),
        stores: [store(row, [codec::EXACT; 2], 7, &mut draw), fresh],
        row,
        codecs: [codec::EXACT; 2],
        runs: vec![pages(0, 7, 7, &mut draw)],
        chunks: vec![QueryChunk { tokens: 0..5, start: 7 }],
        visibility: Visibility::Causal,
        retention: Retention::All,
        query: Query::new(turned(5), 1.0),
    });
}

/// Scales that a block of rows shares, and the last block's are not there: nothing beyond the plane is read.
#[test]
fn rows_without_their_blocks_scales_are_refused() {
    let mut draw = Draw(11);
    let row = RowSpec {
        heads: 1,
        key: 64,
        value: Value::Own(64),
    };
    let options = json!({ "axis": "channel", "group": 64 });
    let by_channel = codec::make(
        "int4",
        &Options(options.as_object().unwrap().clone().into_iter().collect()),
    )
    .unwrap();
    let codecs = [by_channel, codec::EXACT];
    let mut past = store(row, codecs, 128, &mut draw);
    let asked = |past: &LayerStore, rows: usize| {
        let device = Device::flex();
        let random = || Tensor::<3>::random([1, 1, 64], Distribution::Uniform(-1.0, 1.0), &device);
        let fresh = LayerStore {
            key: codec::EXACT.encode(random()),
            value: codec::EXACT.encode(random()),
        };
        Asked {
            name: "a block without scales".into(),
            stores: [past.clone(), fresh],
            row,
            codecs,
            runs: vec![vec![Run {
                slot: 0,
                position: 0,
                len: rows,
            }]],
            chunks: vec![QueryChunk {
                tokens: 0..1,
                start: rows,
            }],
            visibility: Visibility::Causal,
            retention: Retention::All,
            query: Query::new(random(), 1.0),
        }
    };
    check(&asked(&past, 128));
    for plane in &mut past.key {
        match plane {
            Plane::Float(scales) => *scales = scales.clone().narrow(0, 0, 1),
            Plane::Int(codes) => *codes = codes.clone().narrow(0, 0, 100),
        }
    }
    for (_, kernel) in here() {
        assert!(kernel.attend(&asked(&past, 64).input()).is_ok());
        let beyond = asked(&past, 100);
        assert!(kernel.attend(&beyond.input()).is_err());
    }
}
