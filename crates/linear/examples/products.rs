//! How fast products with packed weights are, beside what the machine can do in the same second.
//!
//! `cargo run --release -p kvlab-linear --example products [-- alone FORMAT... ROWS...]` prints a table: for each format, shape
//! and number of rows the time, the arithmetic (two operations for each weight and row) over that of a loop of f32
//! multiply-adds, and the bytes of weights over what the threads read from memory. Weights are rotated over copies
//! that no cache holds. Every figure is the best of several rounds, with the loops in between.
//!
//! `alone` takes one thread and its time on a processor: that is less disturbed where something else is running.

#![allow(clippy::unwrap_used)]

mod probe;

use kvlab_linear::{Format, Packed, apply};

/// Name, weights that are read together, outputs, inputs.
const SHAPES: [(&str, usize, usize, usize); 5] = [
    ("135M o", 1, 576, 576),
    ("135M gate, up", 2, 1536, 576),
    ("135M down", 1, 576, 1536),
    ("1.1B gate, up", 2, 5632, 2048),
    ("1.1B down", 1, 2048, 5632),
];
const ROWS: [usize; 4] = [1, 8, 64, 512];
/// More than the last cache of most machines.
const MEMORY: usize = 320 << 20;
const ROUNDS: usize = 7;

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

fn main() {
    let (options, arguments): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|a| a == "alone");
    let clock = probe::Clock::new(!options.is_empty());
    let (rows_asked, asked): (Vec<String>, Vec<String>) =
        arguments.into_iter().partition(|a| a.parse::<usize>().is_ok());
    let memory = probe::Memory::new(MEMORY);
    println!("| format | shape | rows | us | GFLOP/s | of f32 | GB/s | of memory |");
    println!("|---|---|---|---|---|---|---|---|");
    for format in Format::ALL {
        if !asked.is_empty() && !asked.contains(&format.to_string()) {
            continue;
        }
        for (name, together, outputs, inputs) in SHAPES {
            if format.row_bytes(inputs).is_none() {
                continue;
            }
            let one = weight(format, outputs, inputs);
            let copies = vec![one.clone(); (MEMORY / one.bytes()).clamp(together, 2000) / together * together];
            for rows in ROWS {
                if !rows_asked.is_empty() && !rows_asked.contains(&rows.to_string()) {
                    continue;
                }
                let x: Vec<f32> = (0..rows * inputs).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
                let mut outs = vec![vec![0.0; rows * outputs]; together];
                let (mut seconds, mut flops, mut bandwidth) = (f64::MAX, 0.0_f64, 0.0_f64);
                // Few rows: all copies, so that each is read from memory; many: some.
                let calls = (copies.len() / together).min((2048 / rows).max(4));
                let mut calls_done = copies.chunks_exact(together).cycle();
                for _ in 0..ROUNDS {
                    flops = flops.max(probe::f32_flops(clock));
                    bandwidth = bandwidth.max(memory.read(clock));
                    let start = clock.now();
                    for weights in calls_done.by_ref().take(calls) {
                        let weights: Vec<&Packed> = weights.iter().collect();
                        let mut outs: Vec<&mut [f32]> = outs.iter_mut().map(Vec::as_mut_slice).collect();
                        apply(&weights, &x, &mut outs).unwrap();
                    }
                    seconds = seconds.min((clock.now() - start) / calls as f64);
                }
                let work = (2 * rows * outputs * inputs * together) as f64 / seconds;
                let bytes = (one.bytes() * together) as f64 / seconds;
                println!(
                    "| {format} | {name} {outputs} x {inputs} | {rows} | {:.1} | {:.0} | {:.2} | {:.1} | {:.2} |",
                    seconds * 1e6,
                    work / 1e9,
                    work / flops,
                    bytes / 1e9,
                    bytes / bandwidth
                );
            }
        }
    }
}
