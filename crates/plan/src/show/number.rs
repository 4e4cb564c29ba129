//! Numbers, as short as they may be without losing what matters.

use kvlab_core::Bytes;

/// Three significant digits: `0.12`, `1.23`, `12.3`, `123`, `12345`.
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

/// Milliseconds: `0.123 ms`, `12.3 ms`, `1.23 s`.
pub(super) fn time(ms: f64) -> String {
    match ms {
        ms if ms < 999.5 => format!("{} ms", short(ms)),
        ms => format!("{} s", short(ms / 1e3)),
    }
}

/// Bytes in decimal units, with three significant digits: `140 GB`, `805 KB`.
pub(super) fn decimal(n: u64) -> String {
    let (mut value, mut unit) = (n as f64, 0);
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    let value = if unit == 0 { n.to_string() } else { short(value) };
    format!("{value} {}", UNITS[unit])
}

/// Bytes in binary units, with three significant digits and no zeros behind them: `128 KiB`, `4.5 KiB`, `287 MiB`.
pub(super) fn binary(bytes: Bytes) -> String {
    let (mut value, mut unit) = (bytes.0 as f64, 0);
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    while value >= 999.5 && unit + 1 < UNITS.len() && bytes.0 >= 1024 {
        value /= 1024.0;
        unit += 1;
    }
    let text = if unit == 0 { bytes.0.to_string() } else { short(value) };
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text} {}", UNITS[unit])
}

/// A number of things: `8.03 B`, `135 M`, `212 K`.
pub(super) fn count(n: u64) -> String {
    let n = n as f64;
    match n {
        n if n >= 999.5e6 => format!("{} B", short(n / 1e9)),
        n if n >= 999.5e3 => format!("{} M", short(n / 1e6)),
        n if n >= 1e4 => format!("{} K", short(n / 1e3)),
        n => format!("{n}"),
    }
}

/// An amount of money, down to a hundredth of a cent where it is small: `1234.50`, `0.0123`.
pub(super) fn money(x: f64) -> String {
    match x.abs() {
        y if y < 1.0 => format!("{x:.4}"),
        _ => format!("{x:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        assert_eq!(
            [0.1234, 9.996, 123.4, 1234.5].map(time),
            ["0.123 ms", "10.0 ms", "123 ms", "1.23 s"]
        );
        assert_eq!(
            [812, 212_000, 134_515_008, 8_030_261_248].map(count),
            ["812", "212 K", "135 M", "8.03 B"]
        );
        assert_eq!(
            [999, 402_560, 17_500_000_000].map(decimal),
            ["999 B", "403 KB", "17.5 GB"]
        );
        let bytes = [0, 1000, 1023, 131_072, 36_720, 1_023_000, 300_810_000, 16 << 30];
        let want = [
            "0 B", "1000 B", "1023 B", "128 KiB", "35.9 KiB", "999 KiB", "287 MiB", "16 GiB",
        ];
        assert_eq!(bytes.map(|n| binary(Bytes(n))), want);
        assert_eq!([0.01234, 1234.5].map(money), ["0.0123", "1234.50"]);
    }
}
