//! Plans against figures that others published, each with its source, and against closed forms that are written out here.

mod bad_input;
mod bytes;
mod fits;
mod prices;
mod times;

use crate::{Facts, Plan, Question, Subject, plan};
use kvlab_core::Bytes;

/// A model file of the repository.
fn subject(name: &str, sets: &[&str]) -> Subject {
    let file = format!("{}/../../configs/models/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    Subject::open(&file, &sets).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn planned(name: &str, question: &Question) -> Plan {
    plan(&subject(name, &[]), question).unwrap()
}

/// A cell by the beginning of its variant's name, or of the own one.
fn facts<'a>(plan: &'a Plan, variant: &str, codec: &str) -> &'a Facts {
    let cache = plan.caches.iter().find(|cache| match variant {
        "own" => cache.own,
        name => cache.variant.starts_with(name),
    });
    let cell = cache.unwrap().cells.iter().find(|cell| cell.codec == codec).unwrap();
    cell.facts().unwrap_or_else(|| panic!("{variant} {codec}: {cell:?}"))
}

fn at(context: usize) -> Question {
    Question {
        context: Some(context),
        ..Question::default()
    }
}

fn budget(bytes: u64) -> Question {
    Question {
        budget: Some(Bytes(bytes)),
        ..Question::default()
    }
}
