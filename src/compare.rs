//! `kvlab compare`: runs an experiment and prints its table.

use crate::failure::{Failure, Outcome};
use crate::progress::Bar;
use kvlab_config::Experiment;
use kvlab_engine::registry;
use kvlab_lab::{CompareOptions, LabError};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// An experiment file; left out, configs/experiments/quickstart.toml
    file: Option<PathBuf>,
    /// Override a key of the experiment file
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Where run folders go
    #[arg(long, default_value = "runs")]
    runs: PathBuf,
    /// Start over, even if this experiment was run before
    #[arg(long)]
    fresh: bool,
}

pub fn compare(args: &Args) -> Outcome {
    let quickstart = || {
        let here = PathBuf::from("configs/experiments/quickstart.toml");
        let built = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/configs/experiments/quickstart.toml"));
        if here.exists() { here } else { built }
    };
    let file = args.file.clone().unwrap_or_else(quickstart);
    let experiment = registry::with_known(|known| Experiment::load(&file, &args.sets, known))?;
    let options = CompareOptions {
        runs: args.runs.clone(),
        fresh: args.fresh,
        ..CompareOptions::default()
    };
    let bar = Bar::new();
    let comparison = kvlab_lab::compare(&experiment, &options, &mut |p| bar.at(&p.to_string(), p.done(), p.total()));
    drop(bar);
    let comparison = comparison.map_err(|error| match error {
        LabError::Engine(error) => Failure::from(error),
        error => Failure::Run(error.to_string()),
    })?;
    println!("{}", comparison.table(None));
    println!("\nwritten to {}", comparison.folder.display());
    match comparison.failed() {
        0 => Ok(()),
        n => Err(Failure::Run(format!("{n} of the cells failed; see the table"))),
    }
}
