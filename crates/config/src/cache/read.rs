//! Reading `[cache]`: which keys have an effect with the chosen variant and layout.

use std::collections::BTreeSet;

use crate::cache::{CacheConfig, CodecSpec, LayerOverride, default_prefill_chunk, default_sequences};
use crate::capacity::{Capacity, CapacityError};
use crate::document::Value;
use crate::known::{Known, VariantInfo};
use crate::options::{Choice, Chosen, take_options};
use crate::section::{Field, Findings, Section};

/// Layouts that are planned; a registry that has one takes precedence.
const LAYOUTS_RESERVED: [&str; 1] = ["paged"];
/// Keys that are planned; a registry that declares one takes precedence.
const KEYS_RESERVED: [(&str, &str); 2] = [
    ("page_size", "it belongs to the layout `paged`"),
    ("prefix_sharing", "rows shared by sequences with the same beginning"),
];

impl CacheConfig {
    pub(crate) fn read(mut section: Section<'_>, known: &Known<'_>, findings: &mut Findings) -> Self {
        let mut cache = Self::default();

        let variants: Vec<(&str, &VariantInfo)> = known.variants.iter().map(|info| (info.name, info)).collect();
        let variant_field = section.take("variant");
        let variant = variant_field
            .as_ref()
            .and_then(|field| field.choice(&variants, &[], findings));
        cache.variant = variant.map(|info| info.name.to_owned());

        let layouts: Vec<(&str, &str)> = known.layouts.iter().map(|info| (info.name, info.name)).collect();
        let layout_field = section.take("layout");
        let layout = layout_field
            .as_ref()
            .and_then(|field| field.choice(&layouts, &LAYOUTS_RESERVED, findings));
        cache.layout = layout.map(str::to_owned);

        let capacity_field = section.take("capacity");
        cache.capacity = capacity_field.as_ref().and_then(|field| read_capacity(field, findings));
        let key_field = section.take("key");
        cache.key = key_field
            .as_ref()
            .and_then(|field| CodecSpec::read(field, known.codecs, findings));
        let value_field = section.take("value");
        cache.value = value_field
            .as_ref()
            .and_then(|field| CodecSpec::read(field, known.codecs, findings));
        let residual_field = section.take("residual");
        cache.residual = residual_field.as_ref().and_then(|field| field.whole(0, findings));
        let layers_field = section.take("layer");
        cache.layers = layers_field
            .as_ref()
            .map(|field| read_layers(field, known, findings))
            .unwrap_or_default();

        let sequences = section.take("sequences").and_then(|field| field.whole(1, findings));
        cache.sequences = sequences.unwrap_or_else(default_sequences);
        let prefill_chunk = section.take("prefill_chunk").and_then(|field| field.whole(1, findings));
        cache.prefill_chunk = prefill_chunk.unwrap_or_else(default_prefill_chunk);

        let choices = [
            Choice {
                word: "variant",
                path: "cache.variant".to_owned(),
                chosen: chosen(variant_field.is_some(), variant.map(|info| info.name)),
                all: known.variants.iter().map(|info| (info.name, info.options)).collect(),
            },
            Choice {
                word: "layout",
                path: "cache.layout".to_owned(),
                chosen: chosen(layout_field.is_some(), layout),
                all: known.layouts.iter().map(|info| (info.name, info.options)).collect(),
            },
        ];
        for (option, field) in take_options(&mut section, &choices, findings) {
            match option {
                "num_key_value_heads" => cache.num_key_value_heads = field.whole(1, findings),
                "window" => cache.window = field.whole(1, findings),
                "sinks" => cache.sinks = field.whole(0, findings),
                "kv_lora_rank" => cache.kv_lora_rank = field.whole(1, findings),
                _ => cache
                    .options
                    .extend(field.node.to_toml().map(|value| (option.to_owned(), value))),
            }
        }
        if cache.sinks.is_none() && variant.is_some_and(|info| info.options.contains(&"sinks")) {
            cache.sinks = Some(0);
        }
        if let Some(info) = variant.filter(|info| !info.stores_rows) {
            for field in [
                layout_field,
                capacity_field,
                key_field,
                value_field,
                residual_field,
                layers_field,
            ]
            .into_iter()
            .flatten()
            {
                findings.add(
                    field.key_at,
                    format!(
                        "`{}` has no effect with variant `{}`, which stores no rows",
                        field.path, info.name
                    ),
                    Some("remove the key, or `unset` it".to_owned()),
                );
            }
        }
        section.finish_with(&KEYS_RESERVED, findings);
        cache
    }
}

fn chosen(present: bool, name: Option<&str>) -> Chosen<'_> {
    match name {
        Some(name) => Chosen::Name(name),
        None if present => Chosen::Unclear,
        None => Chosen::Nothing,
    }
}

fn read_capacity(field: &Field<'_>, findings: &mut Findings) -> Option<Capacity> {
    let text = match &field.node.value {
        Value::Integer(tokens) => tokens.to_string(),
        Value::HugeInteger(tokens) => tokens.clone(),
        _ => field.text(findings)?.to_owned(),
    };
    let error = match text.parse() {
        Ok(capacity) => return Some(capacity),
        Err(error) => error,
    };
    let help = match error {
        CapacityError::Zero | CapacityError::TooLarge(_) | CapacityError::AmbiguousUnit(..) => None,
        _ => Some("for example \"8192 tokens\" or \"2 GiB\"; units: tokens, B, KiB, MiB, GiB, TiB".to_owned()),
    };
    findings.add(field.at(), format!("`{}`: {error}", field.path), help);
    None
}

fn read_layers(field: &Field<'_>, known: &Known<'_>, findings: &mut Findings) -> Vec<LayerOverride> {
    let mut named = BTreeSet::new();
    let entries = field.list("`[[cache.layer]]` tables", findings);
    entries
        .iter()
        .map(|entry| read_layer(entry, known, &mut named, findings))
        .collect()
}

fn read_layer(
    entry: &Field<'_>,
    known: &Known<'_>,
    named: &mut BTreeSet<usize>,
    findings: &mut Findings,
) -> LayerOverride {
    let mut section = Section::new(&entry.path, entry.node, findings);
    let mut layers = Vec::new();
    if let Some(list) = section.require("layers", "layers = [0, 29]", findings) {
        for item in list.list("layer indices", findings) {
            let Some(layer) = item.whole(0, findings) else { continue };
            if !named.insert(layer) {
                let help = "name each layer once in all of `[[cache.layer]]`".to_owned();
                findings.add(item.at(), format!("layer {layer} is named twice"), Some(help));
            }
            layers.push(layer);
        }
    }
    let (key, value) = (section.take("key"), section.take("value"));
    if key.is_none() && value.is_none() && !section.is_absent() {
        let message = format!("`{}` changes nothing: it has neither `key` nor `value`", entry.path);
        findings.add(section.at(), message, Some("for example key = \"f16\"".to_owned()));
    }
    let key = key.and_then(|field| CodecSpec::read(&field, known.codecs, findings));
    let value = value.and_then(|field| CodecSpec::read(&field, known.codecs, findings));
    section.finish(findings);
    LayerOverride { layers, key, value }
}
