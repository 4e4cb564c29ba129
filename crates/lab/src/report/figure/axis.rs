//! One axis of a chart: its range, and where its ticks are.

/// How numbers are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// Ticks at whole numbers, such as layers.
    Whole,
    /// Ticks at powers of ten, and in between where there are few.
    Log10,
    /// Ticks at powers of two: bytes.
    Log2,
}

impl Scale {
    fn is_logarithmic(self) -> bool {
        matches!(self, Self::Log10 | Self::Log2)
    }
}

/// An axis over some numbers. *Places* are what the chart is drawn in: the numbers, or their logarithms.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) title: String,
    pub(super) scale: Scale,
    /// The text of a tick.
    pub(super) label: fn(f64) -> String,
    low: f64,
    high: f64,
}

impl Axis {
    /// An axis that shows all of `values`, with some room at both ends. On a logarithmic one only those above 0 count. `None`
    /// where there is none.
    pub(super) fn over(
        title: &str,
        scale: Scale,
        label: fn(f64) -> String,
        values: impl IntoIterator<Item = f64>,
    ) -> Option<Self> {
        let shown = |x: &f64| x.is_finite() && (!scale.is_logarithmic() || *x > 0.0);
        let (low, high) = values
            .into_iter()
            .filter(shown)
            .map(|x| place(scale, x))
            .fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(x), b.max(x)));
        if low > high {
            return None;
        }
        let least = match scale {
            Scale::Whole => 0.5,
            Scale::Log10 => 0.08,
            Scale::Log2 => 0.25,
        };
        let room = (0.05 * (high - low)).max(least);
        Some(Self {
            title: title.to_owned(),
            scale,
            label,
            low: low - room,
            high: high + room,
        })
    }

    /// The same, with so much of its length more room at its high end.
    pub(super) fn roomier(mut self, share: f64) -> Self {
        self.high += share * (self.high - self.low);
        self
    }

    /// The ends, as places.
    pub(super) fn places(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// The ends, as numbers.
    pub(super) fn ends(&self) -> (f64, f64) {
        (self.number(self.low), self.number(self.high))
    }

    /// Where a number is.
    pub(super) fn place(&self, x: f64) -> f64 {
        place(self.scale, x)
    }

    /// The number at a place.
    pub(super) fn number(&self, place: f64) -> f64 {
        match self.scale {
            Scale::Whole => place,
            Scale::Log10 => 10.0_f64.powf(place),
            Scale::Log2 => 2.0_f64.powf(place),
        }
    }

    /// The text at a place.
    pub(super) fn text(&self, place: f64) -> String {
        (self.label)(self.number(place))
    }

    /// The places of the ticks, at most about `most`.
    pub(super) fn ticks(&self, most: usize) -> Vec<f64> {
        let most = most.max(2);
        if self.scale == Scale::Log10 && self.high - self.low < 2.5 {
            let steps: &[f64] = if self.high - self.low < 0.5 {
                &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
            } else {
                &[1.0, 2.0, 5.0]
            };
            let decades = (self.low.floor() as i32)..=(self.high.ceil() as i32);
            let ticks = decades.flat_map(|d| steps.iter().map(move |s| s.log10() + f64::from(d)));
            return ticks.filter(|tick| self.contains(*tick)).collect();
        }
        let step = match self.scale {
            Scale::Whole => nice((self.high - self.low) / most as f64).max(1.0),
            Scale::Log10 | Scale::Log2 => ((self.high - self.low) / most as f64).ceil().max(1.0),
        };
        let first = (self.low / step).ceil() as i64;
        let ticks = (0..).map(|i| (first + i) as f64 * step);
        ticks.take_while(|tick| *tick <= self.high + 1e-9).collect()
    }

    fn contains(&self, place: f64) -> bool {
        (self.low - 1e-9..=self.high + 1e-9).contains(&place)
    }
}

fn place(scale: Scale, x: f64) -> f64 {
    match scale {
        Scale::Whole => x,
        Scale::Log10 => x.log10(),
        Scale::Log2 => x.log2(),
    }
}

/// The next of 1, 2, 5, 10, 20, ... and of their tenths.
fn nice(step: f64) -> f64 {
    let decade = 10.0_f64.powf(step.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|s| s * decade);
    steps
        .into_iter()
        .find(|s| *s >= step * (1.0 - 1e-9))
        .unwrap_or(10.0 * decade)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn axis(scale: Scale, values: &[f64]) -> Axis {
        Axis::over("", scale, |x| format!("{x:.3}"), values.iter().copied()).unwrap()
    }

    fn numbers(axis: &Axis, most: usize) -> Vec<String> {
        axis.ticks(most).into_iter().map(|place| axis.text(place)).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(numbers(&axis(Scale::Whole, &[0.0, 1.0]), 8), ["0.000", "1.000"]);
        assert_eq!(
            numbers(&axis(Scale::Whole, &[0.0, 9.9]), 5),
            ["0.000", "5.000", "10.000"]
        );
        assert_eq!(
            numbers(&axis(Scale::Log2, &[1024.0, 7000.0]), 9),
            ["1024.000", "2048.000", "4096.000", "8192.000"]
        );
        assert_eq!(
            numbers(&axis(Scale::Log10, &[0.3, 6.0]), 9),
            ["0.500", "1.000", "2.000", "5.000"]
        );
        assert_eq!(
            numbers(&axis(Scale::Log10, &[1e-6, 1.0]), 3),
            ["0.000", "0.001", "1.000"]
        );
    }

    #[test]
    fn what_cannot_be_shown_does_not_count() {
        let log = axis(Scale::Log10, &[0.0, -3.0, f64::NAN, 10.0, 1000.0]);
        let (low, high) = log.ends();
        assert!(
            low < 10.0 && low > 5.0 && high > 1000.0 && high < 2000.0,
            "{low} {high}"
        );
        assert!(Axis::over("", Scale::Log10, |_| String::new(), [0.0]).is_none());
        assert!(Axis::over("", Scale::Whole, |_| String::new(), []).is_none());
    }

    #[test]
    fn one_number_has_an_axis_too() {
        for scale in [Scale::Whole, Scale::Log10, Scale::Log2] {
            let (low, high) = axis(scale, &[5.0]).ends();
            assert!(low < 5.0 && 5.0 < high, "{scale:?}");
        }
    }
}
