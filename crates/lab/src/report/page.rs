//! `report.html`: the report as one file that asks for nothing from anywhere.

use super::answer::{self, Candidate};
use super::figure::{Figure, Plot};
use super::tables::{self, Table};
use super::{Report, footnotes, notes, number};
use crate::LabError;
use minijinja::{AutoEscape, Environment, Value, context};
use serde::Serialize;
use sha2::{Digest, Sha256};

const PAGE: &str = include_str!("page/report.html");
const TABLE: &str = include_str!("page/table.html");
const CSS: &str = include_str!("page/report.css");
const SCRIPT: &str = include_str!("page/report.js");

/// Candidates that are named after the best.
const OTHERS: usize = 3;

/// The page. Names, notes and errors come from whoever wrote the experiment: they are text everywhere, and the page allows no
/// script but its own, by its hash.
///
/// # Errors
/// [`LabError::Write`].
pub(super) fn page(report: &Report<'_>, figures: &[Figure], files: &[(String, String)]) -> Result<String, LabError> {
    let mut templates = Environment::new();
    templates.set_auto_escape_callback(|_| AutoEscape::Html);
    let added = [("report.html", PAGE), ("table.html", TABLE)].map(|(name, text)| templates.add_template(name, text));
    let refused = |error: minijinja::Error| LabError::Write {
        what: "report.html",
        reason: format!("{error:#}"),
    };
    for added in added {
        added.map_err(refused)?;
    }
    let runs: Vec<RunView> = report
        .runs
        .iter()
        .map(|(label, comparison)| RunView::new(label, comparison))
        .collect();
    let details = tables::details(&report.rows)?;
    let footnotes = footnotes(&report.rows).into_iter().map(|(mark, reasons)| {
        let notes = reasons.into_iter().map(|(reason, cells)| (cells.join(", "), reason));
        context! { sign => mark.sign().to_string(), meaning => mark.meaning(), notes => notes.collect::<Vec<_>>() }
    });
    let notes: Vec<(String, &str)> = notes(&report.rows)
        .into_iter()
        .map(|(note, cells)| (cells.join(", "), note))
        .collect();
    let groups = Groups::new(report);
    let views: Vec<Value> = figures.iter().map(view_of_figure).collect();
    let page = templates.get_template("report.html").map_err(refused)?;
    page.render(context! {
        css => Value::from_safe_string(CSS.to_owned()),
        script => Value::from_safe_string(SCRIPT.to_owned()),
        script_hash => Value::from_safe_string(format!("sha256-{}", base64(&Sha256::digest(SCRIPT)))),
        title => report.title(),
        version => env!("CARGO_PKG_VERSION"),
        several => report.is_several(),
        runs,
        differences => report.differences(),
        at_length => report.at_length(),
        answer => groups.first_answer(),
        groups => groups.choices(report),
        data => groups.data(),
        result => view_of_table(&tables::result(&report.rows)?),
        footnotes => footnotes.collect::<Vec<_>>(),
        notes,
        figures => views,
        details => details.iter().map(view_of_table).collect::<Vec<_>>(),
        method => report.method(),
        files,
    })
    .map_err(refused)
}

#[derive(Serialize)]
struct RunView {
    label: String,
    summary: String,
    debug: bool,
    facts: Vec<(String, String)>,
    command: String,
    config: String,
}

impl RunView {
    fn new(label: &str, comparison: &crate::Comparison) -> Self {
        Self {
            label: label.to_owned(),
            summary: unmarked(&comparison.summary()),
            debug: comparison.environment.build == "debug",
            facts: comparison.environment.lines(),
            command: comparison.again(),
            config: comparison
                .experiment
                .to_toml()
                .unwrap_or_else(|error| error.to_string()),
        }
    }
}

/// A text without the marks of Markdown that tables have for code.
fn unmarked(text: &str) -> String {
    text.replace('`', "")
}

fn view_of_table(table: &Table) -> Value {
    let lines = table.lines.iter().map(|line| {
        let cells = line.iter().zip(&table.header).map(|(text, (_, number))| {
            let key = if *number { number::key(text) } else { text.clone() };
            context! { text, number, key }
        });
        cells.collect::<Vec<_>>()
    });
    context! {
        name => table.name,
        title => table.title,
        about => &table.about,
        header => table.header.iter().map(|(name, right)| (unmarked(name), right)).collect::<Vec<_>>(),
        lines => lines.collect::<Vec<_>>(),
        remarks => table.remarks.iter().map(|remark| unmarked(remark)).collect::<Vec<_>>(),
    }
}

fn view_of_figure(figure: &Figure) -> Value {
    let plots = [("wide", &figure.wide, 0), ("narrow", &figure.narrow, 1)].map(|(frame, svg, i)| {
        let data = figure.plots.as_ref().map(|plots| numbers(&plots[i]));
        context! { frame, data, svg => Value::from_safe_string(inline(svg, &figure.title)) }
    });
    context! { name => &figure.name, title => &figure.title, caption => &figure.caption, plots => plots.to_vec() }
}

fn numbers(plot: &Plot) -> String {
    format!(
        "{} {} {} {} {} {}",
        plot.x.0, plot.x.1, plot.y.0, plot.y.1, plot.ends.0, plot.ends.1
    )
}

/// An SVG as part of a page: an image with a name, as wide as its place.
fn inline(svg: &str, title: &str) -> String {
    let mut name = String::new();
    for c in title.chars() {
        match c {
            '&' => name.push_str("&amp;"),
            '<' => name.push_str("&lt;"),
            '"' => name.push_str("&quot;"),
            c => name.push(c),
        }
    }
    svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{name}\" "), 1)
}

/// What can be chosen among, in each group.
struct Groups<'a> {
    report: &'a Report<'a>,
    ranked: Vec<Vec<Candidate>>,
    budgets: Vec<f64>,
    /// The group that the page begins with: the one with the most cells.
    first: usize,
}

#[derive(Serialize)]
struct Choice {
    name: String,
    row: usize,
    bytes: f64,
    loss: String,
    tiles: Vec<(&'static str, String)>,
    brief: String,
}

impl<'a> Groups<'a> {
    fn new(report: &'a Report<'a>) -> Self {
        let ranked: Vec<Vec<Candidate>> = (0..report.groups.len())
            .map(|group| answer::ranked(report, group))
            .collect();
        let asked = report
            .runs
            .iter()
            .find_map(|(_, comparison)| comparison.experiment.report?.bytes_per_token());
        let budgets = ranked
            .iter()
            .map(|ranked| asked.map_or_else(|| answer::first_budget(ranked), |bytes| bytes as f64));
        let most = ranked.iter().map(Vec::len).max().unwrap_or(0);
        Self {
            report,
            budgets: budgets.collect(),
            first: ranked.iter().position(|ranked| ranked.len() == most).unwrap_or(0),
            ranked,
        }
    }

    fn choices(&self, report: &Report<'_>) -> Vec<Value> {
        let groups = report.groups.iter().enumerate();
        groups
            .map(|(i, name)| context! { name, first => i == self.first })
            .collect()
    }

    /// The answer for the first group and its first budget; `None` where no cell keeps rows.
    fn first_answer(&self) -> Option<Value> {
        let ranked = self.ranked.get(self.first)?;
        let budget = *self.budgets.get(self.first)?;
        let best = answer::best(ranked, budget);
        let smallest = ranked.iter().min_by(|a, b| a.bytes.total_cmp(&b.bytes))?;
        let within = ranked.iter().filter(|candidate| candidate.bytes <= budget);
        let others: Vec<Choice> = within
            .skip(1)
            .take(OTHERS)
            .map(|candidate| self.choice(candidate))
            .collect();
        Some(context! {
            budget => number::exact(kib(budget)),
            lead => if best.is_some() { "Use" } else { "Nothing here fits. The smallest is" },
            pick => self.choice(best.unwrap_or(smallest)),
            others,
            lossless => self.lossless(self.first),
        })
    }

    /// All that the page's script needs.
    fn data(&self) -> Value {
        let groups = self
            .ranked
            .iter()
            .map(|ranked| ranked.iter().map(|c| self.choice(c)).collect::<Vec<_>>());
        context! {
            first => self.first,
            groups => groups.collect::<Vec<_>>(),
            budgets => self.budgets.iter().map(|budget| kib(*budget)).collect::<Vec<_>>(),
            lossless => (0..self.ranked.len()).map(|group| self.lossless(group)).collect::<Vec<_>>(),
        }
    }

    fn lossless(&self, group: usize) -> String {
        match self.ranked[group].iter().find(|candidate| candidate.is_exact()) {
            Some(exact) => format!(
                "The smallest cache here that is exact up to rounding takes {} a token: {}.",
                number::bytes(exact.bytes.ceil() as u64),
                self.report.rows[exact.row].cell
            ),
            None => "No cache here is exact up to rounding.".to_owned(),
        }
    }

    fn choice(&self, candidate: &Candidate) -> Choice {
        let row = &self.report.rows[candidate.row];
        let bytes = number::bytes(candidate.bytes.ceil() as u64);
        let quality = row.quality.as_ref();
        let exact = candidate.is_exact();
        let loss = match (exact, quality) {
            (true, _) => "You lose nothing but rounding: it is the model's own attention.".to_owned(),
            (false, Some(q)) => {
                let interval = q.perplexity_change_interval().map_or(String::new(), |[low, high]| {
                    format!(", 95 % interval {} to {}", number::change(low), number::change(high))
                });
                format!(
                    "You lose: perplexity {} % ({} to {}{interval}), and {} % of the next tokens become others. Why: {}.",
                    number::change(q.perplexity_change_percent()),
                    number::short(q.oracle_perplexity),
                    number::short(q.perplexity),
                    number::short(100.0 - q.top1_percent),
                    row.lossy.join("; ")
                )
            }
            (false, None) => format!("What you lose was not measured. It is lossy: {}.", row.lossy.join("; ")),
        };
        let mut tiles = vec![("Bytes a token", bytes.clone())];
        if let Some(q) = quality {
            tiles.push((
                "Perplexity",
                format!("{} %", number::change(q.perplexity_change_percent())),
            ));
            tiles.push(("KL, nats a token", number::small(q.kl_mean)));
            tiles.push(("Same next token", format!("{} %", number::share(q.top1_percent))));
        }
        if let Some(speed) = row.speed.iter().max_by_key(|speed| speed.prompt_tokens) {
            let gaps = speed.gaps.as_ref();
            tiles.extend(gaps.map(|gaps| ("ITL, median", format!("{} ms", number::short(gaps.p50)))));
        }
        let brief = match quality {
            Some(q) if !exact => format!(
                "{bytes}, perplexity {} %",
                number::change(q.perplexity_change_percent())
            ),
            _ if exact => format!("{bytes}, exact up to rounding"),
            _ => format!("{bytes}, lossy"),
        };
        Choice {
            name: row.cell.clone(),
            row: candidate.row,
            bytes: candidate.bytes,
            // A number and its sign stay in one line.
            loss: loss.replace(" %", "\u{a0}%"),
            tiles,
            brief,
        }
    }
}

/// Bytes in KiB, for a field that a person edits.
fn kib(bytes: f64) -> f64 {
    let kib = bytes / 1024.0;
    let digits = 10.0_f64.powi(2 - kib.max(1e-3).log10().floor() as i32);
    (kib * digits).ceil() / digits
}

/// Base64 with padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, i| {
            (bits << 8) | u32::from(three.get(i).copied().unwrap_or(0))
        });
        for digit in 0..4 {
            let value = ((bits >> (18 - 6 * digit)) & 63) as usize;
            text.push(if digit <= three.len() {
                DIGITS[value] as char
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_in_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn a_budget_is_rounded_up_so_that_it_still_fits() {
        assert_eq!([8192.0, 6480.0, 260.0, 138_240.0].map(kib), [8.0, 6.33, 0.254, 135.0]);
        assert!(kib(6480.0) * 1024.0 >= 6480.0);
    }
}
