//! `kvlab explain`: one short sentence through a tiny model, as a page that can be stepped.

use crate::failure::{Failure, Outcome};
use crate::progress::Bar;
use crate::{Model, load};
use clap::ValueEnum;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use kvlab_explain::{ExplainError, Request, Source, Trace, Variant};
use std::num::NonZeroUsize;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: Model,
    /// A short sentence: with what is generated, at most 48 tokens
    text: String,
    /// Tokens to generate after it
    #[arg(short = 'n', long, default_value = "6")]
    max_new_tokens: NonZeroUsize,
    /// The page to write
    #[arg(short, long, value_name = "PAGE.html", default_value = "explain.html")]
    out: PathBuf,
    /// The language that the page opens with; it can be switched there
    #[arg(long, value_enum, default_value = "en")]
    lang: Language,
    /// The window of SWA in tokens; left out, one that is short enough to drop something
    #[arg(long, value_name = "TOKENS")]
    window: Option<NonZeroUsize>,
    /// The layers to show, from 0, as a comma list; left out, all
    #[arg(long, value_delimiter = ',', value_name = "LAYERS")]
    layers: Vec<usize>,
    /// Show the other variants with the weights of MODEL, converted, even if trained ones lie beside it
    #[arg(long)]
    convert: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Language {
    En,
    Ja,
}

impl From<ExplainError> for Failure {
    fn from(error: ExplainError) -> Self {
        use ExplainError as E;
        match error {
            E::Engine(error) => error.into(),
            E::Differs { .. } | E::Template(_) | E::Json(_) => Self::Run(error.to_string()),
            _ => Self::Request(error.to_string()),
        }
    }
}

pub fn explain(args: &Args) -> Outcome {
    let config = load::config(&args.model)?;
    let request = Request {
        text: args.text.clone(),
        new_tokens: args.max_new_tokens,
        window: args.window,
        layers: args.layers.clone(),
        convert: args.convert,
    };
    let bar = Bar::new();
    let trace = kvlab_explain::trace(&args.model.file, &config, &request, &mut |what, done, total| {
        bar.at(what, done, total);
    })?;
    drop(bar);
    let language = match args.lang {
        Language::En => kvlab_explain::Language::En,
        Language::Ja => kvlab_explain::Language::Ja,
    };
    let page = kvlab_explain::page(&trace, language)?;
    let written = std::fs::write(&args.out, &page);
    written.map_err(|error| Failure::Request(format!("{}: {error}", args.out.display())))?;
    println!("{}", table(&trace));
    for missing in &trace.missing {
        println!("{} is not shown: {}", missing.name, missing.reason);
    }
    println!("\nwritten to {} ({} KB)", args.out.display(), page.len().div_ceil(1000));
    Ok(())
}

/// What the page counts, for each variant, in one of its layers.
fn table(trace: &Trace) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY);
    let columns = [
        "cache",
        "weights",
        "bytes a token",
        "K/V rows without",
        "with",
        "scores without",
        "with",
    ];
    table.set_header(columns);
    for i in 2..columns.len() {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for variant in &trace.variants {
        table.add_row(row(variant));
    }
    table
}

fn row(variant: &Variant) -> [String; 7] {
    let weights = match variant.source {
        Source::Own | Source::Sibling => variant.model.clone(),
        Source::Converted => format!("{}, converted", variant.model),
    };
    let total = |count: &dyn Fn(&kvlab_explain::Layer) -> usize| {
        variant
            .layers
            .first()
            .map_or_else(String::new, |layer| count(layer).to_string())
    };
    [
        variant.name.clone(),
        weights,
        variant.bytes_per_token.to_string(),
        total(&|layer| layer.without.iter().map(|c| c.rows).sum()),
        total(&|layer| layer.with.iter().map(|c| c.rows).sum()),
        total(&|layer| layer.without.iter().map(|c| c.new + c.again).sum()),
        total(&|layer| layer.with.iter().map(|c| c.new + c.again).sum()),
    ]
}
