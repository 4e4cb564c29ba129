//! Vocabularies small enough to know by heart, for the tests of this folder.

use super::gguf_vocab::GgufVocab;
use super::pieces::char_of_byte;

/// All 256 bytes (id = byte), seven merges, `<s>` 263, `</s>` 264, and a user-defined `<tool>` 265.
pub(super) fn byte_level() -> GgufVocab {
    let mut tokens: Vec<String> = (0..=255u8).map(|byte| char_of_byte(byte).to_string()).collect();
    let merges = ["t h", "th e", "Ġ the", "c a", "ca t", "Ġ cat", "ð Ł"];
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    let mut token_types = vec![1; tokens.len()];
    tokens.extend(["<s>", "</s>", "<tool>"].map(str::to_owned));
    token_types.extend([3, 3, 4]);
    GgufVocab {
        model: "gpt2".to_owned(),
        pre: Some("smollm".to_owned()),
        tokens,
        token_types,
        merges: merges.map(str::to_owned).to_vec(),
        bos: Some(263),
        eos: Some(264),
        ..GgufVocab::default()
    }
}

/// `<unk>` 0, `<s>` 1, `</s>` 2, the byte tokens 3 to 258, then pieces whose scores are their ranks.
pub(super) fn sentencepiece() -> GgufVocab {
    let mut tokens = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    let mut token_types = vec![2, 3, 3];
    tokens.extend((0..=255u8).map(|byte| format!("<0x{byte:02X}>")));
    token_types.extend([6; 256]);
    let mut scores = vec![0.0; tokens.len()];
    let pieces = [
        "▁t", "he", "▁the", "▁c", "at", "▁cat", "▁▁", "日本", "▁", "t", "h", "e", "c", "a", "日", "本",
    ];
    for (rank, piece) in pieces.iter().enumerate() {
        tokens.push((*piece).to_owned());
        token_types.push(1);
        scores.push(-(rank as f32));
    }
    GgufVocab {
        model: "llama".to_owned(),
        tokens,
        scores,
        token_types,
        bos: Some(1),
        eos: Some(2),
        unk: Some(0),
        add_bos: true,
        add_space_prefix: true,
        ..GgufVocab::default()
    }
}
