//! How much a cache may hold: tokens or bytes, written `"8192 tokens"` or `"2 GiB"`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The size of a cache, as the config states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capacity {
    /// Rows per layer, in tokens, at least 1.
    Tokens(usize),
    /// A budget for the whole cache, in bytes, at least 1.
    Bytes(u64),
}

/// Why a text is no capacity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapacityError {
    /// It does not start with a number.
    #[error("`{0}` is no capacity: it does not start with a number")]
    NoNumber(String),
    /// The unit is not known.
    #[error("unknown unit `{0}` of a capacity")]
    Unit(String),
    /// A unit of powers of ten, or one that might be.
    #[error("`{0}` might mean powers of 1000 or of 1024: write `{1}`")]
    AmbiguousUnit(String, &'static str),
    /// Nothing fits in zero.
    #[error("a capacity must be at least 1")]
    Zero,
    /// More than the machine can count.
    #[error("`{0}` is too large")]
    TooLarge(String),
    /// A fraction of a token or of a byte.
    #[error("`{0}` is not a whole number of {1}")]
    Fraction(String, &'static str),
}

/// Units of bytes, largest first: name, bytes.
const UNITS: [(&str, u64); 5] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

impl FromStr for Capacity {
    type Err = CapacityError;

    /// Reads `8192`, `8192 tokens`, `2 GiB`, `1.5 GiB`, `512 MiB`, `64 KiB`, `1000000 B`.
    fn from_str(text: &str) -> Result<Self, CapacityError> {
        let text = text.trim();
        let split = text
            .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
            .unwrap_or(text.len());
        let (number, unit) = (&text[..split], text[split..].trim());
        let Some((digits, decimals)) = digits(number) else {
            return Err(CapacityError::NoNumber(text.to_owned()));
        };
        let too_large = || CapacityError::TooLarge(text.to_owned());
        let (size, what) = match unit {
            "" | "token" | "tokens" => (1, "tokens"),
            _ => (unit_of_bytes(unit)?, "bytes"),
        };
        let mantissa: u128 = digits.parse().map_err(|_| too_large())?;
        let scaled = mantissa.checked_mul(u128::from(size)).ok_or_else(too_large)?;
        let divisor = 10_u128.checked_pow(decimals).ok_or_else(too_large)?;
        if scaled % divisor != 0 {
            return Err(CapacityError::Fraction(text.to_owned(), what));
        }
        let count = scaled / divisor;
        if count == 0 {
            return Err(CapacityError::Zero);
        }
        // The config is TOML, whose integers have 63 bits: nothing larger could be written back.
        let count = i64::try_from(count).map_err(|_| too_large())?;
        if what == "tokens" {
            usize::try_from(count).map(Self::Tokens).map_err(|_| too_large())
        } else {
            u64::try_from(count).map(Self::Bytes).map_err(|_| too_large())
        }
    }
}

/// The digits of a decimal number without its point and underscores, and how many stood after the point.
fn digits(number: &str) -> Option<(String, u32)> {
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let ends_in_point = number.ends_with('.');
    if whole.is_empty() || ends_in_point || fraction.contains('.') {
        return None;
    }
    let decimals = u32::try_from(fraction.len()).ok()?;
    Some((format!("{whole}{fraction}"), decimals))
}

fn unit_of_bytes(unit: &str) -> Result<u64, CapacityError> {
    if let Some((_, size)) = UNITS.iter().find(|(name, _)| *name == unit) {
        return Ok(*size);
    }
    let likely = match unit.to_ascii_lowercase().as_str() {
        "t" | "tb" | "tib" => "TiB",
        "g" | "gb" | "gib" => "GiB",
        "m" | "mb" | "mib" => "MiB",
        "k" | "kb" | "kib" => "KiB",
        "b" | "byte" | "bytes" => "B",
        _ => return Err(CapacityError::Unit(unit.to_owned())),
    };
    Err(CapacityError::AmbiguousUnit(unit.to_owned(), likely))
}

impl fmt::Display for Capacity {
    /// The largest unit that loses nothing: what is printed parses to the same value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens(1) => write!(f, "1 token"),
            Self::Tokens(tokens) => write!(f, "{tokens} tokens"),
            Self::Bytes(bytes) => {
                let (name, size) = UNITS.iter().find(|(_, size)| bytes % size == 0).unwrap_or(&("B", 1));
                write!(f, "{} {name}", bytes / size)
            }
        }
    }
}

impl Serialize for Capacity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Capacity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reads_every_unit() {
        let cases = [
            ("8192 tokens", Capacity::Tokens(8192)),
            ("1 token", Capacity::Tokens(1)),
            (" 8_192tokens ", Capacity::Tokens(8192)),
            ("17", Capacity::Tokens(17)),
            ("1000000 B", Capacity::Bytes(1_000_000)),
            ("64 KiB", Capacity::Bytes(65_536)),
            ("512 MiB", Capacity::Bytes(512 << 20)),
            ("2 GiB", Capacity::Bytes(2 << 30)),
            ("1.5GiB", Capacity::Bytes(3 << 29)),
            ("3 TiB", Capacity::Bytes(3 << 40)),
        ];
        for (text, expect) in cases {
            assert_eq!(text.parse(), Ok(expect), "{text}");
        }
    }

    #[test]
    fn refuses_what_it_cannot_count() {
        let parse = |text: &str| text.parse::<Capacity>().unwrap_err();
        for text in ["", "tokens", "-1", ".5 GiB", "1. GiB", "1.2.3 B", "_"] {
            assert!(matches!(parse(text), CapacityError::NoNumber(_)), "{text}");
        }
        assert_eq!(parse("0"), CapacityError::Zero);
        assert_eq!(parse("0.0 GiB"), CapacityError::Zero);
        assert_eq!(parse("2 GB"), CapacityError::AmbiguousUnit("GB".into(), "GiB"));
        assert_eq!(parse("2 gib"), CapacityError::AmbiguousUnit("gib".into(), "GiB"));
        assert_eq!(parse("2 pages"), CapacityError::Unit("pages".into()));
        assert!(matches!(parse("1.5 tokens"), CapacityError::Fraction(_, "tokens")));
        assert!(matches!(parse("0.3 KiB"), CapacityError::Fraction(_, "bytes")));
        for text in [
            "8388608 TiB",
            "9223372036854775808",
            &format!("{} TiB", "9".repeat(60)),
            &format!("0.{}1 B", "0".repeat(50)),
        ] {
            assert!(matches!(parse(text), CapacityError::TooLarge(_)), "{text}");
        }
        assert_eq!("8388607 TiB".parse(), Ok(Capacity::Bytes(8_388_607 << 40)));
    }

    proptest::proptest! {
        #[test]
        fn what_is_printed_parses_to_the_same(count in 1..=i64::MAX, shift in 0_u32..50) {
            let count = (count >> shift << shift).max(1).unsigned_abs();
            for capacity in [Capacity::Tokens(usize::try_from(count).unwrap()), Capacity::Bytes(count)] {
                assert_eq!(capacity.to_string().parse(), Ok(capacity));
            }
        }
    }
}
