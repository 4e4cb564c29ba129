//! Which rows a query sees, as intervals of positions, so that no loop has to ask row by row.

use kvlab_core::{Retention, Span};
use kvlab_store::layout::Run;
use kvlab_store::{Form, Input};

/// The rows that a query sees: those in `from..to` that are not in `sinks..kept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    from: usize,
    to: usize,
    sinks: usize,
    kept: usize,
}

impl Sight {
    /// That of the query at position `query` of a chunk that begins at `start`, among rows of this form: exactly what
    /// [`Input::sees`] says.
    pub fn new(input: &Input<'_>, form: Form, start: usize, query: usize) -> Self {
        let behind = |window: usize| (query + 1).saturating_sub(window);
        let packed = input.seal.map_or(query + 1, |seal| seal.sealed(query + 1));
        let (mut from, mut to) = (input.visibility.window().map_or(0, behind), query + 1);
        match form {
            Form::Only => {}
            Form::Packed => to = to.min(packed),
            Form::Open => from = from.max(packed),
        }
        if input.query.span == Span::Past {
            to = to.min(start);
        }
        let (sinks, kept) = match input.retention {
            Retention::All => (0, 0),
            Retention::Window { window, sinks } => (sinks, behind(window.get())),
        };
        Self { from, to, sinks, kept }
    }

    /// Whether it sees the row at this position.
    pub fn sees(&self, row: usize) -> bool {
        (self.from..self.to).contains(&row) && (row >= self.kept || row < self.sinks)
    }

    /// Whether it sees every row from `first` to `last`.
    pub fn sees_all(&self, first: usize, last: usize) -> bool {
        self.from <= first && last < self.to && (first >= self.kept || last < self.sinks)
    }

    /// What at least one of two queries sees, perhaps with rows between that neither does.
    pub fn or(self, other: Self) -> Self {
        Self {
            from: self.from.min(other.from),
            to: self.to.max(other.to),
            sinks: self.sinks.max(other.sinks),
            kept: self.kept.min(other.kept),
        }
    }

    /// The parts of a run that it sees.
    pub fn clip(&self, run: Run) -> impl Iterator<Item = Run> + use<> {
        let run = run.from(self.from).and_then(|run| run.until(self.to));
        let sinks = self.sinks.min(self.kept);
        let sink = run.and_then(|run| run.until(sinks));
        let rest = run.and_then(|run| run.from(self.kept.max(sinks)));
        sink.into_iter().chain(rest)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use burn::tensor::{Device, Tensor};
    use kvlab_core::{Format, Query, RowSpec, Seal, Value, Visibility};
    use std::num::NonZeroUsize;

    fn inputs(seals: &[Option<Seal>]) -> Vec<Input<'_>> {
        let window = |n| NonZeroUsize::new(n).unwrap();
        let visibilities = [
            Visibility::Causal,
            Visibility::Window(window(1)),
            Visibility::Window(window(5)),
        ];
        let retention = |n, sinks| Retention::Window {
            window: window(n),
            sinks,
        };
        let retentions = [
            Retention::All,
            retention(3, 0),
            retention(4, 2),
            retention(2, 9),
            retention(30, 3),
        ];
        let mut inputs = Vec::new();
        for visibility in visibilities {
            for retention in retentions {
                for span in [Span::All, Span::Past] {
                    for seal in seals {
                        let mut query = Query::new(Tensor::zeros([1, 1, 1], &Device::flex()), 1.0);
                        query.span = span;
                        inputs.push(Input {
                            row: RowSpec {
                                heads: 1,
                                key: 1,
                                value: Value::Own(1),
                            },
                            parts: Vec::new(),
                            chunks: &[],
                            visibility,
                            retention,
                            seal: seal.as_ref(),
                            query,
                        });
                    }
                }
            }
        }
        inputs
    }

    fn seals() -> [Option<Seal>; 3] {
        let seal = |block, residual| {
            let open = Format::plain("f16", 16);
            Some(Seal { block, residual, open })
        };
        [None, seal(4, 0), seal(3, 5)]
    }

    #[test]
    fn it_is_what_the_rules_say() {
        for input in inputs(&seals()) {
            for (start, query) in [(0, 0), (0, 7), (6, 6), (6, 9), (11, 17)] {
                for form in [Form::Only, Form::Packed, Form::Open] {
                    let sight = Sight::new(&input, form, start, query);
                    let seen: Vec<_> = (0..20).filter(|&row| input.sees(form, start, query, row)).collect();
                    let got: Vec<_> = (0..20).filter(|&row| sight.sees(row)).collect();
                    assert_eq!(got, seen, "{sight:?}, query {query} of a chunk from {start}");
                    for first in 0..20 {
                        for last in first..20 {
                            let all = (first..=last).all(|row| sight.sees(row));
                            // It may fail to notice where a hole is empty, but never the other way round.
                            assert!(all || !sight.sees_all(first, last), "{sight:?}: {first}..={last}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn clipping_loses_no_row() {
        for input in inputs(&seals()) {
            for form in [Form::Only, Form::Packed, Form::Open] {
                let [a, b] = [6, 9].map(|query| Sight::new(&input, form, 6, query));
                let run = Run {
                    slot: 100,
                    position: 2,
                    len: 15,
                };
                let clipped: Vec<_> = a.or(b).clip(run).collect();
                let rows = |run: &Run| (run.position..run.position + run.len).zip(run.slot..);
                let kept: Vec<_> = clipped.iter().flat_map(rows).collect();
                assert!(kept.windows(2).all(|pair| pair[0].0 < pair[1].0), "{kept:?}");
                assert!(kept.iter().all(|(position, slot)| position + 98 == *slot));
                for row in 2..17 {
                    let seen = a.sees(row) || b.sees(row);
                    assert!(!seen || kept.contains(&(row, row + 98)), "{row} of {kept:?}");
                }
            }
        }
    }
}
