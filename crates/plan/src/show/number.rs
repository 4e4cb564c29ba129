//! Numbers, as short as they may be without losing what matters.

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
        assert_eq!([0.01234, 1234.5].map(money), ["0.0123", "1234.50"]);
    }
}
