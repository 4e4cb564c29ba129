//! Linear layers on packed weights: shapes of SmolLM2-135M and of a model of 1.1 billion, in every format.
//!
//! `cargo bench --bench linear`, or with a filter: `cargo bench --bench linear -- "decode.*Q4_1"`. Decode is given in
//! bytes of weights a second, prefill of 128 tokens in multiplications (half a floating-point operation each). Decode
//! goes over copies that the caches do not hold.

#![allow(clippy::unwrap_used, missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kvlab_linear::{Format, Packed, apply};
use std::time::Duration;

/// As in the program: it asks for huge pages.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Outputs and inputs.
const SHAPES: [(&str, usize, usize); 4] = [
    ("smollm2 q", 576, 576),
    ("smollm2 gate", 1536, 576),
    ("smollm2 head", 49152, 576),
    ("1.1B down", 2048, 5632),
];
const TOKENS: usize = 128;
/// More than the last cache of most machines.
const MEMORY: usize = 400 << 20;

/// Bytes of some numbers: the scales are small, the codes differ.
fn weight(format: Format, rows: usize, cols: usize) -> Packed {
    let mut bytes = vec![0; rows * format.row_bytes(cols).unwrap()];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (i as u32).wrapping_mul(2654435761).to_le_bytes()[3] & 0x2f;
    }
    if matches!(format, Format::F32 | Format::BF16) {
        // No tiny numbers: a processor is slow with those.
        let size = format.block().1;
        bytes.chunks_exact_mut(size).for_each(|number| number[size - 1] = 0x3d);
    }
    Packed::new(format, rows, cols, &bytes).unwrap()
}

fn linear(c: &mut Criterion) {
    for (name, rows, cols) in SHAPES {
        for format in Format::ALL {
            if format.row_bytes(cols).is_none() {
                continue;
            }
            let one = weight(format, rows, cols);
            let copies = vec![one.clone(); (MEMORY / one.bytes()).clamp(1, 1000)];
            let x: Vec<f32> = (0..TOKENS * cols).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
            let mut out = vec![0.0; TOKENS * rows];

            let mut group = c.benchmark_group(format!("decode {name}"));
            group.throughput(Throughput::Bytes(one.bytes() as u64));
            let mut next = copies.iter().cycle();
            group.bench_function(format.to_string(), |b| {
                b.iter(|| apply(&[next.next().unwrap()], &x[..cols], &mut [&mut out[..rows]]).unwrap());
            });
            group.finish();

            let mut group = c.benchmark_group(format!("prefill {name}"));
            group.throughput(Throughput::Elements((TOKENS * rows * cols) as u64));
            group.bench_function(format.to_string(), |b| {
                b.iter(|| apply(&[&one], &x, &mut [&mut out]).unwrap());
            });
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = linear
}
criterion_main!(benches);
