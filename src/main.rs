//! The command line of kvlab.

mod bench;
mod compare;
mod explain;
mod failure;
mod formats;
mod inspect;
mod load;
mod logits;
mod plan;
mod progress;
mod report;
mod run;

use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;
use std::path::PathBuf;
use std::process::ExitCode;

/// It asks for huge pages: weights and rows are read from end to end for each token, and with small ones the processor looks
/// up an address every 4 KiB.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// A workbench for KV caches: one set of weights through every cache, compared by bytes, time and quality.
#[derive(Parser)]
#[command(name = "kvlab", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Continue a prompt, and say what it cost
    Run(run::Args),
    /// Run an experiment and print its table; without a file, the quickstart
    Compare(compare::Args),
    /// Make the report of a run again, or one of several runs side by side
    Report(report::Args),
    /// Speed of prefill and decode at depths, in llama-bench's terms
    Bench(bench::Args),
    /// Teacher-forced logits of given token ids, as a safetensors file
    Logits(logits::Args),
    /// A config as it is understood: every layer's cache and its bytes, without loading weights
    Inspect(inspect::Args),
    /// One short sentence through a tiny model, with and without a cache, as a page that can be stepped
    Explain(explain::Args),
    /// What will fit and what it will cost: bytes, requests, times and prices, without loading weights
    Plan(Box<plan::Args>),
    /// Which caches a model can have: every variant, layout and number format, and what is exact, lossy or refused
    Formats(Model),
    /// The devices of this machine that this build can use
    Devices,
}

/// The model file and its overrides, which most commands take.
#[derive(clap::Args)]
struct Model {
    /// A model file (`configs/models/*.toml`)
    file: PathBuf,
    /// Override a key of the file, e.g. --set cache.variant=swa --set cache.window=64
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Report(args) => report::report(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Logits(args) => logits::logits(&args),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Plan(args) => plan::plan(&args),
        Command::Formats(model) => formats::formats(&model),
        Command::Devices => {
            for (name, what) in kvlab_engine::devices() {
                println!("{name:10} {what}");
            }
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
