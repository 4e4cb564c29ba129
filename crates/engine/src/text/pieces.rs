//! The bytes of every token id: the one table that decoding and streaming read.
//!
//! Decoding here is concatenation of bytes and nothing else, which is why a stream can be exactly equal
//! to a decode of everything: no step looks at its neighbours, apart from the one leading space that
//! SentencePiece puts before a text.

/// How the text of a token stands for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// The text is the bytes.
    Literal,
    /// GPT-2: each character stands for one byte.
    ByteLevel,
    /// SentencePiece: `▁` is a space.
    SpaceMark,
    /// SentencePiece: `<0xNN>` is one byte.
    Byte,
}

/// Bytes by token id.
#[derive(Debug, Clone, Default)]
pub(super) struct Pieces {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    special: Vec<bool>,
    leading_space: bool,
    byte_level: bool,
}

/// What an id outside the vocabulary decodes to: models pad their output rows, so it can be sampled.
const UNKNOWN: &[u8] = "\u{FFFD}".as_bytes();

impl Pieces {
    /// No ids yet. With `leading_space`, a text begins with one space that is not part of it.
    pub(super) fn new(leading_space: bool) -> Self {
        Pieces {
            leading_space,
            ..Pieces::default()
        }
    }

    /// The 256 bytes, each its own id.
    pub(super) fn of_bytes() -> Self {
        let mut pieces = Pieces::new(false);
        for byte in 0..=u8::MAX {
            pieces.push_bytes(&[byte], false);
        }
        pieces
    }

    /// Appends the next id.
    pub(super) fn push(&mut self, text: &str, spelling: Spelling, special: bool) {
        self.byte_level |= spelling == Spelling::ByteLevel;
        let bytes = match spelling {
            Spelling::Literal => text.as_bytes().to_vec(),
            Spelling::ByteLevel => text
                .chars()
                .map(byte_of_char)
                .collect::<Option<Vec<u8>>>()
                .unwrap_or_else(|| text.as_bytes().to_vec()),
            Spelling::SpaceMark => text.replace(SPACE_MARK, " ").into_bytes(),
            Spelling::Byte => match byte_of_token(text) {
                Some(byte) => vec![byte],
                None => text.as_bytes().to_vec(),
            },
        };
        self.push_bytes(&bytes, special);
    }

    fn push_bytes(&mut self, bytes: &[u8], special: bool) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
        self.special.push(special);
    }

    /// The bytes of an id.
    pub(super) fn get(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else {
            return UNKNOWN;
        };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start..end]
    }

    /// Whether an id is a special token.
    pub(super) fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }

    /// Whether a text begins with one space that is not part of it.
    pub(super) fn leading_space(&self) -> bool {
        self.leading_space
    }

    /// The bytes of UTF-8 that byte-level BPE cannot write here, and would drop. The other kinds drop none:
    /// they have an unknown token, or byte tokens that were checked.
    pub(super) fn missing_bytes(&self) -> Vec<u8> {
        let mut has = [!self.byte_level; 256];
        for id in (0u32..).take(self.len()) {
            if let &[byte] = self.get(id) {
                has[usize::from(byte)] = true;
            }
        }
        let in_utf8 = |byte: u8| !matches!(byte, 0xC0 | 0xC1 | 0xF5..);
        (0..=u8::MAX)
            .filter(|&byte| in_utf8(byte) && !has[usize::from(byte)])
            .collect()
    }

    /// How many ids there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}

/// `▁`, U+2581: how SentencePiece writes a space.
pub(super) const SPACE_MARK: &str = "\u{2581}";

/// The byte of a SentencePiece byte token, `<0x0A>`.
pub(super) fn byte_of_token(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() != 2 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u8::from_str_radix(hex, 16).ok()
}

/// Whether a byte is written as the character of the same number in GPT-2's alphabet.
fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// The inverse of [`byte_of_char`].
#[cfg(test)]
pub(super) fn char_of_byte(byte: u8) -> char {
    if is_printable(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&b| !is_printable(b)).count();
    char::from_u32(0x100 + rank as u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// GPT-2's alphabet (`bytes_to_unicode`): printable Latin-1 stands for itself, and U+0100 and up, in order,
/// for the 68 other bytes.
pub(super) fn byte_of_char(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ 0..=0xFF => Some(code as u8).filter(|&byte| is_printable(byte)),
        code => (0..=u8::MAX)
            .filter(|&byte| !is_printable(byte))
            .nth((code - 0x100) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpt2_alphabet_is_a_bijection_with_its_known_members() {
        for byte in 0..=u8::MAX {
            assert_eq!(byte_of_char(char_of_byte(byte)), Some(byte));
        }
        for (byte, c) in [
            (b' ', 'Ġ'),
            (b'\n', 'Ċ'),
            (b'\t', 'ĉ'),
            (0x00, 'Ā'),
            (0x7F, 'ġ'),
            (0xAD, 'Ń'),
            (0xE9, 'é'),
        ] {
            assert_eq!(char_of_byte(byte), c, "{byte:#04X}");
        }
        for c in [' ', '\n', '\u{AD}', '\u{144}', '▁', '😀'] {
            assert_eq!(byte_of_char(c), None, "{c:?}");
        }
    }

    #[test]
    fn byte_tokens() {
        assert_eq!(byte_of_token("<0x0A>"), Some(10));
        assert_eq!(byte_of_token("<0xff>"), Some(255));
        for text in ["<0x+1>", "<0x123>", "<0x1>", "0x0A", "<0x0A", "<0x0é>"] {
            assert_eq!(byte_of_token(text), None, "{text}");
        }
    }

    #[test]
    fn an_id_outside_the_vocabulary_is_visible() {
        let pieces = Pieces::of_bytes();
        assert_eq!(pieces.get(65), b"A");
        assert_eq!(pieces.get(256), UNKNOWN);
        assert_eq!(pieces.get(u32::MAX), UNKNOWN);
    }
}
