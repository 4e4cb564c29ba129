//! What a conversation costs where tokens are paid for, with and without prompt caching.

use crate::{PlanError, preset};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The price tables that come with kvlab: name, text of `configs/prices/NAME.toml`.
pub const PRICES: &[(&str, &str)] = &[("example", include_str!("../../../configs/prices/example.toml"))];

/// The highest price of a million tokens: far beyond any, and far from where sums would be infinite.
const MOST: f64 = 1e12;

/// What tokens cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Version of the format.
    pub schema: u32,
    /// Whose they are.
    pub name: String,
    /// When they were right.
    pub date: String,
    /// Where they are from.
    pub source: String,
    /// What they are in.
    pub currency: String,
    /// For a million tokens.
    pub per_million_tokens: PerMillion,
}

/// Prices of a million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerMillion {
    /// Prompt tokens that are computed.
    pub input: f64,
    /// Prompt tokens that a cache has.
    pub cached_read: f64,
    /// Prompt tokens that are computed and stored.
    pub cache_write: f64,
    /// Tokens of the answer.
    pub output: f64,
}

/// A conversation of which every turn sends all that went before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Conversation {
    /// Questions, each with an answer.
    pub turns: u64,
    /// Tokens of the system prompt.
    pub system: u64,
    /// Tokens of a question.
    pub user: u64,
    /// Tokens of an answer.
    pub reply: u64,
}

/// Prompt tokens of a conversation by what is paid for them, and its answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tokens {
    /// Computed.
    pub input: u64,
    /// Read from a cache.
    pub cached_read: u64,
    /// Computed and stored.
    pub cache_write: u64,
    /// Answered.
    pub output: u64,
}

/// What a conversation costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The conversation.
    pub conversation: Conversation,
    /// The prices.
    pub prices: Prices,
    /// Tokens without prompt caching.
    pub plain: Tokens,
    /// Tokens with it: each turn reads the prompt of the turn before, and stores what is new.
    pub cached: Tokens,
    /// Price without.
    pub plain_price: f64,
    /// Price with.
    pub cached_price: f64,
    /// How often a stored token must be read until storing it has paid; `None` where it never does.
    pub reuses_that_pay: Option<u64>,
}

impl Conversation {
    /// Tokens without prompt caching: turn `i` of `n` sends `system + i user + (i - 1) reply`.
    pub fn plain(&self) -> Tokens {
        Tokens {
            input: (1..=self.turns)
                .map(|turn| self.prompt(turn))
                .fold(0, u64::saturating_add),
            output: self.turns.saturating_mul(self.reply),
            ..Tokens::default()
        }
    }

    /// Tokens with it: turn `i` reads the prompt of turn `i - 1` and stores the rest, its answer to that turn included. The last
    /// turn stores too: who asks does not know that it is the last.
    pub fn cached(&self) -> Tokens {
        let read = (1..self.turns)
            .map(|turn| self.prompt(turn))
            .fold(0, u64::saturating_add);
        Tokens {
            input: 0,
            cached_read: read,
            cache_write: if self.turns == 0 { 0 } else { self.prompt(self.turns) },
            output: self.turns.saturating_mul(self.reply),
        }
    }

    /// Tokens of the prompt of a turn, counted from 1.
    pub fn prompt(&self, turn: u64) -> u64 {
        let users = turn.saturating_mul(self.user);
        let replies = turn.saturating_sub(1).saturating_mul(self.reply);
        self.system.saturating_add(users).saturating_add(replies)
    }
}

impl Prices {
    /// The table of that name, or the file of that path.
    ///
    /// # Errors
    /// An unknown name; a file that is no price table; prices below 0, or that no currency has.
    pub fn find(name: &str) -> Result<Self, PlanError> {
        let example = "such as configs/prices/example.toml";
        let prices: Self = preset::find("price table", name, PRICES, example)?;
        let p = prices.per_million_tokens;
        match [p.input, p.cached_read, p.cache_write, p.output]
            .into_iter()
            .find(|price| !(0.0..=MOST).contains(price))
        {
            Some(wrong) => Err(PlanError::Preset {
                path: Path::new(name).to_owned(),
                problem: format!("a price of {wrong:?}; prices must be from 0 to {MOST}"),
            }),
            None => Ok(prices),
        }
    }

    /// What tokens cost.
    pub fn price(&self, tokens: Tokens) -> f64 {
        let p = self.per_million_tokens;
        let parts = [
            (tokens.input, p.input),
            (tokens.cached_read, p.cached_read),
            (tokens.cache_write, p.cache_write),
            (tokens.output, p.output),
        ];
        parts.iter().map(|(tokens, price)| *tokens as f64 * price / 1e6).sum()
    }

    /// The least `k` with `write + k read < (k + 1) input`: so often must a stored token be read until storing it has paid.
    pub fn reuses_that_pay(&self) -> Option<u64> {
        let p = self.per_million_tokens;
        let (extra, saved) = (p.cache_write - p.input, p.input - p.cached_read);
        match (extra < 0.0, saved > 0.0) {
            (true, _) => Some(0),
            (false, true) => Some(((extra / saved + 1e-9).floor() as u64).saturating_add(1)),
            (false, false) => None,
        }
    }

    /// What a conversation costs.
    pub fn cost(&self, conversation: Conversation) -> Cost {
        let (plain, cached) = (conversation.plain(), conversation.cached());
        Cost {
            conversation,
            prices: self.clone(),
            plain,
            cached,
            plain_price: self.price(plain),
            cached_price: self.price(cached),
            reuses_that_pay: self.reuses_that_pay(),
        }
    }
}
