//! The text of a workload, as tokens.

use crate::LabError;
use kvlab_config::Workload;
use kvlab_core::TokenId;
use kvlab_engine::text::Tokenizer;
use std::fs;

/// The text of a workload.
pub(crate) struct Text {
    /// The whole file.
    pub(crate) whole: Vec<u8>,
    /// What is used of it: from the offset to the end.
    used: String,
}

/// Reads the text of a workload.
pub(crate) fn read(workload: &Workload) -> Result<Text, LabError> {
    let refused = |reason: String| LabError::Text {
        path: workload.text.clone(),
        reason,
    };
    let whole = fs::read(&workload.text).map_err(|error| refused(error.to_string()))?;
    let text = std::str::from_utf8(&whole);
    let text = text.map_err(|error| refused(format!("not UTF-8 at byte {}", error.valid_up_to())))?;
    let used = text.get(workload.offset..).filter(|used| !used.is_empty());
    let used = used.ok_or_else(|| match text.len() {
        len if workload.offset >= len => refused(format!("offset = {} is beyond its {len} bytes", workload.offset)),
        _ => refused(format!("offset = {} is inside of a character", workload.offset)),
    })?;
    Ok(Text {
        used: used.to_owned(),
        whole,
    })
}

/// A text in the tokens of one model.
pub(crate) struct Passage {
    bos: Option<TokenId>,
    tokens: Vec<TokenId>,
}

impl Passage {
    /// Tokenises a text. Special tokens that are spelled in it count as text.
    pub(crate) fn new(text: &Text, tokenizer: &Tokenizer) -> Result<Self, String> {
        let tokens = tokenizer
            .encode(&text.used, false)
            .map_err(|error| format!("the text: {error}"))?;
        Ok(Self {
            bos: tokenizer.bos().filter(|_| tokenizer.adds_bos()),
            tokens,
        })
    }

    /// What the model wants before everything else.
    pub(crate) fn bos(&self) -> Option<TokenId> {
        self.bos
    }

    /// The `index`-th run of `len` tokens. Runs lie back to back; each begins with BOS where the model wants one.
    pub(crate) fn run(&self, index: usize, len: usize) -> Result<Vec<TokenId>, String> {
        let own = len - usize::from(self.bos.is_some()).min(len);
        let run = self.plain(index, own)?;
        Ok(self.bos.into_iter().chain(run).take(len).collect())
    }

    /// The `index`-th run of `len` tokens of the text alone.
    pub(crate) fn plain(&self, index: usize, len: usize) -> Result<Vec<TokenId>, String> {
        let run = self.tokens.get(index * len..(index + 1) * len).ok_or_else(|| {
            let (have, need) = (self.tokens.len(), (index + 1) * len);
            format!("the text has {have} tokens after workload.offset, and {need} are needed; use a longer text, or less of it")
        })?;
        Ok(run.to_vec())
    }

    /// Of tokens that were made up.
    #[cfg(test)]
    pub(crate) fn of(bos: Option<TokenId>, tokens: Vec<TokenId>) -> Self {
        Self { bos, tokens }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn passage(bos: Option<TokenId>) -> Passage {
        Passage {
            bos,
            tokens: (0..10).collect(),
        }
    }

    #[test]
    fn runs_lie_back_to_back() {
        let passage = passage(None);
        assert_eq!(passage.run(0, 5).unwrap(), [0, 1, 2, 3, 4]);
        assert_eq!(passage.run(1, 5).unwrap(), [5, 6, 7, 8, 9]);
        assert!(
            passage
                .run(2, 5)
                .unwrap_err()
                .contains("10 tokens after workload.offset, and 15")
        );
    }

    #[test]
    fn each_run_begins_with_bos_and_no_token_of_the_text_is_lost() {
        let passage = passage(Some(99));
        assert_eq!(passage.run(0, 5).unwrap(), [99, 0, 1, 2, 3]);
        assert_eq!(passage.run(1, 5).unwrap(), [99, 4, 5, 6, 7]);
        assert!(passage.run(2, 5).is_err());
        assert_eq!(passage.run(0, 1).unwrap(), [99]);
    }

    #[test]
    fn bytes_of_a_text_are_its_tokens() {
        let text = Text {
            whole: vec![],
            used: "aé".into(),
        };
        let passage = Passage::new(&text, &Tokenizer::bytes()).unwrap();
        assert_eq!(passage.run(0, 3).unwrap(), [97, 0xC3, 0xA9]);
    }
}
