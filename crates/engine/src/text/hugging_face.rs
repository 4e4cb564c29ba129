//! A Hugging Face `tokenizer.json`, and the two names its sibling `tokenizer_config.json` adds.

use std::path::Path;

use serde_json::Value;
use tokenizers::Tokenizer as Library;

use super::error::TextError;
use super::pieces::{Pieces, Spelling, byte_of_token};

/// What a folder says about its tokenizer.
pub(super) struct Loaded {
    pub(super) library: Library,
    pub(super) pieces: Pieces,
    /// What the post-processor puts before a text.
    pub(super) prefix: Vec<u32>,
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
}

/// Ids may have holes, but not so many that the table of bytes is mostly holes.
const MAX_HOLES: usize = 1 << 16;

/// Reads a `tokenizer.json`. Truncation and padding in it are for batches of an encoder, and are switched off.
pub(super) fn load(path: &Path) -> Result<Loaded, TextError> {
    let refuse = |reason: String| TextError::File {
        path: path.to_owned(),
        reason,
    };
    let text = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
    let mut library = Library::from_bytes(text).map_err(|error| refuse(error.to_string()))?;
    library
        .with_truncation(None)
        .map_err(|error| refuse(error.to_string()))?;
    library.with_padding(None);

    let decoder = match library.get_decoder() {
        Some(decoder) => serde_json::to_value(decoder).map_err(|error| refuse(error.to_string()))?,
        None => Value::Null,
    };
    let rule = Rule::of(&decoder).ok_or_else(|| {
        refuse(format!(
            "its decoder is {decoder}; only byte-level (GPT-2) and SentencePiece-like ones are supported"
        ))
    })?;
    let pieces = pieces(&library, &rule).map_err(refuse)?;

    let encode = |special| {
        library
            .encode_fast("a", special)
            .map(|encoding| encoding.get_ids().to_vec())
            .map_err(|error| refuse(error.to_string()))
    };
    let prefix = prefix(&encode(false)?, &encode(true)?);

    let config = sibling_json(path, "tokenizer_config.json")?;
    let named = |key: &str| token_name(&config[key]).and_then(|name| library.token_to_id(name));
    let bos = named("bos_token").or_else(|| prefix.first().copied());
    let eos = named("eos_token");
    Ok(Loaded {
        pieces,
        prefix,
        bos,
        eos,
        library,
    })
}

/// A JSON file beside another; null where there is none.
pub(super) fn sibling_json(path: &Path, name: &str) -> Result<Value, TextError> {
    let path = path.with_file_name(name);
    let refuse = |reason: String| TextError::File {
        path: path.clone(),
        reason,
    };
    match std::fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| refuse(error.to_string())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Value::Null),
        Err(error) => Err(refuse(error.to_string())),
    }
}

/// A token in a configuration: its text, or an object with the text as `content`.
fn token_name(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}

/// What stands before the text when special tokens are added. A suffix is left out on purpose: a prompt
/// goes on.
fn prefix(plain: &[u32], with_special: &[u32]) -> Vec<u32> {
    let before = match plain {
        [] => with_special.len().min(1),
        _ => with_special
            .windows(plain.len())
            .position(|window| window == plain)
            .unwrap_or(0),
    };
    with_special[..before].to_vec()
}

/// How the decoder of a file turns the text of a token into bytes.
struct Rule {
    byte_level: bool,
    byte_fallback: bool,
    leading_space: bool,
}

impl Rule {
    /// None for a decoder whose text is not a concatenation of tokens (WordPiece, CTC, none at all).
    fn of(decoder: &Value) -> Option<Self> {
        let steps = match decoder["type"].as_str()? {
            "Sequence" => decoder["decoders"].as_array()?.as_slice(),
            _ => std::slice::from_ref(decoder),
        };
        let mut rule = Rule {
            byte_level: false,
            byte_fallback: false,
            leading_space: false,
        };
        let mut space_mark = false;
        for step in steps {
            match step["type"].as_str()? {
                "ByteLevel" => rule.byte_level = true,
                "ByteFallback" => rule.byte_fallback = true,
                "Fuse" => {}
                "Metaspace" if step["replacement"] == "▁" => {
                    space_mark = true;
                    rule.leading_space |= step["prepend_scheme"] != "never";
                }
                "Replace" if step["pattern"]["String"] == "▁" && step["content"] == " " => space_mark = true,
                "Strip" if step["content"] == " " && step["stop"] == 0 && step["start"] == 1 => {
                    rule.leading_space = true;
                }
                _ => return None,
            }
        }
        (rule.byte_level != space_mark).then_some(rule)
    }
}

fn pieces(library: &Library, rule: &Rule) -> Result<Pieces, String> {
    let vocab = library.get_vocab(true);
    let len = vocab.values().max().map_or(0, |&id| id as usize + 1);
    if len > 2 * vocab.len() + MAX_HOLES {
        return Err(format!("{} tokens, but ids up to {}", vocab.len(), len - 1));
    }
    let added = library.get_added_tokens_decoder();
    let mut pieces = Pieces::new(rule.leading_space);
    for id in (0u32..).take(len) {
        let text = library.id_to_token(id).unwrap_or_default();
        let spelling = match added.get(&id) {
            Some(token) if token.special || rule.byte_level => Spelling::Literal,
            _ if rule.byte_level => Spelling::ByteLevel,
            _ if rule.byte_fallback && byte_of_token(&text).is_some() => Spelling::Byte,
            _ => Spelling::SpaceMark,
        };
        pieces.push(&text, spelling, added.get(&id).is_some_and(|token| token.special));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Tokenizer, toy_vocab};
    use super::*;
    use serde_json::json;

    fn load(name: &str, tokenizer: &str, config: Option<&str>) -> Result<Tokenizer, super::TextError> {
        let folder = std::env::temp_dir().join(format!("kvlab-text-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("tokenizer.json"), tokenizer).unwrap();
        if let Some(config) = config {
            std::fs::write(folder.join("tokenizer_config.json"), config).unwrap();
        }
        let loaded = Tokenizer::from_file(&folder.join("tokenizer.json"));
        std::fs::remove_dir_all(&folder).unwrap();
        loaded
    }

    /// The library's own file of a toy vocabulary, with what the converter of Hugging Face would add.
    fn file_of(vocab: &super::super::GgufVocab, edit: impl Fn(&mut Value)) -> String {
        let (library, _) = match vocab.model.as_str() {
            "llama" => super::super::sentencepiece::build(vocab).unwrap(),
            _ => super::super::byte_level::build(vocab).unwrap(),
        };
        let mut file: Value = serde_json::from_str(&library.to_string(false).unwrap()).unwrap();
        edit(&mut file);
        file.to_string()
    }

    fn bos_template(token: &str, id: u32) -> Value {
        json!({"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [id], "tokens": [token]}}})
    }

    #[test]
    fn a_file_gives_the_ids_of_the_same_vocabulary_in_gguf() {
        let mut vocab = toy_vocab::byte_level();
        vocab.add_bos = true;
        let bos = vocab.bos.unwrap();
        let text = file_of(&vocab, |file| {
            file["decoder"] =
                json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
            file["post_processor"] = bos_template("<s>", bos);
            file["truncation"] =
                json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
        });
        let config = r#"{"bos_token": {"content": "<s>"}, "eos_token": "</s>"}"#;
        let file = load("bytelevel", &text, Some(config)).unwrap();
        let gguf = Tokenizer::from_gguf(&vocab).unwrap();
        assert_eq!((file.bos(), file.eos()), (Some(bos), gguf.eos()));
        for text in ["", "the cat 12 日本 👩‍👩‍👧", "<s>the</s>", " <s>"] {
            for special in [false, true] {
                let ids = file.encode(text, special).unwrap();
                assert_eq!(ids, gguf.encode(text, special).unwrap(), "{text:?} {special}");
                assert_eq!(file.decode(&ids), gguf.decode(&ids));
            }
        }
    }

    #[test]
    fn a_sentencepiece_file_strips_its_leading_space() {
        let vocab = toy_vocab::sentencepiece();
        let text = file_of(&vocab, |file| {
            file["decoder"] = json!({"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
        });
        let file = load("spm", &text, None).unwrap();
        for text in ["the cat", " the", "the\n日本", "  "] {
            let ids = file.encode(text, false).unwrap();
            assert_eq!(ids, Tokenizer::from_gguf(&vocab).unwrap().encode(text, false).unwrap());
            assert_eq!(file.decode(&ids), text);
        }
    }

    #[test]
    fn what_is_not_a_generator_is_refused_by_name() {
        let vocab = toy_vocab::byte_level();
        let wordpiece = file_of(&vocab, |file| {
            file["decoder"] = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
        });
        for (name, text, part) in [
            ("wordpiece", wordpiece.as_str(), "WordPiece"),
            ("none", &file_of(&vocab, |_| {}), "decoder is null"),
            ("cut", &wordpiece[..wordpiece.len() / 2], "cut/tokenizer.json"),
        ] {
            let error = load(name, text, None).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let error = Tokenizer::from_file(Path::new("/nowhere/tokenizer.json")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/tokenizer.json"));
    }

    #[test]
    fn the_prefix_is_what_stands_before_the_text() {
        assert_eq!(prefix(&[5], &[1, 5]), [1]);
        assert_eq!(prefix(&[5], &[1, 2, 5, 3]), [1, 2]);
        assert!(prefix(&[5], &[5, 3]).is_empty());
        assert!(prefix(&[5], &[5]).is_empty());
        assert_eq!(prefix(&[], &[1, 2]), [1]);
    }
}
