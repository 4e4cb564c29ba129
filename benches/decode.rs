//! Attention of whole models over cold caches, kernel by kernel: what a token costs, against the machine's read bandwidth
//! and against the reference, all in one run, turn by turn, because a machine's speed changes from minute to minute.
//!
//! Times are those of the fastest layer, times the layers, because others may use the machine: what it takes when nobody
//! is in the way.
//!
//! `cargo bench --bench decode -- [rounds] [words of a line ...]`, say `-- 9 A f16`.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use burn::tensor::{Device, Distribution, Tensor};
use kvlab_core::{Query, Retention, RowSpec, Value, Visibility};
use kvlab_kernels::{cpu::Cpu, reference::Reference};
use kvlab_store::layout::Run;
use kvlab_store::{Codec, Form, Input, Kernel, LayerStore, Options, Part, QueryChunk, codec};
use std::time::Instant;

/// As in the program: it asks for huge pages.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A model's attention.
struct Model {
    name: &'static str,
    layers: usize,
    query_heads: usize,
    row: RowSpec,
}

fn models() -> [Model; 3] {
    let own = |heads, dim| RowSpec {
        heads,
        key: dim,
        value: Value::Own(dim),
    };
    let model = |name, layers, query_heads, row| Model {
        name,
        layers,
        query_heads,
        row,
    };
    let latent = RowSpec {
        heads: 1,
        key: 576,
        value: Value::PrefixOfKey(512),
    };
    [
        model("A: SmolLM2-135M", 30, 9, own(3, 64)),
        model("B: 1.1B", 22, 32, own(4, 64)),
        model("C: MLA 512 + 64", 27, 16, latent),
    ]
}

const FORMATS: [&str; 8] = ["f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "int2"];

/// Bytes that no cache of the processor holds.
const COLD: usize = 256 << 20;

fn random(shape: [usize; 3]) -> Tensor<3> {
    Tensor::random(shape, Distribution::Uniform(-1.0, 1.0), &Device::flex())
}

struct Bench {
    model: Model,
    codec: &'static dyn Codec,
    depth: usize,
    tokens: usize,
    /// Enough layers that each is cold when its turn comes.
    layers: Vec<LayerStore>,
    fresh: LayerStore,
    next: usize,
}

impl Bench {
    fn new(model: Model, format: &str, depth: usize, tokens: usize) -> Self {
        let mut options = Options::default();
        if format.starts_with("fp8") {
            options.0.insert("group".into(), 64.into());
        }
        let codec = codec::make(format, &options).unwrap();
        let store = |codec: &dyn Codec, rows: usize| LayerStore {
            key: codec.encode(random([rows, model.row.heads, model.row.key])),
            value: match model.row.value {
                Value::Own(dim) => codec.encode(random([rows, model.row.heads, dim])),
                Value::PrefixOfKey(_) => Vec::new(),
            },
        };
        let first = store(codec, depth);
        let count = (COLD / first.bytes().0 as usize).max(2);
        Self {
            layers: (0..count).map(|_| first.clone().detached()).collect(),
            fresh: store(codec, tokens),
            model,
            codec,
            depth,
            tokens,
            next: 0,
        }
    }

    /// Bytes of the rows of so many layers.
    fn bytes(&self, layers: usize) -> f64 {
        (self.layers[0].bytes().0 * layers as u64) as f64
    }

    /// The past in one piece, or in pages of 16 rows out of order.
    fn past(&self, paged: bool) -> Vec<Run> {
        let page = if paged { 16 } else { self.depth };
        let pages = self.depth / page;
        let run = |i: usize| Run {
            // A prime that divides no number of pages: every page once.
            slot: i * 7919 % pages * page,
            position: i * page,
            len: page,
        };
        (0..pages).map(run).collect()
    }

    /// Seconds of the fastest of so many layers.
    fn run(&mut self, kernel: &dyn Kernel, layers: usize, paged: bool) -> f64 {
        let past = vec![self.past(paged)];
        let own = vec![vec![Run {
            slot: 0,
            position: self.depth,
            len: self.tokens,
        }]];
        let chunks = [QueryChunk {
            tokens: 0..self.tokens,
            start: self.depth,
        }];
        let q = random([self.tokens, self.model.query_heads, self.model.row.key]);
        let mut best = f64::INFINITY;
        for _ in 0..layers {
            let part = |store, runs| Part {
                store,
                codecs: [self.codec; 2],
                runs,
                form: Form::Only,
            };
            let input = Input {
                row: self.model.row,
                parts: vec![
                    part(&self.layers[self.next % self.layers.len()], past.clone()),
                    part(&self.fresh, own.clone()),
                ],
                chunks: &chunks,
                visibility: Visibility::Causal,
                retention: Retention::All,
                seal: None,
                query: Query::new(q.clone(), 0.125),
            };
            self.next += 1;
            let start = Instant::now();
            std::hint::black_box(kernel.attend(&input).unwrap());
            best = start.elapsed().as_secs_f64().min(best);
        }
        best
    }
}

/// Bytes a second that all threads read together, at best.
fn bandwidth(memory: &[Vec<u8>]) -> f64 {
    const PIECE: usize = 8 << 20;
    let pieces = memory.iter().map(|memory| memory.len() / PIECE).min().unwrap_or(0);
    let rates = (0..pieces).map(|piece| {
        let start = Instant::now();
        kvlab_cpu::run(&|thread| {
            let (a, b) = memory[thread][piece * PIECE..][..PIECE].split_at(PIECE / 2);
            assert!(std::hint::black_box(a == b));
        });
        (PIECE * memory.len()) as f64 / start.elapsed().as_secs_f64()
    });
    rates.fold(0.0, f64::max)
}

/// Seconds that an empty job of all threads takes.
fn fork_and_join() -> f64 {
    let times = (0..20_000).map(|_| {
        let start = Instant::now();
        kvlab_cpu::run(&|_| {});
        start.elapsed().as_secs_f64()
    });
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"))
        .collect();
    let rounds = words.first().and_then(|word| word.parse().ok()).unwrap_or(7);
    let wanted = |line: &str| {
        words
            .iter()
            .filter(|w| w.parse::<usize>().is_err())
            .all(|w| line.contains(w.as_str()))
    };
    let threads = kvlab_cpu::threads();
    let memory: Vec<Vec<u8>> = (0..threads).map(|_| vec![1; COLD / threads]).collect();
    println!(
        "{threads} threads, {}, fastest layer of {rounds} rounds, times the layers",
        Cpu::BEST.name()
    );
    println!("fork and join: {:.2} us (median)", fork_and_join() * 1e6);
    println!(
        "| model | format | rows | tokens | ms | pages of 16 rows, of that speed | GB/s | of bandwidth | reference, ms | times faster |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (depth, tokens) in [(2048, 1), (8192, 1), (8192, 2), (8192, 3), (8192, 4), (1024, 256)] {
        for format in FORMATS {
            for model in models() {
                let line = format!("| {} | {format} | {depth} | {tokens} |", model.name);
                if !wanted(&line) {
                    continue;
                }
                let layers = if tokens == 1 { model.layers } else { 1 };
                let mut bench = Bench::new(model, format, depth, tokens);
                bench.run(&Cpu::BEST, layers, false);
                let reference = bench.run(&Reference, layers.min(3), false);
                let (mut own, mut paged, mut possible) = (f64::INFINITY, f64::INFINITY, 0.0_f64);
                for _ in 0..rounds {
                    possible = possible.max(bandwidth(&memory));
                    own = own.min(bench.run(&Cpu::BEST, layers, false));
                    paged = paged.min(bench.run(&Cpu::BEST, layers, true));
                }
                let (rate, layers) = (bench.bytes(1) / own, layers as f64);
                println!(
                    "{line} {:.3} | {:.2} | {:.1} | {:.2} | {:.2} | {:.1} |",
                    own * layers * 1e3,
                    own / paged,
                    rate / 1e9,
                    rate / possible,
                    reference * layers * 1e3,
                    reference / own,
                );
            }
        }
    }
}
