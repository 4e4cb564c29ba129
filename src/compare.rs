//! `kvlab compare`: runs an experiment and prints its table.

use crate::failure::{Failure, Outcome};
use crate::progress::Bar;
use kvlab_config::Experiment;
use kvlab_engine::registry;
use kvlab_lab::{CompareOptions, LabError, Progress};
use std::path::PathBuf;
use std::process::Command;

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
        let built = PathBuf::from(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/configs/experiments/quickstart.toml"
        ));
        if here.exists() { here } else { built }
    };
    let file = args.file.clone().unwrap_or_else(quickstart);
    let experiment = registry::with_known(|known| Experiment::load(&file, &args.sets, known))?;
    let options = CompareOptions {
        runs: args.runs.clone(),
        fresh: args.fresh,
        probe: true,
        commit: commit(),
        command: Some(
            std::env::args()
                .skip(1)
                .fold("kvlab".to_owned(), |line, arg| line + " " + &arg),
        ),
    };
    let bar = Bar::new();
    let (mut done, mut total) = (0, 0);
    let comparison = kvlab_lab::compare(&experiment, &options, &mut |progress| {
        if let Progress::Advanced { done: d, total: t } = progress {
            (done, total) = (d, t);
        }
        if let Progress::Failed { .. } = progress {
            bar.say(&progress.to_string());
        }
        bar.at(&progress.to_string(), done, total);
    });
    drop(bar);
    let comparison = comparison.map_err(|error| match error {
        LabError::Text { .. } => Failure::Request(error.to_string()),
        error => Failure::Run(error.to_string()),
    })?;
    println!("{}", comparison.table(terminal_width()));
    println!("\nwritten to {}", comparison.folder.display());
    match comparison.failed().len() {
        0 => Ok(()),
        n => Err(Failure::Run(format!(
            "{n} of {} cells failed; the table says why",
            comparison.rows.len()
        ))),
    }
}

/// The commit of the folder that this binary was built in, if it is a git checkout.
fn commit() -> Option<String> {
    let describe = [
        "-C",
        env!("CARGO_MANIFEST_DIR"),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
    ];
    let git = Command::new("git").args(describe).output().ok()?;
    let text = String::from_utf8(git.stdout).ok()?;
    git.status.success().then(|| text.trim().to_owned())
}

/// Columns of the terminal; a pipe has as many as it takes.
pub fn terminal_width() -> Option<u16> {
    console::Term::stdout()
        .is_term()
        .then(|| console::Term::stdout().size().1)
}
