//! Token ids to text, one at a time, without ever cutting a character in two.

use std::sync::Arc;

use super::pieces::Pieces;

/// An incremental detokeniser, made by [`super::Tokenizer::stream`].
///
/// What [`Stream::push`] and [`Stream::finish`] return, put together, is exactly what
/// [`super::Tokenizer::decode`] returns for all ids. Bytes wait only while they are the beginning of a
/// character, so at most three ever do: as soon as no byte could complete them, they come out as U+FFFD,
/// and a model that writes rubbish stalls nothing.
#[derive(Debug, Clone)]
pub struct Stream {
    pieces: Arc<Pieces>,
    pending: Vec<u8>,
    /// The next byte is the first of a text whose leading space is not part of it.
    at_start: bool,
}

impl Stream {
    pub(super) fn new(pieces: Arc<Pieces>) -> Self {
        Stream {
            at_start: pieces.leading_space(),
            pending: Vec::new(),
            pieces,
        }
    }

    /// The text that this id completes; none while it ends within a character.
    pub fn push(&mut self, id: u32) -> Option<String> {
        let mut bytes = self.pieces.get(id);
        if self.at_start && !bytes.is_empty() {
            self.at_start = false;
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        self.pending.extend_from_slice(bytes);
        let ready = self.pending.len() - incomplete_tail(&self.pending);
        if ready == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&self.pending[..ready]).into_owned();
        self.pending.drain(..ready);
        Some(text)
    }

    /// The end of the text: empty, or one U+FFFD where the last character was cut off (by a limit on new
    /// tokens, say). The stream is empty afterwards.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }

    /// How many bytes wait for the rest of their character: 0 to 3.
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }
}

/// How many bytes at the end begin a character that more bytes could complete: 0 to 3.
fn incomplete_tail(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(3))
        .rev()
        .find(|&len| {
            let tail = &bytes[bytes.len() - len..];
            matches!(std::str::from_utf8(tail), Err(error) if error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Tokenizer, toy_vocab};
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn tokenizers() -> [Tokenizer; 3] {
        [
            Tokenizer::bytes(),
            Tokenizer::from_gguf(&toy_vocab::byte_level()).unwrap(),
            Tokenizer::from_gguf(&toy_vocab::sentencepiece()).unwrap(),
        ]
    }

    fn pieces(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
        let mut stream = tokenizer.stream();
        let mut pieces: Vec<String> = ids.iter().filter_map(|&id| stream.push(id)).collect();
        pieces.push(stream.finish());
        pieces
    }

    /// T90: characters of 2 to 4 bytes, each byte a token, and a joined emoji of 18 bytes.
    #[test]
    fn characters_come_out_whole() {
        let text = "é 日本語 👩‍👩‍👧 the";
        for tokenizer in tokenizers() {
            let ids = tokenizer.encode(text, false).unwrap();
            assert!(ids.len() > text.chars().count(), "{}: too few splits", tokenizer.name());
            let pieces = pieces(&tokenizer, &ids);
            assert_eq!(pieces.concat(), text, "{}", tokenizer.name());
            assert!(pieces.iter().all(|piece| !piece.contains('\u{FFFD}')));
        }
    }

    #[test]
    fn a_piece_comes_as_soon_as_its_character_is_complete() {
        let mut stream = Tokenizer::bytes().stream();
        let pushed: Vec<_> = "a👩b".bytes().map(|byte| stream.push(u32::from(byte))).collect();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(pushed, [text("a"), None, None, None, text("👩"), text("b")]);
    }

    /// T90: cut by a limit in the middle of a character.
    #[test]
    fn a_cut_character_is_one_replacement_at_the_end() {
        for cut in 1..4 {
            let ids: Vec<u32> = "x👩".bytes().take(1 + cut).map(u32::from).collect();
            assert_eq!(
                pieces(&Tokenizer::bytes(), &ids),
                ["x", "\u{FFFD}"],
                "after {cut} bytes"
            );
        }
        let mut stream = Tokenizer::bytes().stream();
        stream.push(0xF0);
        stream.finish();
        assert_eq!((stream.finish(), stream.pending_bytes()), (String::new(), 0));
    }

    /// T90: bytes that never become a character.
    #[test]
    fn invalid_bytes_do_not_stall() {
        let mut stream = Tokenizer::bytes().stream();
        let replacement = Some("\u{FFFD}".to_owned());
        for byte in [0xFF, 0x80, 0xC0, 0xF8] {
            assert_eq!(stream.push(byte), replacement, "{byte:#X}");
        }
        // E0 asks for A0 or more, so 80 ends it; F0 9F asks for a continuation, so a letter does.
        assert_eq!(
            (stream.push(0xE0), stream.push(0x80)),
            (None, Some("\u{FFFD}\u{FFFD}".to_owned()))
        );
        assert_eq!(
            (stream.push(0xF0), stream.push(0x9F), stream.push(0x41)),
            (None, None, Some("\u{FFFD}A".to_owned()))
        );
        // A second start gives up the first and waits itself.
        assert_eq!((stream.push(0xE6), stream.push(0xE6)), (None, replacement));
        assert_eq!(stream.pending_bytes(), 1);
    }

    #[test]
    fn random_ids_stream_to_their_decode() {
        let mut rng = ChaCha8Rng::seed_from_u64(90);
        for tokenizer in tokenizers() {
            // Ids just outside the vocabulary too, and many bytes that start or continue characters.
            let vocab = tokenizer.vocab_size() as u32;
            let starts: Vec<u32> = (0..vocab + 3)
                .filter(|&id| tokenizer.decode(&[id]).contains('\u{FFFD}'))
                .collect();
            for _ in 0..1000 {
                let len = rng.random_range(0..24);
                let ids: Vec<u32> = (0..len)
                    .map(|_| match rng.random_range(0..3) {
                        0 => rng.random_range(0..vocab + 3),
                        _ => starts[rng.random_range(0..starts.len())],
                    })
                    .collect();
                let mut stream = tokenizer.stream();
                let mut text = String::new();
                for &id in &ids {
                    text += &stream.push(id).unwrap_or_default();
                    assert!(stream.pending_bytes() <= 3);
                }
                text += &stream.finish();
                assert_eq!(text, tokenizer.decode(&ids), "{} {ids:?}", tokenizer.name());
                let (prompt, answer) = ids.split_at(ids.len() / 2);
                let mut before = tokenizer.stream();
                let mut text: String = prompt.iter().filter_map(|&id| before.push(id)).collect();
                let mut after = tokenizer.stream_after(prompt);
                text.extend(answer.iter().filter_map(|&id| after.push(id)));
                text += &after.finish();
                assert_eq!(
                    text,
                    tokenizer.decode(&ids),
                    "{} {prompt:?} {answer:?}",
                    tokenizer.name()
                );
            }
        }
    }

    #[test]
    fn the_leading_space_goes_at_the_start_and_stays_after_a_prompt() {
        let tokenizer = Tokenizer::from_gguf(&toy_vocab::sentencepiece()).unwrap();
        let ids = tokenizer.encode("the cat", false).unwrap();
        assert_eq!(pieces(&tokenizer, &ids), ["the", " cat", ""]);
        let mut stream = tokenizer.stream_after(&ids);
        assert_eq!(stream.push(ids[1]), Some(" cat".to_owned()));
        // "▁" alone is the leading space and gives no text.
        let space = tokenizer.token_to_id("▁").unwrap();
        assert_eq!(pieces(&tokenizer, &[space, ids[0]]), [" the", ""]);
    }
}
