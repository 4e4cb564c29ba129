//! Tables of what not every experiment has: work against the machine, conversations, requests that share prefixes.

use super::columns::NOTHING;
use super::csv_files::write;
use super::number::{self, exact};
use super::tables::{Table, spread};
use crate::{LabError, Mix, Phase, Row, Speed, Turn, Work};

/// A CSV: its header, and a line for each line of the table.
fn csv(what: &'static str, header: &[&str], lines: impl Iterator<Item = Vec<String>>) -> Result<String, LabError> {
    let header = header.iter().map(|name| (*name).to_owned()).collect();
    write(what, std::iter::once(header).chain(lines).collect())
}

const WORK: [&str; 11] = [
    "cell",
    "prompt_tokens",
    "batch",
    "prefill_bytes",
    "prefill_flops",
    "prefill_fraction_of_bandwidth",
    "prefill_fraction_of_flops",
    "decode_step_bytes",
    "decode_step_flops",
    "decode_fraction_of_bandwidth",
    "decode_fraction_of_flops",
];

/// Bytes and operations from the accounting, and the share of the machine that was reached.
pub(super) fn work(rows: &[Row]) -> Result<Table, LabError> {
    let all = rows.iter().enumerate();
    let all = all.flat_map(|(i, row)| row.speed.iter().map(move |speed| (i, speed)));
    let lines: Vec<(usize, (&Speed, Work))> = all.filter_map(|(i, speed)| Some((i, (speed, speed.work?)))).collect();
    let head = |speed: &Speed| vec![speed.prompt_tokens.to_string(), speed.batch.to_string()];
    let digits = |phase: Option<Phase>| {
        let share = |share: Option<f64>| share.map_or(String::new(), exact);
        [
            phase.map_or(String::new(), |phase| phase.bytes.to_string()),
            phase.map_or(String::new(), |phase| phase.flops.to_string()),
            share(phase.and_then(|phase| phase.fraction_of_bandwidth)),
            share(phase.and_then(|phase| phase.fraction_of_flops)),
        ]
    };
    let exactly = lines.iter().map(|(row, (speed, work))| {
        let name = std::iter::once(rows[*row].cell.clone());
        let phases = digits(Some(work.prefill)).into_iter().chain(digits(work.decode));
        name.chain(head(speed)).chain(phases).collect()
    });
    let csv = csv("tables/work.csv", &WORK, exactly)?;
    let header = [
        "prompt tokens",
        "batch",
        "prefill bytes",
        "operations",
        "of bandwidth %",
        "of rate %",
        "decode step bytes",
        "operations",
        "of bandwidth %",
        "of rate %",
    ];
    let shown = |phase: Option<Phase>| {
        let share = |share: Option<f64>| share.map_or(NOTHING.to_owned(), |share| number::short(100.0 * share));
        [
            phase.map_or(NOTHING.to_owned(), |phase| number::bytes(phase.bytes)),
            phase.map_or(NOTHING.to_owned(), |phase| format!("{:.2e}", phase.flops as f64)),
            share(phase.and_then(|phase| phase.fraction_of_bandwidth)),
            share(phase.and_then(|phase| phase.fraction_of_flops)),
        ]
    };
    let title = "Work, and how much of the machine it used";
    let table = Table::of_cells("work", title, &header, rows, lines, |(speed, work)| {
        let phases = shown(Some(work.prefill)).into_iter().chain(shown(work.decode));
        head(speed).into_iter().chain(phases).collect()
    });
    Ok(Table {
        about: "Bytes moved and operations from the accounting (a multiply-add is two), of the whole batch; shares are of this \
                machine's measured bandwidth and rate. A decode step adds a token to each sequence."
            .to_owned(),
        csv,
        ..table
    })
}

const TURNS: [&str; 8] = [
    "cell",
    "turn",
    "prompt_tokens",
    "reused_tokens",
    "computed_tokens",
    "ttft_ms",
    "ttft_min_ms",
    "ttft_max_ms",
];

/// Conversations, turn by turn.
pub(super) fn turns(rows: &[Row]) -> Result<Table, LabError> {
    let all = rows.iter().enumerate();
    let lines: Vec<(usize, &Turn)> = all
        .flat_map(|(i, row)| row.turns.iter().map(move |turn| (i, turn)))
        .collect();
    // People count turns from 1, in the CSV as in the table.
    let counts = |turn: &Turn| {
        let counts = [
            turn.turn + 1,
            turn.prompt_tokens,
            turn.reused_tokens,
            turn.computed_tokens,
        ];
        counts.map(|n| n.to_string())
    };
    let exactly = lines.iter().map(|(row, turn)| {
        let times = [turn.ttft_ms.median, turn.ttft_ms.min, turn.ttft_ms.max].map(exact);
        let name = std::iter::once(rows[*row].cell.clone());
        name.chain(counts(turn)).chain(times).collect()
    });
    let csv = csv("tables/conversation.csv", &TURNS, exactly)?;
    let header = [
        "turn",
        "prompt tokens",
        "found stored",
        "computed",
        "TTFT ms, median (min to max)",
    ];
    let title = "Conversation, turn by turn";
    let table = Table::of_cells("conversation", title, &header, rows, lines, |turn| {
        let time = spread(turn.ttft_ms);
        counts(turn).into_iter().chain([time]).collect()
    });
    Ok(Table {
        about: "Each prompt is all that was said before, and the new message.".to_owned(),
        csv,
        ..table
    })
}

const MIX: [&str; 9] = [
    "cell",
    "requests",
    "prefixes",
    "prefix_tokens",
    "own_tokens",
    "reused_tokens",
    "computed_tokens",
    "ttft_ms",
    "total_ms",
];

/// Requests that share prefixes.
pub(super) fn mix(rows: &[Row]) -> Result<Table, LabError> {
    let all = rows.iter().enumerate();
    let lines: Vec<(usize, Mix)> = all.filter_map(|(i, row)| Some((i, row.mix?))).collect();
    let counts = |mix: &Mix| {
        let tokens = [
            mix.prefix_tokens,
            mix.own_tokens,
            mix.reused_tokens,
            mix.computed_tokens,
        ];
        let counts = [mix.requests, mix.prefixes].into_iter().chain(tokens);
        counts.map(|n| n.to_string()).collect::<Vec<_>>()
    };
    let exactly = lines.iter().map(|(row, mix)| {
        let times = [mix.ttft_ms.median, mix.total_ms.median].map(exact);
        let name = std::iter::once(rows[*row].cell.clone());
        name.chain(counts(mix)).chain(times).collect()
    });
    let csv = csv("tables/mix.csv", &MIX, exactly)?;
    let header = [
        "requests",
        "prefixes",
        "tokens of a prefix",
        "own tokens",
        "found stored",
        "computed",
        "TTFT ms, median (min to max)",
        "all ms, median (min to max)",
    ];
    let title = "Requests that share prefixes";
    let table = Table::of_cells("mix", title, &header, rows, lines, |mix| {
        let times = [spread(mix.ttft_ms), spread(mix.total_ms)];
        counts(mix).into_iter().chain(times).collect()
    });
    Ok(Table { csv, ..table })
}
