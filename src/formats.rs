//! `kvlab formats`: which caches a model can have, as a Markdown table.

use crate::failure::Outcome;
use crate::{Model, load};
use kvlab_engine::combinations::{self, Combination, Outcome as Became};
use kvlab_engine::{OpenDevice, Origin};
use std::fmt::Write as _;

pub fn formats(model: &Model) -> Outcome {
    let config = load::config(model)?;
    let origin = Origin::open(&config.model)?;
    let device = OpenDevice::open(config.backend.device)?;
    let shape = origin.spec.attention(0);
    let dims = match shape.latent {
        Some(latent) => latent.rank | latent.rope | shape.key | shape.value,
        None => shape.key | shape.value,
    };
    let formats = combinations::formats(dims);
    let all = combinations::combinations(&origin.spec, &device.device, &formats);
    let names: Vec<_> = formats.iter().map(|format| format.name).collect();
    print!("{}", table(&config.name, &names, &all));
    Ok(())
}

fn table(model: &str, formats: &[&str], all: &[Combination]) -> String {
    let mut text = format!("### {model}\n\n| variant | layout | {} |\n", formats.join(" | "));
    text += &format!("|---|---|{}\n", "---|".repeat(formats.len()));
    let mut reasons: Vec<&str> = Vec::new();
    for combination in all {
        let cells = combination.outcomes.iter().map(|outcome| match outcome {
            Became::Exact => "exact".to_owned(),
            Became::Lossy {
                bits, variant: true, ..
            } if *bits >= 16.0 => "lossy".to_owned(),
            Became::Lossy { bits, error, variant } => {
                let bound = if error.is_finite() {
                    format!("±{error:.3}")
                } else {
                    "saturates".into()
                };
                format!("{}{bits:.2} bits, {bound}", if *variant { "lossy, " } else { "" })
            }
            Became::Refused(reason) => {
                let known = reasons.iter().position(|r| r == reason);
                let place = known.unwrap_or_else(|| {
                    reasons.push(reason);
                    reasons.len() - 1
                });
                format!("refused ({})", place + 1)
            }
        });
        let cells = cells.collect::<Vec<_>>().join(" | ");
        let _ = writeln!(text, "| {} | {} | {cells} |", combination.variant, combination.layout);
    }
    text += "\n";
    for (i, reason) in reasons.iter().enumerate() {
        let _ = writeln!(text, "{}. {reason}", i + 1);
    }
    text + "\n"
}
