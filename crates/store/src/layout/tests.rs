//! Properties of layouts, over random histories.

use super::*;
use proptest::prelude::*;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Op {
    Append(u8, usize),
    Fork(u8, u8),
    Truncate(u8, usize),
    Close(u8),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0..4_u8, 1..9_usize).prop_map(|(s, n)| Op::Append(s, n)),
        1 => (0..4_u8, 0..4_u8).prop_map(|(a, b)| Op::Fork(a, b)),
        2 => (0..4_u8, 0..4_usize).prop_map(|(s, n)| Op::Truncate(s, n)),
        1 => (0..4_u8).prop_map(Op::Close),
    ];
    proptest::collection::vec(op, 1..60)
}

/// A model of the storage: what each slot holds. Every sequence must find its own rows, whatever happens to others.
fn check(
    layout: &mut dyn Layout,
    window: usize,
    sinks: usize,
    ops: Vec<Op>,
    shared: bool,
) -> Result<(), TestCaseError> {
    type Row = (u64, usize); // Which history wrote it, at which position.
    let mut slots: Vec<Option<Row>> = vec![None; layout.slots()];
    let mut lengths: BTreeMap<SeqId, Vec<u64>> = BTreeMap::new();
    let mut stamp = 0;
    let mut names: BTreeMap<u8, SeqId> = BTreeMap::new();
    let mut next = 0;
    for op in ops {
        match op {
            Op::Append(name, tokens) => {
                let seq = *names.entry(name).or_insert_with(|| {
                    next += 1;
                    SeqId(next)
                });
                let history = lengths.entry(seq).or_default();
                let ids = vec![0; tokens];
                let growth = Growth {
                    seq,
                    start: history.len(),
                    tokens: &ids,
                };
                match layout.check(&[growth]) {
                    Err(shortage) => prop_assert!(shortage.needed > shortage.free),
                    Ok(()) => {
                        stamp += 1;
                        history.extend(std::iter::repeat_n(stamp, tokens));
                        let placed = layout.append(growth);
                        for copy in placed.copies {
                            for i in 0..copy.len {
                                slots[copy.to + i] = slots[copy.from + i];
                            }
                        }
                        for write in placed.writes {
                            for i in 0..write.len {
                                slots[write.slot + i] = Some((stamp, growth.start + write.offset + i));
                            }
                        }
                    }
                }
            }
            Op::Fork(from, to) => {
                if let (Some(&from), None) = (names.get(&from), names.get(&to)) {
                    next += 1;
                    let new = SeqId(next);
                    let history = lengths.get(&from).cloned().unwrap_or_default();
                    if let Ok(copies) = layout.fork(from, new, history.len()) {
                        for copy in copies {
                            for i in 0..copy.len {
                                slots[copy.to + i] = slots[copy.from + i];
                            }
                        }
                        names.insert(to, new);
                        lengths.insert(new, history);
                    }
                }
            }
            Op::Truncate(name, by) => {
                if let Some(seq) = names.get(&name) {
                    let history = lengths.entry(*seq).or_default();
                    let len = history.len().saturating_sub(by);
                    if len < history.len() && len >= layout.shortest(*seq) {
                        layout.truncate(*seq, len);
                        history.truncate(len);
                    }
                }
            }
            Op::Close(name) => {
                if let Some(seq) = names.remove(&name) {
                    layout.close(seq);
                    lengths.remove(&seq);
                }
            }
        }
        let mut taken: BTreeMap<usize, (u64, usize)> = BTreeMap::new();
        for (&seq, history) in &lengths {
            let len = history.len();
            let mut found = BTreeSet::new();
            let mut last = None;
            for run in layout.runs(seq, len) {
                prop_assert!(run.len > 0);
                prop_assert!(
                    last.is_none_or(|last| run.position > last),
                    "runs are in order of position"
                );
                last = Some(run.position + run.len - 1);
                for i in 0..run.len {
                    let position = run.position + i;
                    let row = (history[position], position);
                    let other = taken.insert(run.slot + i, row);
                    prop_assert!(other.is_none_or(|other| shared && other == row), "a slot holds one row");
                    prop_assert_eq!(slots[run.slot + i], Some((history[position], position)));
                    found.insert(position);
                }
            }
            // What the next query may see is there.
            for position in 0..len {
                if position < sinks || len - position < window {
                    prop_assert!(found.contains(&position), "{} of {} is missing", position, len);
                }
            }
        }
    }
    for seq in lengths.keys() {
        layout.close(*seq);
    }
    let all = |n: usize| {
        (0..n).map(|i| Growth {
            seq: SeqId(1000 + i as u64),
            start: 0,
            tokens: &[0],
        })
    };
    prop_assert!(
        layout.check(&all(3).collect::<Vec<_>>()).is_ok(),
        "everything is free again"
    );
    Ok(())
}

proptest! {
    #[test]
    fn contiguous_keeps_every_row(ops in ops()) {
        check(&mut Contiguous::new(20, 3, 1), usize::MAX, 0, ops, false)?;
    }

    #[test]
    fn ring_keeps_what_its_window_covers(window in 1..8_usize, sinks in 0..4_usize, ops in ops()) {
        check(&mut Ring::new(window, sinks, 64, 3), window, sinks, ops, false)?;
    }

    #[test]
    fn pages_keep_every_row(size in 1..6_usize, ops in ops()) {
        check(&mut Paged::<RandomState>::new(size, 60 / size, Reach::ALL, false), usize::MAX, 0, ops, true)?;
    }

    #[test]
    fn pages_keep_what_a_window_covers(size in 1..6_usize, window in 1..8_usize, sinks in 0..4_usize, ops in ops()) {
        let reach = Reach { window, sinks };
        check(&mut Paged::<RandomState>::new(size, 60 / size, reach, false), window, sinks, ops, true)?;
    }

    #[test]
    fn a_ring_beyond_its_capacity_keeps_every_row(ops in ops()) {
        check(&mut Ring::new(100, 2, 20, 3), usize::MAX, 0, ops, false)?;
    }
}
