//! Numbers, as short as they may be without losing what matters.

const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// Three significant digits: `0.123`, `1.23`, `12.3`, `123`, `12345`.
pub(super) fn short(x: f64) -> String {
    // The digits after rounding decide: 9.996 is 10.0.
    let decimals = match x.abs() {
        x if x < 0.9995 => 3,
        x if x < 9.995 => 2,
        x if x < 99.95 => 1,
        _ => 0,
    };
    format!("{x:.decimals$}")
}

/// A small number that may be zero: `0`, `3.1e-9`, `0.0012`, `1.23`.
pub(super) fn small(x: f64) -> String {
    match x.abs() {
        0.0 => "0".to_owned(),
        y if y < 0.001 => format!("{x:.1e}"),
        y if y < 0.1 => format!("{x:.4}"),
        _ => short(x),
    }
}

/// A number without zeros at its end, for an axis: `0.05`, `2`, `1000`.
pub(super) fn plain(x: f64) -> String {
    let text = format!("{x:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The same for powers of ten on an axis: `1`, `0.01`, `1e-4`.
pub(super) fn power(x: f64) -> String {
    if x < 0.0095 { format!("{x:.0e}") } else { plain(x) }
}

/// A change in percent, with its sign: `+1.23`, `-0.01`, `+0.00`.
pub(super) fn change(x: f64) -> String {
    let text = format!("{x:+.2}");
    if text == "-0.00" { "+0.00".to_owned() } else { text }
}

/// A share in percent. Only all is `100`: 99.999 is `<100`.
pub(super) fn share(x: f64) -> String {
    match format!("{x:.1}") {
        text if text == "100.0" && x < 100.0 => "<100".to_owned(),
        text if text == "100.0" => "100".to_owned(),
        text => text,
    }
}

/// Bytes in binary units, with three significant digits: `0 B`, `1023 B`, `95.5 KiB`, `334 KiB`.
pub(super) fn bytes(n: u64) -> String {
    let (mut value, mut unit) = (n as f64, 0);
    while value >= 999.5 && unit + 1 < UNITS.len() && n >= 1024 {
        value /= 1024.0;
        unit += 1;
    }
    let value = if unit == 0 { n.to_string() } else { short(value) };
    format!("{value} {}", UNITS[unit])
}

/// What a text of a table is sorted by, as a number in text: the first number in it, bytes in bytes; nothing for what was not
/// measured, and more than any number for a difference that never came.
pub(super) fn key(text: &str) -> String {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default();
    if first == "none" {
        return "1e308".to_owned();
    }
    let below = first.strip_prefix('<').map(|n| n.parse::<f64>().map(|n| n - 1e-9));
    let Ok(value) = below.unwrap_or_else(|| first.parse()) else {
        return String::new();
    };
    let unit = words
        .next()
        .and_then(|word| UNITS.iter().position(|unit| *unit == word));
    exact(value * 1024.0_f64.powi(unit.unwrap_or(0) as i32))
}

/// Every digit that tells it from its neighbours, for a program to read.
pub(super) fn exact(x: f64) -> String {
    format!("{x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_also_where_rounding_adds_one() {
        for (x, want) in [
            (0.0, "0.000"),
            (0.12345, "0.123"),
            (0.9999, "1.00"),
            (9.996, "10.0"),
            (12.34, "12.3"),
            (99.96, "100"),
            (123.4, "123"),
            (12_345.6, "12346"),
        ] {
            assert_eq!(short(x), want);
        }
    }

    #[test]
    fn bytes_keep_three_digits() {
        for (n, want) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (97_792, "95.5 KiB"),
            (342_272, "334 KiB"),
            (1_048_575, "1.00 MiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(bytes(n), want);
        }
    }

    #[test]
    fn what_is_not_zero_does_not_look_like_it() {
        assert_eq!(
            [0.0, 3.14e-9, 0.00123, 0.0555, 1.234].map(small),
            ["0", "3.1e-9", "0.0012", "0.0555", "1.23"]
        );
        assert_eq!([100.0, 99.999, 98.46].map(share), ["100", "<100", "98.5"]);
        assert_eq!(
            [1.234, -0.001, 0.0, -5.0].map(change),
            ["+1.23", "+0.00", "+0.00", "-5.00"]
        );
    }

    #[test]
    fn keys_sort_as_people_read() {
        for (text, want) in [
            ("1.5", "1.5"),
            ("+10.06", "10.06"),
            ("-0.50", "-0.5"),
            ("9.7e-7", "0.00000097"),
            ("62.0 KiB", "63488"),
            ("512 B", "512"),
            ("12.5 (11.0 to 14.0)", "12.5"),
            ("<100", "99.999999999"),
            ("none", "1e308"),
            ("-", ""),
            ("rows dropped", ""),
            ("", ""),
        ] {
            assert_eq!(key(text), want, "{text}");
        }
    }

    #[test]
    fn numbers_on_an_axis_have_no_idle_zeros() {
        assert_eq!([0.05, 2.0, 1000.0, 0.5].map(plain), ["0.05", "2", "1000", "0.5"]);
        assert_eq!(
            [1.0, 0.1, 0.01, 0.001, 1e-8].map(power),
            ["1", "0.1", "0.01", "1e-3", "1e-8"]
        );
    }
}
