//! `kvlab inspect`: a config as it is understood, and the bytes that follow from it.

use crate::failure::{Failure, Outcome};
use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use kvlab_config::{Capacity, Experiment, ModelConfig};
use kvlab_core::{CacheSpec, Exactness, LayerSpec, Value};
use kvlab_engine::{CachePlan, OpenDevice, Origin, registry};
use std::path::PathBuf;

/// The lengths that totals are given for.
const LENGTHS: [(&str, usize); 3] = [("1K", 1 << 10), ("8K", 8 << 10), ("128K", 128 << 10)];

#[derive(clap::Args)]
pub struct Args {
    /// A model file or an experiment file
    file: PathBuf,
    /// Override a key of the file
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
}

pub fn inspect(args: &Args) -> Outcome {
    if is_experiment(&args.file) {
        let experiment = registry::with_known(|known| Experiment::load(&args.file, &args.sets, known))?;
        for cell in experiment.cells() {
            println!("# cell {}\n", cell.name);
            show(&cell.config)?;
        }
        return Ok(());
    }
    let config = registry::with_known(|known| ModelConfig::load(&args.file, &args.sets, known))?;
    show(&config)
}

/// An experiment has a workload, a model file has none. A file that cannot be read is reported by whoever loads it.
fn is_experiment(file: &std::path::Path) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().any(|line| line.trim_start().starts_with("[workload]"))
}

fn show(config: &ModelConfig) -> Outcome {
    let resolved = config.to_toml().map_err(|e| Failure::Request(e.to_string()))?;
    println!("{resolved}");
    let origin = Origin::open(&config.model)?;
    let model = &origin.spec;
    println!(
        "model       {}, {} parameters, {} layers, at most {} positions",
        model.family(),
        count(model.parameters()),
        model.layers(),
        model.max_positions()
    );
    println!("weights     {}\n", origin.fingerprint);
    // The device decides nothing about bytes, and nothing is allocated.
    let device = OpenDevice::open(kvlab_config::Device::Cpu)?.device;
    let plan = CachePlan::new(model, &config.cache, &device)?;
    let spec = plan.spec()?;
    println!("{}\n", layers(&spec));
    match &spec.exactness {
        Exactness::Exact => {
            println!("output      that of the model's own attention, up to rounding of the number format")
        }
        Exactness::Lossy(reasons) => println!("output      LOSSY: {}", reasons.join("; ")),
    }
    println!("a token     {}", spec.per_token());
    let mut seals: Vec<_> = spec.layers.iter().filter_map(|layer| layer.seal.as_ref()).collect();
    seals.dedup();
    for seal in seals {
        let (block, residual, open) = (seal.block, seal.residual, &seal.open.name);
        println!("open rows   packed {block} at a time once {residual} newer ones exist, in {open} until then");
    }
    let mut wide = config.cache.clone();
    if wide.variant.as_deref() != Some("none") {
        wide.capacity = Some(Capacity::Tokens(LENGTHS[2].1));
    }
    let wide = CachePlan::new(model, &wide, &device)?;
    let wide = wide.spec()?;
    for (name, tokens) in LENGTHS {
        println!("{name:<11} {} a sequence", wide.used_at(tokens));
    }
    println!(
        "allocated   {} for {} sequences of {} tokens",
        spec.allocated(),
        spec.sequences,
        spec.capacity
    );
    Ok(())
}

/// Layers that are alike share a line.
fn layers(spec: &CacheSpec) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY);
    table.set_header([
        "layers",
        "variant",
        "layout",
        "row",
        "sees",
        "keeps",
        "K",
        "V",
        "rows",
        "bytes/token",
    ]);
    let mut lines: Vec<(Vec<usize>, LayerSpec)> = Vec::new();
    for layer in &spec.layers {
        let alike = |other: &LayerSpec| {
            LayerSpec {
                layer: layer.layer,
                ..other.clone()
            } == *layer
        };
        match lines.iter_mut().find(|(_, other)| alike(other)) {
            Some((ids, _)) => ids.push(layer.layer.0),
            None => lines.push((vec![layer.layer.0], layer.clone())),
        }
    }
    for (ids, layer) in lines {
        table.add_row([
            ranges(&ids),
            layer.variant.clone(),
            layer.layout.clone(),
            row(&layer),
            layer.visibility.to_string(),
            layer.retention.to_string(),
            layer.key.name.clone(),
            match layer.row.value {
                Value::Own(_) => layer.value.name.clone(),
                Value::PrefixOfKey(_) => "in K".to_owned(),
            },
            layer.rows_per_sequence.to_string(),
            layer.per_token().0.to_string(),
        ]);
    }
    for column in [8, 9] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn row(layer: &LayerSpec) -> String {
    let row = layer.row;
    match row.value {
        Value::Own(value) if value == row.key => format!("{} x 2 x {value}", row.heads),
        Value::Own(value) => format!("{} x ({} + {value})", row.heads, row.key),
        Value::PrefixOfKey(rank) => format!("{rank} + {}", row.key - rank),
    }
}

/// `0-3, 5`.
fn ranges(ids: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &id in ids {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == id => *last = id,
            _ => parts.push((id, id)),
        }
    }
    let text = parts
        .iter()
        .map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    text.collect::<Vec<_>>().join(", ")
}

/// `8.03 B`, `135 M`.
fn count(n: u64) -> String {
    let n = n as f64;
    match n {
        n if n >= 1e9 => format!("{:.2} B", n / 1e9),
        n if n >= 1e6 => format!("{:.1} M", n / 1e6),
        n => format!("{:.1} K", n / 1e3),
    }
}
