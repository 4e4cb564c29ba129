//! What a report says of its runs in words: what was done, on what, how, and what differs between them.

use super::Report;
use crate::{Comparison, Environment};

const DATE: &str = "date";
const RATES: &str = "measured rates";

impl Comparison {
    /// What was done, in some sentences.
    pub(crate) fn summary(&self) -> String {
        let experiment = &self.experiment;
        let workload = &experiment.workload;
        let cells = match experiment.cells().len() {
            1 => "1 cell".to_owned(),
            n => format!("{n} cells"),
        };
        // Where the text is depends on the machine; the resolved config says it.
        let text = workload
            .text
            .file_name()
            .map_or_else(Default::default, |name| name.to_string_lossy());
        let mut sentences = vec![format!("{cells} on `{text}`.")];
        if experiment.measure.quality {
            let chunk = match workload.chunk {
                0 => "each in one step".to_owned(),
                1 => "token by token".to_owned(),
                n => format!("in chunks of {n}"),
            };
            let (windows, window) = (workload.windows, workload.window);
            let plural = if windows == 1 { "" } else { "s" };
            sentences.push(format!(
                "Quality: {windows} window{plural} of {window} tokens, {chunk}."
            ));
        }
        if experiment.measure.speed {
            let list = |sizes: &[usize]| sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            let (prompts, batch) = (list(&workload.prompts), list(&workload.batch));
            let (new, repeats) = (workload.new_tokens, experiment.repeats);
            sentences.push(format!(
                "Speed: prompts of {prompts} tokens, {new} tokens generated after each, batch {batch}, {repeats} repeats."
            ));
        }
        sentences.join(" ")
    }

    /// The command that runs it again.
    pub(crate) fn again(&self) -> String {
        let unknown = || "kvlab compare <the experiment file>".to_owned();
        self.command.clone().unwrap_or_else(unknown)
    }
}

impl Environment {
    /// Names and values.
    pub(crate) fn lines(&self) -> Vec<(String, String)> {
        let commit = self
            .commit
            .as_ref()
            .map_or(String::new(), |commit| format!(", commit {commit}"));
        let mut lines = vec![
            (DATE.to_owned(), self.date.clone()),
            (
                "kvlab".to_owned(),
                format!("{}{commit}, {} build", self.kvlab, self.build),
            ),
        ];
        let devices = self.devices.iter();
        lines.extend(devices.map(|(name, what)| (format!("device {name}"), what.clone())));
        let all = || format!("{} (all cores)", self.cores);
        lines.push(("threads".to_owned(), self.threads.map_or_else(all, |n| n.to_string())));
        lines.push(("system".to_owned(), self.system.clone()));
        lines.push(("seed".to_owned(), self.seed.to_string()));
        lines.extend(self.rates.map(|rates| {
            let giga = |n: f64| crate::report::number::short(n / 1e9);
            let (read, flops) = (giga(rates.read_bytes_per_second), giga(rates.f32_flops_per_second));
            let threads = rates.threads;
            let text = format!("reads {read} GB/s, computes {flops} GFLOP/s in f32, with {threads} threads");
            (RATES.to_owned(), text)
        }));
        lines
    }
}

impl Report<'_> {
    /// The names of the experiments.
    pub(crate) fn title(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for (_, comparison) in &self.runs {
            if !names.contains(&comparison.experiment.name.as_str()) {
                names.push(&comparison.experiment.name);
            }
        }
        let runs = if self.is_several() {
            format!(": {} runs", self.runs.len())
        } else {
            String::new()
        };
        names.join(", ") + &runs
    }

    /// What differs between the runs: what it is, and its value in each. A date is no difference, and neither are
    /// measured rates: two measurements are never the same.
    pub(crate) fn differences(&self) -> Vec<(String, Vec<String>)> {
        let each = |of: &dyn Fn(&Comparison) -> Vec<(String, String)>| -> Vec<Vec<(String, String)>> {
            self.runs.iter().map(|(_, comparison)| of(comparison)).collect()
        };
        let all = each(&|comparison| {
            let experiment = &comparison.experiment;
            let mut lines = vec![
                ("experiment".to_owned(), experiment.name.clone()),
                ("workload".to_owned(), comparison.summary()),
            ];
            lines.extend(comparison.environment.lines());
            lines.push(("text (SHA-256)".to_owned(), comparison.environment.text_sha256.clone()));
            let cells = experiment.cells().iter();
            lines.extend(cells.map(|cell| {
                let config = cell.config.to_toml().unwrap_or_else(|error| error.to_string());
                (format!("config of {}", cell.name), digest(&config))
            }));
            lines
        });
        let mut names: Vec<&String> = Vec::new();
        for (name, _) in all
            .iter()
            .flatten()
            .filter(|(name, _)| ![DATE, RATES].contains(&name.as_str()))
        {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let mut differences = Vec::new();
        for name in names {
            let values: Vec<String> = all
                .iter()
                .map(|lines| {
                    lines
                        .iter()
                        .find(|(known, _)| known == name)
                        .map_or("-".to_owned(), |(_, value)| value.clone())
                })
                .collect();
            if values.iter().any(|value| *value != values[0]) {
                differences.push((name.clone(), values));
            }
        }
        differences
    }

    /// How it was measured, a sentence or two each.
    pub(crate) fn method(&self) -> Vec<&'static str> {
        let any = |is: fn(&Comparison) -> bool| self.runs.iter().any(|(_, comparison)| is(comparison));
        let mut lines = Vec::new();
        if any(|comparison| comparison.experiment.measure.speed) {
            lines.extend([
                "Before each measurement a prompt of the same length and of other tokens was run once as a warm-up, which is in no \
                 number: a whole run, and two tokens where there is no cache.",
                "TTFT is that of a prompt of which nothing was stored. Where the cache finds stored prefixes, the same prompt was \
                 then given again: TTFT cached, with the tokens that were found.",
                "Each repeat went through all cells, in an order that the seed decides. TTFT is the median over repeats; the gaps \
                 (ITL) of all repeats are taken together, and their interval is a bootstrap of the median, as if gaps were \
                 independent.",
                "A token counts when its logits are on the host: the device has finished.",
            ]);
        }
        if any(|comparison| comparison.experiment.measure.quality) {
            lines.push(
                "The first token of a window is not scored, every other once. Softmax, likelihood and divergence are computed in \
                 f64; of equal logits the lowest id counts.",
            );
        }
        lines
    }
}

/// What tells a config from another: too long to be shown.
fn digest(config: &str) -> String {
    use sha2::{Digest, Sha256};
    let hash = Sha256::digest(config);
    hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}
