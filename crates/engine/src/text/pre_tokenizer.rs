//! The regular expressions that cut a text into words before byte-level BPE, by their GGUF name.
//!
//! Each list is applied in order, the next to what the ones before left over, and a match is a piece of
//! its own. The patterns are those of the models' published `tokenizer.json`; `default` and the
//! grouping of names are those of llama.cpp, which gave the names.

use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;

use super::error::TextError;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;

/// One row of the table.
pub(super) struct Pre {
    /// The values of `tokenizer.ggml.pre` that mean it.
    names: &'static [&'static str],
    /// Applied in order.
    patterns: &'static [&'static str],
    /// A word that is itself a token becomes it, whatever the merges say.
    pub(super) ignore_merges: bool,
    /// What a missing `add_bos_token` means.
    pub(super) adds_bos: bool,
}

const TABLE: &[Pre] = &[
    Pre {
        names: &["default"],
        patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
        ignore_merges: false,
        adds_bos: false,
    },
    Pre {
        names: &["gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4"],
        patterns: &[GPT2],
        ignore_merges: false,
        adds_bos: false,
    },
    Pre {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"],
        patterns: &[r"\p{N}", GPT2],
        ignore_merges: false,
        adds_bos: false,
    },
    Pre {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2"],
        patterns: &[LLAMA3],
        ignore_merges: true,
        adds_bos: true,
    },
    Pre {
        names: &["dbrx", "smaug-bpe"],
        patterns: &[LLAMA3],
        ignore_merges: false,
        adds_bos: false,
    },
    Pre {
        names: &["qwen2", "stablelm2", "deepseek-r1-qwen"],
        patterns: &[QWEN2],
        ignore_merges: false,
        adds_bos: false,
    },
    Pre {
        names: &["tekken"],
        patterns: &[TEKKEN],
        ignore_merges: true,
        adds_bos: true,
    },
    Pre {
        names: &["gpt-4o"],
        patterns: &[GPT4O],
        ignore_merges: false,
        adds_bos: false,
    },
    Pre {
        names: &["deepseek-v3"],
        patterns: &[r"\p{N}{1,3}", "[一-龥\u{3040}-ゟ゠-ヿ]+", DEEPSEEK3],
        ignore_merges: false,
        adds_bos: false,
    },
];

/// The row of a name.
pub(super) fn find(name: &str) -> Option<&'static Pre> {
    TABLE.iter().find(|pre| pre.names.contains(&name))
}

/// The values of `tokenizer.ggml.pre` that [`super::Tokenizer::from_gguf`] understands.
pub fn known_pre_tokenizers() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|pre| pre.names.iter().copied())
}

/// The known names as one line for an error.
pub(super) fn known_names() -> String {
    known_pre_tokenizers().collect::<Vec<_>>().join(", ")
}

impl Pre {
    /// The splits, and then GPT-2's byte alphabet without a space in front.
    pub(super) fn build(&self) -> Result<PreTokenizerWrapper, TextError> {
        let mut steps: Vec<PreTokenizerWrapper> = Vec::with_capacity(self.patterns.len() + 1);
        for pattern in self.patterns {
            let split = Split::new(
                SplitPattern::Regex((*pattern).to_owned()),
                SplitDelimiterBehavior::Isolated,
                false,
            )
            .map_err(|error| TextError::Vocabulary {
                reason: format!("pre-tokenizer {:?}: {error}", self.names),
            })?;
            steps.push(split.into());
        }
        steps.push(ByteLevel::new(false, true, false).into());
        Ok(Sequence::new(steps).into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::pieces::byte_of_char;
    use super::*;
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    fn words(name: &str, text: &str) -> Vec<String> {
        let mut pre_tokenized = PreTokenizedString::from(text);
        find(name)
            .unwrap()
            .build()
            .unwrap()
            .pre_tokenize(&mut pre_tokenized)
            .unwrap();
        pre_tokenized
            .get_splits(OffsetReferential::Original, OffsetType::Byte)
            .into_iter()
            .map(|(word, _, _)| {
                let bytes: Vec<u8> = word.chars().map(|c| byte_of_char(c).unwrap()).collect();
                String::from_utf8(bytes).unwrap()
            })
            .collect()
    }

    #[test]
    fn each_family_cuts_digits_case_and_newlines_its_own_way() {
        let text = "I'LL buy 12345 HelloWorld!\n\n  x日本";
        for (name, expected) in [
            (
                "gpt-2",
                &["I", "'", "LL", " buy", " 12345", " HelloWorld", "!", "\n\n ", " x日本"][..],
            ),
            (
                "smollm",
                &[
                    "I",
                    "'",
                    "LL",
                    " buy",
                    " ",
                    "1",
                    "2",
                    "3",
                    "4",
                    "5",
                    " HelloWorld",
                    "!",
                    "\n\n ",
                    " x日本",
                ],
            ),
            (
                "llama-bpe",
                &[
                    "I",
                    "'LL",
                    " buy",
                    " ",
                    "123",
                    "45",
                    " HelloWorld",
                    "!\n\n",
                    " ",
                    " x日本",
                ],
            ),
            (
                "qwen2",
                &[
                    "I",
                    "'LL",
                    " buy",
                    " ",
                    "1",
                    "2",
                    "3",
                    "4",
                    "5",
                    " HelloWorld",
                    "!\n\n",
                    " ",
                    " x日本",
                ],
            ),
            (
                "tekken",
                &[
                    "I", "'LL", " buy", " ", "1", "2", "3", "4", "5", " Hello", "World", "!\n\n", " ", " x日本",
                ],
            ),
            (
                "gpt-4o",
                &[
                    "I'LL", " buy", " ", "123", "45", " Hello", "World", "!\n\n", " ", " x日本",
                ],
            ),
            (
                "deepseek-v3",
                &[
                    "I",
                    "'LL",
                    " buy",
                    " ",
                    "123",
                    "45",
                    " HelloWorld",
                    "!\n\n",
                    " ",
                    " x",
                    "日本",
                ],
            ),
            (
                "default",
                &[
                    "I",
                    "'",
                    "LL",
                    " buy",
                    " ",
                    "123",
                    "45",
                    " HelloWorld",
                    "!",
                    "\n\n ",
                    " x日本",
                ],
            ),
        ] {
            assert_eq!(words(name, text), expected, "{name}");
        }
    }

    #[test]
    fn every_name_is_unique_builds_and_loses_no_byte() {
        let text = "a  b\t\r\n\u{A0}1½三 'ſ 👩‍👩‍👧 <|x|>  ";
        let mut seen = std::collections::HashSet::new();
        for name in known_pre_tokenizers() {
            assert!(seen.insert(name), "{name} twice");
            assert_eq!(words(name, text).concat(), text, "{name}");
        }
    }
}
