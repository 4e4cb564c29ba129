//! `kvlab bench`: speed of prefill and decode at depths.

use crate::failure::{Failure, Outcome};
use crate::progress::Bar;
use crate::{Model, load};
use clap::ValueEnum;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use kvlab_engine::{Engine, Work};
use serde::Serialize;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: Model,
    /// Tokens to prefill; a comma list sweeps, 0 leaves it out
    #[arg(short = 'p', long, value_delimiter = ',', default_value = "512")]
    n_prompt: Vec<usize>,
    /// Tokens to generate; a comma list sweeps, 0 leaves it out
    #[arg(short = 'n', long, value_delimiter = ',', default_value = "128")]
    n_gen: Vec<usize>,
    /// Tokens that are in the cache before; a comma list sweeps
    #[arg(short = 'd', long, value_delimiter = ',', default_value = "0")]
    n_depth: Vec<usize>,
    /// Repeats of each measurement, after one that does not count
    #[arg(short = 'r', long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value = "md")]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Md,
    Csv,
    Json,
}

/// One measurement, with llama-bench's field names where it has them.
#[derive(Serialize)]
struct Record {
    model: String,
    cache: String,
    device: String,
    n_threads: usize,
    type_k: String,
    type_v: String,
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
    kernels: String,
    /// Tokens per second.
    avg_ts: f64,
    stddev_ts: f64,
    samples_ts: Vec<f64>,
}

impl Record {
    fn test(&self) -> String {
        let what = match self.n_prompt {
            0 => format!("tg{}", self.n_gen),
            n => format!("pp{n}"),
        };
        match self.n_depth {
            0 => what,
            d => format!("{what} @ d{d}"),
        }
    }
}

pub fn bench(args: &Args) -> Outcome {
    let config = load::config(&args.model)?;
    let mut engine = load::engine(&config)?;
    let prefills = args.n_prompt.iter().map(|&n| Work::Prefill(n));
    let decodes = args.n_gen.iter().map(|&n| Work::Decode(n));
    let works: Vec<Work> = prefills.chain(decodes).filter(|work| work.tokens() > 0).collect();
    let bar = Bar::new();
    let total = args.n_depth.len() * works.len() * (args.repetitions as usize + 1);
    let mut done = 0;
    let mut records = Vec::new();
    for &depth in &args.n_depth {
        let mut filled = engine.filled(depth)?;
        for &work in &works {
            let mut samples = Vec::new();
            let mut kernels = Vec::new();
            for repeat in 0..=args.repetitions {
                bar.at("measuring", done, total);
                let measured = filled.measure(work)?;
                done += 1;
                kernels = measured.kernels;
                if repeat > 0 {
                    samples.push(work.tokens() as f64 / measured.time.as_secs_f64());
                }
            }
            records.push(record(filled.engine(), depth, work, samples, &kernels));
        }
    }
    drop(bar);
    print(&records, args.output)
}

fn record(engine: &Engine, depth: usize, work: Work, samples: Vec<f64>, kernels: &[&str]) -> Record {
    let spec = engine.spec();
    let formats = |f: fn(&kvlab_core::LayerSpec) -> &str| {
        let mut names: Vec<&str> = spec.layers.iter().map(f).collect();
        names.dedup();
        names.join("+")
    };
    let (n_prompt, n_gen) = match work {
        Work::Prefill(n) => (n, 0),
        Work::Decode(n) => (0, n),
    };
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
    Record {
        model: engine.config().name.clone(),
        cache: spec.variant.clone(),
        device: engine.device().name.to_string(),
        n_threads: engine.threads(),
        type_k: formats(|l| &l.key.name),
        type_v: formats(|l| &l.value.name),
        n_prompt,
        n_gen,
        n_depth: depth,
        kernels: kernels.join("+"),
        avg_ts: mean,
        stddev_ts: (squares / (count - 1.0).max(1.0)).sqrt(),
        samples_ts: samples,
    }
}

fn print(records: &[Record], output: Output) -> Outcome {
    let broken = |e: &dyn std::fmt::Display| Failure::Run(format!("the output could not be written: {e}"));
    match output {
        Output::Json => {
            let text = serde_json::to_string_pretty(records).map_err(|e| broken(&e))?;
            println!("{text}");
        }
        Output::Csv => {
            println!("model,cache,device,n_threads,type_k,type_v,n_prompt,n_gen,n_depth,kernels,avg_ts,stddev_ts");
            for r in records {
                println!(
                    "{},{},{},{},{},{},{},{},{},{},{:.4},{:.4}",
                    r.model,
                    r.cache,
                    r.device,
                    r.n_threads,
                    r.type_k,
                    r.type_v,
                    r.n_prompt,
                    r.n_gen,
                    r.n_depth,
                    r.kernels,
                    r.avg_ts,
                    r.stddev_ts
                );
            }
        }
        Output::Md => {
            let mut table = Table::new();
            table.load_preset(ASCII_MARKDOWN);
            table.set_header(["model", "cache", "K/V", "device", "threads", "kernels", "test", "t/s"]);
            for r in records {
                table.add_row([
                    r.model.clone(),
                    r.cache.clone(),
                    format!("{}/{}", r.type_k, r.type_v),
                    r.device.clone(),
                    r.n_threads.to_string(),
                    r.kernels.clone(),
                    r.test(),
                    format!("{:.2} ± {:.2}", r.avg_ts, r.stddev_ts),
                ]);
            }
            for column in [4, 7] {
                if let Some(column) = table.column_mut(column) {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
            println!("{table}");
        }
    }
    Ok(())
}
