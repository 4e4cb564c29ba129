//! Reading `[[variant]]` tables: name, base, and what each changes.

use crate::document::{Entry, Table, Value, shorten};
use crate::edit::Assignment;
use crate::experiment::base::Bases;
use crate::experiment::budget::read_fit;
use crate::experiment::cells::Variant;
use crate::experiment::overrides::{TABLES, assignments, refuse_repeats};
use crate::section::{Field, Findings, Section};
use crate::source::Sources;

/// The variants of the file; one without a name when it has none.
pub(super) fn read_variants(
    section: &mut Section<'_>,
    base: Option<&Field<'_>>,
    sources: &mut Sources,
    findings: &mut Findings,
) -> Vec<Variant> {
    let mut bases = Bases::default();
    let shared = base.and_then(|field| bases.read(field, sources, findings));
    let Some(list) = section.take("variant") else {
        if base.is_none() {
            section.require(
                "base",
                "base = \"../models/x.toml\", or a base in each [[variant]]",
                findings,
            );
        }
        let at = section.at().clone();
        return vec![Variant {
            name: None,
            note: None,
            base: shared,
            assignments: Vec::new(),
            swept: true,
            fit: None,
            at,
        }];
    };
    let mut variants: Vec<Variant> = Vec::new();
    let mut base_used = false;
    for field in list.list("`[[variant]]` tables", findings) {
        let mut own = Section::new(&field.path, field.node, findings);
        let name = read_name(&mut own, &variants, findings);
        let note = own
            .take("note")
            .and_then(|field| field.text(findings))
            .map(str::to_owned);
        let own_base = own.take("base");
        base_used |= own_base.is_none();
        if own_base.is_none() && base.is_none() {
            let message = format!("variant `{}` has no base model file", shorten(&name));
            let help = "write `base = \"../models/x.toml\"` in it, or at the top of the file for all".to_owned();
            findings.add(own.at(), message, Some(help));
        }
        let base = match &own_base {
            Some(field) => bases.read(field, sources, findings),
            None => shared.clone(),
        };
        let swept = own
            .take("sweep")
            .and_then(|field| field.boolean(findings))
            .unwrap_or(true);
        let fit = own.take("fit");
        let fit = fit.and_then(|field| Some((read_fit(&field, findings)?, field.key_at.clone())));
        let assignments = read_assignments(&mut own, &name, findings);
        let at = own.at().clone();
        own.finish(findings);
        variants.push(Variant {
            name: Some(name),
            note,
            base,
            assignments,
            swept,
            fit,
            at,
        });
    }
    if let (false, Some(base)) = (base_used || variants.is_empty(), base) {
        let message = "`base` has no effect: every variant has its own".to_owned();
        findings.add(base.key_at, message, Some("remove the key".to_owned()));
    }
    variants
}

fn read_name(section: &mut Section<'_>, earlier: &[Variant], findings: &mut Findings) -> String {
    let Some(field) = section.require("name", "name = \"gqa\"", findings) else {
        return String::new();
    };
    let Some(name) = field.text(findings) else {
        return String::new();
    };
    if name.chars().any(char::is_control) || name.chars().count() > 100 {
        let message = format!(
            "`{}` must be one line of at most 100 characters, and is \"{}\"",
            field.path,
            shorten(name)
        );
        findings.add(field.at(), message, None);
    }
    if earlier.iter().any(|variant| variant.name.as_deref() == Some(name)) {
        let message = format!("two variants are called `{}`", shorten(name));
        findings.add(field.at(), message, Some("each needs its own name".to_owned()));
    }
    name.to_owned()
}

/// What a variant changes: its `set`, and its nested tables.
fn read_assignments(section: &mut Section<'_>, name: &str, findings: &mut Findings) -> Vec<Assignment> {
    let mut all = Vec::new();
    if let Some(set) = section.take("set") {
        match &set.node.value {
            Value::Table(table) => all.extend(assignments(table, findings)),
            // Reports that it is no table.
            _ => Section::new(&set.path, set.node, findings).finish(findings),
        }
    }
    for key in TABLES {
        if let Some(field) = section.take(key) {
            let entry = Entry {
                key: key.to_owned(),
                key_at: field.key_at.clone(),
                node: field.node.clone(),
            };
            all.extend(assignments(&Table(vec![entry]), findings));
        }
    }
    refuse_repeats(&all, &format!("variant `{}`", shorten(name)), findings);
    all
}
