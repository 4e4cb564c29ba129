//! What a page shows, as plain data: numbers that were recorded, rounded for reading.

use crate::layer::greatest;
use serde::Serialize;

/// One sentence through one or more caches.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    /// The name of the model file.
    pub model: String,
    /// The text that was given.
    pub text: String,
    /// The tokens of the text and those that were generated. The last one was not fed to the model.
    pub tokens: Vec<Token>,
    /// How many of them are the text's.
    pub prompt: usize,
    /// The forward passes: one over the whole text, then one for each generated token but the last.
    pub passes: Vec<Chunk>,
    /// The caches, the one of the file first. All were fed the same tokens.
    pub variants: Vec<Variant>,
    /// Caches that this model cannot have.
    pub missing: Vec<Missing>,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// Its text; the id in hexadecimal digits where it is a part of a character.
    pub text: String,
}

/// The tokens of one pass that are new in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Chunk {
    /// Position of the first.
    pub first: usize,
    /// How many.
    pub tokens: usize,
}

/// One cache, and what it did.
#[derive(Clone, Debug, Serialize)]
pub struct Variant {
    /// Its name (`mha`).
    pub name: String,
    /// The model file that its weights are from.
    pub model: String,
    /// Whether its weights are another model's, or made from those of the first.
    pub source: Source,
    /// Why it is another function than the model's own attention; empty where it is none.
    pub lossy: Vec<String>,
    /// Bytes that a token takes, all layers together.
    pub bytes_per_token: u64,
    /// Bytes of the rows in the cache after each pass, all layers together.
    pub bytes: Vec<u64>,
    /// What the model thinks comes after each pass, the likeliest first.
    pub next: Vec<Vec<Guess>>,
    /// The layers that are shown.
    pub layers: Vec<Layer>,
    /// How many layers the model has.
    pub all_layers: usize,
    /// Greatest absolute difference between the attention outputs that the model used and those made of the rows, queries
    /// and weights shown here (before they were rounded).
    pub deviation: f64,
    /// Greatest absolute difference of the logits with the cache from those without, over all passes.
    pub difference: f64,
}

/// Where the weights of a variant come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The model file itself, as it is.
    Own,
    /// A model file beside it, trained with this attention.
    Sibling,
    /// Made from the weights of the model file.
    Converted,
}

/// A token that may come next.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Guess {
    /// Its text.
    pub text: String,
    /// Its probability.
    pub p: f64,
}

/// One layer of a variant.
#[derive(Clone, Debug, Serialize)]
pub struct Layer {
    /// Which, from 0.
    pub layer: usize,
    /// Query heads.
    pub query_heads: usize,
    /// Heads of a stored row.
    pub heads: usize,
    /// Numbers of one key.
    pub key: usize,
    /// Numbers of one value.
    pub value: usize,
    /// Whether the value is the first part of the key and is not stored (MLA).
    pub latent: bool,
    /// Bytes that a token takes here.
    pub bytes: u64,
    /// The model's window in tokens: what a query sees.
    pub sees: Option<usize>,
    /// What the cache keeps, if not everything.
    pub keeps: Option<Keeps>,
    /// Factor on the products of query and key.
    pub scale: f64,
    /// Soft cap of the scores.
    pub softcap: Option<f64>,
    /// Whether a learned sink takes a part of each softmax.
    pub sink: bool,
    /// For each token `heads * key` numbers.
    pub k: Numbers,
    /// For each token `heads * value` numbers; none where the value is a part of the key.
    pub v: Option<Numbers>,
    /// For each token `query heads * key` numbers.
    pub q: Numbers,
    /// For each token `query heads * value` numbers: what attention gave back to the model.
    pub out: Numbers,
    /// For each token and query head, one after the other: the score of each visible row.
    pub scores: Numbers,
    /// As the scores: their softmax.
    pub weights: Numbers,
    /// Positions of the rows that are in the cache after each pass.
    pub stored: Vec<Vec<usize>>,
    /// What each pass computed with the cache.
    pub with: Vec<Counts>,
    /// What the same pass computed without.
    pub without: Vec<Counts>,
}

/// A cache that drops rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Keeps {
    /// The newest rows.
    pub window: usize,
    /// The first rows.
    pub sinks: usize,
}

/// What one pass computed in one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Rows of keys and values that were projected.
    pub rows: usize,
    /// Scores of one query head, for the queries of tokens that are new in this pass.
    pub new: usize,
    /// The same for tokens that an earlier pass had.
    pub again: usize,
}

/// Numbers as whole multiples of `10^-decimals`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// Digits behind the point.
    pub decimals: u8,
    /// Any number of lists.
    pub rows: Vec<Vec<i32>>,
}

/// A cache that this model cannot have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Its name.
    pub name: String,
    /// Why not.
    pub reason: String,
}

impl Numbers {
    /// Rounds to three digits or so of the greatest number: two behind the point for those from 1 to 100.
    pub(crate) fn round(rows: &[Vec<f64>]) -> Self {
        let decimals = match greatest(rows.iter().flatten().copied()) {
            x if x >= 100.0 => 1,
            x if x >= 1.0 => 2,
            x if x >= 0.1 => 3,
            _ => 4,
        };
        Self::round_to(decimals, rows)
    }

    /// Rounds to so many digits behind the point.
    pub(crate) fn round_to(decimals: u8, rows: &[Vec<f64>]) -> Self {
        let unit = 10.0_f64.powi(decimals.into());
        let round = |row: &Vec<f64>| row.iter().map(|x| (x * unit).round() as i32).collect();
        Self {
            decimals,
            rows: rows.iter().map(round).collect(),
        }
    }
}

impl Layer {
    /// Positions of the rows that the query at position `at` sees, ascending.
    pub fn visible(&self, at: usize) -> Vec<usize> {
        let sees = |row: usize| self.sees.is_none_or(|window| at - row < window);
        let keeps = |row: usize| self.keeps.is_none_or(|k| row < k.sinks || at - row < k.window);
        (0..=at).filter(|&row| sees(row) && keeps(row)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_keep_their_digits() {
        assert_eq!(
            Numbers::round(&[vec![1.234, -12.0]]),
            Numbers::round_to(2, &[vec![1.23, -12.0]])
        );
        assert_eq!(
            Numbers::round(&[vec![0.0123]]),
            Numbers {
                decimals: 4,
                rows: vec![vec![123]],
            }
        );
    }
}
