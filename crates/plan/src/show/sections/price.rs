//! The price of a conversation.

use super::super::blocks::Block;
use super::super::grid::Grid;
use super::super::number::{money, time};
use crate::{Cost, Plan};

pub(super) fn conversation(plan: &Plan, cost: &Cost) -> Vec<Block> {
    let (c, p) = (cost.conversation, &cost.prices);
    let talk = format!(
        "{} turns; system prompt {} tokens, question {}, answer {}; each turn sends all that went before",
        c.turns, c.system, c.user, c.reply
    );
    let m = p.per_million_tokens;
    let prices = format!(
        "{} ({}): {} {} input, {} cached read, {} cache write, {} output for a million tokens ({})",
        p.name, p.date, p.currency, m.input, m.cached_read, m.cache_write, m.output, p.source
    );
    let row = |name: &str, tokens: crate::Tokens, price: f64| {
        let parts = [tokens.input, tokens.cached_read, tokens.cache_write, tokens.output];
        let mut cells: Vec<_> = parts.iter().map(u64::to_string).collect();
        cells.push(money(price));
        (name.to_owned(), cells)
    };
    let grid = Grid {
        title: format!("Tokens, and {}", p.currency),
        columns: ["input", "cached read", "cache write", "output", &p.currency]
            .map(str::to_owned)
            .to_vec(),
        rows: vec![
            row("no prompt caching", cost.plain, cost.plain_price),
            row("prompt caching", cost.cached, cost.cached_price),
        ],
    };
    let change = match cost.plain_price > 0.0 {
        true => format!(
            "{:.1} % of the price without. ",
            100.0 * cost.cached_price / cost.plain_price
        ),
        false => String::new(),
    };
    let pays = match cost.reuses_that_pay {
        None => "a cache write never pays".to_owned(),
        Some(0) => "a cache write costs less than input: it always pays".to_owned(),
        Some(1) => "a cache write has paid when it is read once".to_owned(),
        Some(n) => format!("a cache write has paid when it is read {n} times"),
    };
    let mut blocks = vec![
        Block::Fact("talk", talk),
        Block::Fact("prices", prices),
        Block::Gap,
        Block::Grid(grid),
        Block::Gap,
        Block::Fact("caching", format!("{change}At these prices {pays}")),
    ];
    if let Some([without, with]) = plan.last_turn_ttft_ms {
        let text = format!(
            "{} in the last turn, {} with the prefix cached",
            time(without),
            time(with)
        );
        blocks.push(Block::Fact("TTFT", text));
    }
    blocks
}
