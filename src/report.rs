//! `kvlab report`: makes the report of a run again from its records, or one of several runs side by side.

use crate::failure::{Failure, Outcome};
use kvlab_lab::{Comparison, LabError, write_report};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// Folders of runs, as `kvlab compare` writes them; several are put side by side
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Where the report goes; left out, the folder of the run
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn report(args: &Args) -> Outcome {
    let out = match (&args.out, args.runs.as_slice()) {
        (Some(out), _) => out,
        (None, [only]) => only,
        (None, _) => {
            let message = "a report of several runs belongs to none of them: give a folder for it with --out DIR";
            return Err(Failure::Request(message.to_owned()));
        }
    };
    let failure = |error: LabError| match error {
        LabError::NoRun { .. } | LabError::Records { .. } => Failure::Request(error.to_string()),
        error => Failure::Run(error.to_string()),
    };
    let runs: Result<Vec<Comparison>, LabError> = args.runs.iter().map(|run| Comparison::load(run)).collect();
    let runs = runs.map_err(failure)?;
    write_report(&runs.iter().collect::<Vec<_>>(), out).map_err(failure)?;
    println!("{}", out.join("report.html").display());
    Ok(())
}
