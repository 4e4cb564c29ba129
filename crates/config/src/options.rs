//! Keys that have an effect with some choices only: the options of a variant, a layout, a codec.

use crate::section::{Field, Findings, Section};

/// What a config chose: for a variant, a layout or a codec.
pub(crate) struct Choice<'a> {
    /// `variant`, `layout` or `codec`.
    pub(crate) word: &'static str,
    /// The key that chooses: `cache.variant`.
    pub(crate) path: String,
    pub(crate) chosen: Chosen<'a>,
    /// All names, each with its option keys.
    pub(crate) all: Vec<(&'static str, &'static [&'static str])>,
}

pub(crate) enum Chosen<'a> {
    /// The key is left out.
    Nothing,
    /// The key has a wrong value, which has been reported: its options are not judged.
    Unclear,
    Name(&'a str),
}

impl Choice<'_> {
    fn owners(&self, option: &str) -> Vec<&'static str> {
        self.all
            .iter()
            .filter(|(_, options)| options.contains(&option))
            .map(|(name, _)| *name)
            .collect()
    }
}

/// The option keys that are present and have an effect. A key that belongs to something else is a finding.
pub(crate) fn take_options<'t>(
    section: &mut Section<'t>,
    choices: &[Choice<'_>],
    findings: &mut Findings,
) -> Vec<(&'static str, Field<'t>)> {
    let mut names: Vec<&'static str> = Vec::new();
    for (_, options) in choices.iter().flat_map(|choice| &choice.all) {
        names.extend(
            options
                .iter()
                .filter(|option| !names.contains(option))
                .copied()
                .collect::<Vec<_>>(),
        );
    }
    let mut effective = Vec::new();
    for name in names {
        let Some(field) = section.take(name) else { continue };
        let concerned: Vec<&Choice<'_>> = choices
            .iter()
            .filter(|choice| !choice.owners(name).is_empty())
            .collect();
        let owned = |choice: &&&Choice<'_>| match choice.chosen {
            Chosen::Name(chosen) => choice.owners(name).contains(&chosen),
            Chosen::Nothing | Chosen::Unclear => false,
        };
        if concerned.iter().any(|choice| owned(&choice)) {
            effective.push((name, field));
        } else if !concerned.iter().any(|choice| matches!(choice.chosen, Chosen::Unclear)) {
            report(&field, name, &concerned, findings);
        }
    }
    effective
}

fn report(field: &Field<'_>, name: &str, concerned: &[&Choice<'_>], findings: &mut Findings) {
    let why = |choice: &&Choice<'_>| match choice.chosen {
        Chosen::Name(chosen) => format!("with {} `{chosen}`", choice.word),
        Chosen::Nothing | Chosen::Unclear => format!("while `{}` is left out", choice.path),
    };
    let owners = |choice: &&Choice<'_>| format!("{} {}", choice.word, choice.owners(name).join(" or "));
    let whys: Vec<String> = concerned.iter().map(why).collect();
    let owners: Vec<String> = concerned.iter().map(owners).collect();
    findings.add(
        field.key_at,
        format!("`{}` has no effect {}", field.path, whys.join(" and ")),
        Some(format!("it belongs to {}; remove the key", owners.join(" or "))),
    );
}
