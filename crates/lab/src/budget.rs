//! All cells at one size: what a budget allows, and the setting of each cell that keeps it.

use kvlab_config::{Budget, Cell, CodecSpec, Experiment, Fit, ModelConfig, Workload};
use kvlab_core::{Bytes, CacheSpec, Format};
use kvlab_engine::{CachePlan, EngineError, OpenDevice, Origin, registry};
use std::collections::BTreeMap;

/// The experiment with what its budget decides, and the cells that cannot keep it with the reason of each. Headers of model
/// files are read, no weights. Without a budget nothing changes.
pub(crate) fn apply(experiment: &Experiment) -> (Experiment, BTreeMap<String, String>) {
    let mut fitted = experiment.clone();
    let mut refused = BTreeMap::new();
    if let Some(budget) = experiment.budget {
        let tokens = longest(&experiment.workload);
        fitted.fit(|cell| match keep(cell, budget, tokens) {
            Ok(()) => {}
            Err(reason) => {
                refused.insert(cell.name.clone(), reason);
            }
        });
    }
    (fitted, refused)
}

/// The most tokens that a sequence of the workload comes to, whatever of it is measured.
fn longest(workload: &Workload) -> usize {
    let prompts = workload.prompts.iter().map(|prompt| prompt + workload.new_tokens);
    let recall = workload.recall.iter().flat_map(|task| task.lengths.iter().copied());
    let conversation = workload.conversation.iter().map(|c| c.turns * (c.message + c.answer));
    let mix = workload.mix.iter().map(|mix| mix.prefix + mix.own + mix.answer);
    let all = prompts.chain(recall).chain(conversation).chain(mix);
    all.chain([workload.window]).max().unwrap_or(workload.window)
}

/// A model whose caches are sized.
struct Sizes<'a> {
    origin: Origin,
    device: OpenDevice,
    config: &'a ModelConfig,
    tokens: usize,
}

impl Sizes<'_> {
    /// What the cache of a changed config holds.
    fn spec(&self, change: impl FnOnce(&mut ModelConfig)) -> Result<CacheSpec, EngineError> {
        let mut config = self.config.clone();
        change(&mut config);
        CachePlan::new(&self.origin.spec, &config.cache, &self.device.device)?.spec()
    }

    /// Bytes in use at the longest text.
    fn used(&self, change: impl FnOnce(&mut ModelConfig)) -> Result<Bytes, EngineError> {
        Ok(self.spec(change)?.used_at(self.tokens))
    }

    /// The model's own attention, with every row it needs in f16.
    fn full(&self) -> Result<Bytes, EngineError> {
        let mut spec = self.spec(|config| {
            config.cache = Default::default();
            config.cache.capacity = Some(kvlab_config::Capacity::Tokens(self.tokens));
        })?;
        for layer in &mut spec.layers {
            (layer.key, layer.value) = (Format::plain("f16", 16), Format::plain("f16", 16));
            layer.seal = None;
        }
        Ok(spec.used_at(self.tokens))
    }

    /// The largest of 1 to `most` that fits.
    fn largest(&self, most: usize, allowed: Bytes, set: fn(&mut ModelConfig, usize)) -> Result<Option<usize>, String> {
        let (mut fits, mut beyond) = (0, most + 1);
        while fits + 1 < beyond {
            let middle = fits + (beyond - fits) / 2;
            match self
                .used(|config| set(config, middle))
                .map_err(|error| error.to_string())?
            {
                used if used <= allowed => fits = middle,
                _ => beyond = middle,
            }
        }
        Ok(Some(fits).filter(|&fits| fits > 0))
    }
}

/// Changes the cell so that it keeps the budget.
fn keep(cell: &mut Cell, budget: Budget, tokens: usize) -> Result<(), String> {
    if cell.fit == Some(Fit::Unlimited) {
        return Ok(());
    }
    let config = cell.config.clone();
    let text = |error: EngineError| error.to_string();
    let sizes = Sizes {
        origin: Origin::open(&config.model).map_err(text)?,
        device: OpenDevice::open(config.backend.device).map_err(text)?,
        config: &config,
        tokens,
    };
    let full = sizes.full().map_err(text)?;
    let allowed = Bytes((full.0 as f64 * budget.percent / 100.0) as u64);
    let limit = format!("{allowed}: {budget} of the {full} of the model's own cache in f16 at {tokens} tokens");
    let Some(fit) = cell.fit else {
        let used = sizes.used(|_| {}).map_err(text)?;
        return match used <= allowed {
            true => Ok(()),
            false => Err(format!(
                "its cache uses {used}, and the budget is {limit}; let the budget choose with fit = \"window\", \"codec\", \
                 \"rank\" or \"heads\", let the cell be (fit = \"unlimited\"), or raise it"
            )),
        };
    };
    takes(fit, &config)?;
    let shape = sizes.origin.spec.attention(0);
    let chosen = match fit {
        Fit::Window => {
            let found = sizes.largest(tokens, allowed, |config, n| config.cache.window = Some(n))?;
            found
                .inspect(|&n| cell.config.cache.window = Some(n))
                .map(|n| n.to_string())
        }
        Fit::Rank => {
            let most = shape.kv_heads * shape.value;
            let found = sizes.largest(most, allowed, |config, n| config.cache.kv_lora_rank = Some(n))?;
            found
                .inspect(|&n| cell.config.cache.kv_lora_rank = Some(n))
                .map(|n| n.to_string())
        }
        Fit::Heads => {
            let heads = (1..=shape.kv_heads).rev().filter(|n| shape.kv_heads.is_multiple_of(*n));
            let fits = |n: &usize| {
                let used = sizes.used(|config| config.cache.num_key_value_heads = Some(*n));
                used.is_ok_and(|used| used <= allowed)
            };
            let found = heads.into_iter().find(fits);
            found
                .inspect(|&n| cell.config.cache.num_key_value_heads = Some(n))
                .map(|n| n.to_string())
        }
        Fit::Unlimited => return Ok(()),
        Fit::Codec => codec(&sizes, allowed).map(|(set, name)| {
            set(&mut cell.config, &name);
            name
        }),
    };
    let keys = fit.keys().join(" and ");
    let Some(chosen) = chosen else {
        return Err(format!("no {keys} keeps the budget of {limit}; raise it"));
    };
    let note = format!("{keys} = {chosen}, the most that {budget} of the full cache allow.");
    cell.note = Some(match cell.note.take() {
        Some(own) => format!("{own} {note}"),
        None => note,
    });
    Ok(())
}

type SetCodec = fn(&mut ModelConfig, &str);

/// The number format with the most bytes that fit, with its usual options, and how it is set: keys and values alike, or the
/// keys alone where values are a part of them.
fn codec(sizes: &Sizes<'_>, allowed: Bytes) -> Option<(SetCodec, String)> {
    let both: SetCodec = |config, name| {
        config.cache.key = Some(CodecSpec::named(name));
        config.cache.value = Some(CodecSpec::named(name));
    };
    let keys: SetCodec = |config, name| config.cache.key = Some(CodecSpec::named(name));
    let names: Vec<&str> = registry::with_known(|known| known.codecs.iter().map(|codec| codec.name).collect());
    let mut best: Option<(Bytes, SetCodec, &str)> = None;
    for name in names {
        let sized = [both, keys]
            .into_iter()
            .find_map(|set| Some((sizes.used(|config| set(config, name)).ok()?, set)));
        let Some((used, set)) = sized.filter(|(used, _)| *used <= allowed) else {
            continue;
        };
        // Of equal ones the first: f16 before bf16.
        if best.is_none_or(|(most, _, _)| used > most) {
            best = Some((used, set, name));
        }
    }
    best.map(|(_, set, name)| (set, name.to_owned()))
}

/// Whether the cell's variant takes the key that a budget would choose.
fn takes(fit: Fit, config: &ModelConfig) -> Result<(), String> {
    let option = match fit {
        Fit::Codec | Fit::Unlimited => return Ok(()),
        Fit::Window => "window",
        Fit::Rank => "kv_lora_rank",
        Fit::Heads => "num_key_value_heads",
    };
    let variants = registry::variants().into_iter();
    let owners = variants
        .filter(|variant| variant.options().contains(&option))
        .map(|variant| variant.name());
    let owners: Vec<&str> = owners.collect();
    match &config.cache.variant {
        Some(variant) if owners.contains(&variant.as_str()) => Ok(()),
        _ => Err(format!(
            "its budget is to choose cache.{option}, which belongs to variant {}; set cache.variant",
            owners.join(" or ")
        )),
    }
}

#[cfg(test)]
mod tests;
