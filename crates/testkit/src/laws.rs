//! The laws. Each is a function that panics where a subject breaks it.

use crate::driver::{Driver, Seq, distance, row_tensors, rows, tensor, tokens};
use crate::{Size, Subject};
use kvlab_core::{
    Accept, Bytes, CacheError, Chunk, LayerId, Query, SeqId, Truncate, Value,
};

/// A law: what it is called, and how it is checked.
pub type Law = (&'static str, fn(&Subject));

/// Every law.
pub const ALL: &[Law] = &[
    ("chunking does not matter", chunking),
    ("a warm cache takes a chunk of any length", warm_chunk),
    ("a batch is its sequences alone", batch),
    ("later tokens change nothing before them", causal),
    ("an abandoned step leaves no trace", abandon),
    ("partly accepted is as if never seen", partial),
    ("a fork goes its own way", fork),
    ("truncation is as if never seen", truncate),
    ("a closed sequence leaves nothing behind", close),
    ("a full cache refuses and changes nothing", full),
    ("bytes are predicted to the byte", bytes),
    ("a part and the rest merge to the whole", parts),
    ("misuse is refused", misuse),
];

/// The names of all laws.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

const ROOMY: Size = Size {
    capacity: 48,
    sequences: 4,
};

/// Lengths around every boundary that a window of up to 8 with sinks, or a capacity, can have.
const LENGTHS: [usize; 9] = [1, 2, 3, 4, 5, 7, 8, 9, 17];

fn chunking(subject: &Subject) {
    for length in LENGTHS {
        let all = tokens(1, length);
        for chunk in [1, 2, 3, 4, 5, 7, 10, 17] {
            if chunk > length && chunk != 17 {
                continue;
            }
            let mut driver = Driver::new(subject, ROOMY);
            let mut seq = driver.open();
            for part in all.chunks(chunk) {
                driver.feed(&mut seq, part);
            }
            for token in tokens(2, 3) {
                driver.feed(&mut seq, &[token]);
            }
        }
    }
}

fn warm_chunk(subject: &Subject) {
    for warm in [1, 3, 5, 9] {
        let mut driver = Driver::new(subject, ROOMY);
        let mut seq = driver.open();
        driver.feed(&mut seq, &tokens(3, warm));
        driver.feed(&mut seq, &tokens(4, 9));
        driver.feed(&mut seq, &tokens(5, 2));
        driver.feed(&mut seq, &tokens(6, 13));
    }
}

fn batch(subject: &Subject) {
    let lengths = [3, 7, 12];
    let mut alone = Vec::new();
    for (i, n) in lengths.into_iter().enumerate() {
        let mut driver = Driver::new(subject, ROOMY);
        let mut seq = driver.open();
        let mut outs = driver.feed(&mut seq, &tokens(i as u64, n));
        for step in 0..8 {
            outs.extend(driver.feed(&mut seq, &tokens(100 + step, 1)));
        }
        alone.push(outs);
    }
    for order in [[0, 1, 2], [2, 0, 1]] {
        let mut driver = Driver::new(subject, ROOMY);
        let mut seqs: Vec<Seq> = lengths.iter().map(|_| driver.open()).collect();
        let prompts: Vec<_> = lengths.iter().enumerate().map(|(i, &n)| tokens(i as u64, n)).collect();
        let mut outs = vec![Vec::new(); 3];
        for step in 0..9 {
            let next = tokens(99 + step, 1);
            let mut slots: Vec<Option<&mut Seq>> = seqs.iter_mut().map(Some).collect();
            let mut chunks: Vec<(&mut Seq, &[u32])> = Vec::new();
            for &i in &order {
                let new = if step == 0 { prompts[i].as_slice() } else { next.as_slice() };
                chunks.push((slots[i].take().unwrap(), new));
            }
            let got = driver.step(&mut chunks, &Accept::All);
            for (got, &i) in got.into_iter().zip(&order) {
                outs[i].extend(got);
            }
        }
        for (alone, together) in alone.iter().zip(&outs) {
            assert_eq!(alone.len(), together.len());
            for (a, b) in alone.iter().flatten().zip(together.iter().flatten()) {
                let d = distance(a, b);
                assert!(d <= 1e-5, "{}: a neighbour moved an output by {d:e}", subject.name);
            }
        }
    }
}

fn causal(subject: &Subject) {
    let mut outs = Vec::new();
    for last in [1, 2] {
        let mut driver = Driver::new(subject, ROOMY);
        let mut seq = driver.open();
        driver.feed(&mut seq, &tokens(1, 4));
        let mut chunk = tokens(2, 6);
        chunk[5] = last;
        outs.push(driver.feed(&mut seq, &chunk));
    }
    assert_eq!(outs[0][..5], outs[1][..5], "{}: bit for bit", subject.name);
    assert_ne!(outs[0][5], outs[1][5], "{}: the token itself counts", subject.name);
}

/// A step that is begun, extended (partly, even) and dropped.
fn abandon(subject: &Subject) {
    let mut driver = Driver::new(subject, ROOMY);
    let mut seq = driver.open();
    for round in 0..12 {
        let usage = driver.cache.usage();
        for n in [1, 2, 5, 11] {
            let junk = tokens(50 + n as u64, n);
            let remembers = driver.cache.capabilities().remembers;
            let start = if remembers { seq.tokens.len() } else { 0 };
            let chunk = Chunk {
                seq: seq.id,
                tokens: &junk,
            };
            let mut step = driver.cache.begin(&[chunk]).unwrap();
            for (id, layer) in subject.layers.iter().enumerate().take(round % 3) {
                let new = row_tensors(layer, &rows(layer, id, &junk, start), &subject.device);
                step.extend(LayerId(id), new).unwrap();
            }
            drop(step);
        }
        assert_eq!(driver.cache.usage(), usage, "{}", subject.name);
        driver.feed(&mut seq, &tokens(round as u64, 1 + round % 2));
    }
}

fn partial(subject: &Subject) {
    for keep in 0..=6 {
        let mut driver = Driver::new(subject, ROOMY);
        let (mut a, mut b) = (driver.open(), driver.open());
        driver.feed(&mut a, &tokens(1, 7));
        for round in 0..3 {
            let (x, y) = (tokens(20 + round, 6), tokens(30 + round, 3));
            let accept = match round {
                0 => Accept::Prefix(keep),
                1 => Accept::Each(vec![keep, 1]),
                _ => Accept::All,
            };
            driver.step(&mut [(&mut a, &x), (&mut b, &y)], &accept);
        }
        if driver.cache.capabilities().remembers {
            assert_eq!(driver.cache.len(a.id).unwrap(), a.tokens.len());
            assert_eq!(driver.cache.len(b.id).unwrap(), b.tokens.len());
        }
        driver.feed(&mut a, &tokens(3, 4));
        driver.feed(&mut b, &tokens(4, 1));
    }
}

fn fork(subject: &Subject) {
    for length in [0, 1, 4, 9, 13] {
        let mut driver = Driver::new(subject, ROOMY);
        let mut a = driver.open();
        if length > 0 {
            driver.feed(&mut a, &tokens(1, length));
        }
        let forked = driver.cache.fork(a.id);
        if let Err(reason) = driver.cache.capabilities().fork {
            let refused = matches!(forked, Err(CacheError::Unsupported { .. }));
            assert!(refused, "{}: not able to fork ({reason}), but tried", subject.name);
            return;
        }
        let mut b = Seq {
            id: forked.unwrap(),
            tokens: a.tokens.clone(),
        };
        for round in 0..4 {
            driver.feed(&mut a, &tokens(10 + round, 2));
            driver.feed(&mut b, &tokens(20 + round, 3));
        }
        driver.cache.close(a.id).unwrap();
        driver.feed(&mut b, &tokens(30, 5));
    }
}

fn truncate(subject: &Subject) {
    let reach = match (subject.build)(ROOMY).capabilities().truncate {
        Truncate::Any => 12,
        Truncate::Last(n) => n.min(12),
        Truncate::Never(_) => 0,
    };
    for length in [1, 4, 9, 12] {
        for cut in 0..=reach.min(length) {
            let mut driver = Driver::new(subject, ROOMY);
            let mut seq = driver.open();
            driver.feed(&mut seq, &tokens(1, length));
            if !driver.cache.capabilities().remembers {
                seq.tokens.truncate(length - cut);
            } else {
                driver.cache.truncate(seq.id, length - cut).unwrap();
                seq.tokens.truncate(length - cut);
                assert_eq!(driver.cache.len(seq.id).unwrap(), length - cut);
                let beyond = driver.cache.truncate(seq.id, length + 1);
                assert!(matches!(beyond, Err(CacheError::OutOfRange { .. })));
            }
            driver.feed(&mut seq, &tokens(2, 3));
            driver.feed(&mut seq, &tokens(3, 1));
        }
    }
    // What goes beyond the promise is refused, or right; never wrong.
    let mut driver = Driver::new(subject, ROOMY);
    let mut seq = driver.open();
    driver.feed(&mut seq, &tokens(1, 14));
    for cut in [3, 2, 9, 1] {
        let len = seq.tokens.len().saturating_sub(cut);
        if driver.cache.capabilities().remembers && driver.cache.truncate(seq.id, len).is_ok() {
            seq.tokens.truncate(len);
        }
        driver.feed(&mut seq, &tokens(40 + cut as u64, 2));
    }
}

fn close(subject: &Subject) {
    let mut driver = Driver::new(subject, ROOMY);
    let empty = driver.cache.usage();
    for round in 0..6 {
        let mut seqs: Vec<Seq> = (0..ROOMY.sequences).map(|_| driver.open()).collect();
        for (i, seq) in seqs.iter_mut().enumerate() {
            driver.feed(seq, &tokens(round * 10 + i as u64, 5 + i));
        }
        for seq in &seqs {
            driver.cache.close(seq.id).unwrap();
            let again = driver.cache.close(seq.id);
            assert_eq!(again, Err(CacheError::UnknownSequence(seq.id)), "{}", subject.name);
        }
        let usage = driver.cache.usage();
        assert_eq!(usage.used(), Bytes(0), "{}", subject.name);
        assert_eq!(usage.reserved, empty.reserved, "{}", subject.name);
    }
}

fn full(subject: &Subject) {
    let size = Size {
        capacity: 10,
        sequences: 2,
    };
    let mut driver = Driver::new(subject, size);
    if !driver.cache.capabilities().remembers {
        return;
    }
    // More sequences than there is room for: opening is free, beginning is not.
    let mut seqs: Vec<Seq> = (0..3).map(|_| driver.open()).collect();
    driver.feed(&mut seqs[0], &tokens(0, 6));
    driver.feed(&mut seqs[1], &tokens(1, 2));
    let usage = driver.cache.usage();
    refused(&mut driver, &[(seqs[2].id, 1)]);
    refused(&mut driver, &[(seqs[0].id, 1), (seqs[2].id, 1)]);
    assert_eq!(driver.cache.usage(), usage, "{}", subject.name);
    if driver.cache.capabilities().fork.is_ok() {
        let forked = driver.cache.fork(seqs[0].id);
        assert!(matches!(forked, Err(CacheError::NoRoom { .. })), "{}: {forked:?}", subject.name);
    }
    // A sequence longer than its room, where the layout has such a limit.
    let limited = driver.cache.spec().layers.iter().any(|l| l.rows_per_sequence >= size.capacity);
    if limited {
        refused(&mut driver, &[(seqs[0].id, 5)]);
        refused(&mut driver, &[(seqs[1].id, 1), (seqs[0].id, 5)]);
    }
    driver.feed(&mut seqs[0], &tokens(2, 4));
    driver.cache.close(seqs[0].id).unwrap();
    driver.feed(&mut seqs[2], &tokens(3, 10));
    driver.feed(&mut seqs[1], &tokens(4, 3));
}

fn refused(driver: &mut Driver<'_>, batch: &[(SeqId, usize)]) {
    let new: Vec<_> = batch.iter().map(|&(_, n)| tokens(9, n)).collect();
    let pairs = batch.iter().zip(&new);
    let chunks: Vec<_> = pairs.map(|(&(seq, _), tokens)| Chunk { seq, tokens }).collect();
    match driver.cache.begin(&chunks).map(|_| ()) {
        Err(CacheError::NoRoom { needed, free, .. }) => assert!(needed > free),
        other => panic!("{}: NoRoom expected, got {other:?}", driver.subject.name),
    }
}

fn bytes(subject: &Subject) {
    for size in [ROOMY, Size { capacity: 20, sequences: 1 }] {
        let mut driver = Driver::new(subject, size);
        let spec = driver.cache.spec().clone();
        assert_eq!(driver.cache.usage().reserved, spec.allocated(), "{}", subject.name);
        let mut seq = driver.open();
        for n in [1, 1, 3, 2, 6, 1] {
            driver.feed(&mut seq, &tokens(n as u64, n));
            let usage = driver.cache.usage();
            let len = if driver.cache.capabilities().remembers { seq.tokens.len() } else { 0 };
            assert_eq!(usage.used(), spec.used_at(len), "{} at {len}", subject.name);
            assert_eq!(usage.reserved, spec.allocated(), "{}", subject.name);
            assert!(usage.peak >= usage.reserved, "{}", subject.name);
        }
    }
}

fn parts(subject: &Subject) {
    let mut driver = Driver::new(subject, ROOMY);
    let mut seq = driver.open();
    for round in 0..5 {
        for n in [1, 4, 9] {
            driver.probe(&seq, &tokens(60 + n as u64, n), None, false);
        }
        driver.probe(&seq, &tokens(70, 3), Some(2.0), false);
        driver.probe(&seq, &tokens(71, 3), None, true);
        driver.probe(&seq, &tokens(72, 3), Some(2.0), true);
        driver.feed(&mut seq, &tokens(round, 3));
    }
}

fn misuse(subject: &Subject) {
    let name = &subject.name;
    let mut driver = Driver::new(subject, ROOMY);
    let mut seq = driver.open();
    driver.feed(&mut seq, &tokens(1, 5));
    let one = tokens(2, 1);
    let chunk = |seq| Chunk { seq, tokens: &one };
    let nobody = SeqId(u64::MAX);
    let begin = |driver: &mut Driver<'_>, batch: &[Chunk<'_>]| driver.cache.begin(batch).map(|_| ());
    assert_eq!(begin(&mut driver, &[chunk(nobody)]), Err(CacheError::UnknownSequence(nobody)), "{name}");
    assert!(matches!(driver.cache.truncate(nobody, 0), Err(CacheError::UnknownSequence(_))), "{name}");
    assert!(driver.cache.fork(nobody).is_err(), "{name}");
    assert!(driver.cache.len(nobody).is_err(), "{name}");
    let twice = begin(&mut driver, &[chunk(seq.id), chunk(seq.id)]);
    assert!(matches!(twice, Err(CacheError::DuplicateSequence(_))), "{name}: {twice:?}");
    let empty = Chunk { seq: seq.id, tokens: &[] };
    assert!(matches!(begin(&mut driver, &[empty]), Err(CacheError::EmptyChunk(_))), "{name}");

    let layer = &subject.layers[0];
    let start = if driver.cache.capabilities().remembers { 5 } else { 0 };
    let good = || row_tensors(layer, &rows(layer, 0, &one, start), &subject.device);
    let query = |tokens: usize, heads: usize, dim: usize| {
        Query::new(tensor(&vec![vec![vec![0.5; dim]; heads]; tokens], &subject.device), 1.0)
    };
    let right = || query(1, layer.query_heads, layer.row.key);
    let mut step = driver.cache.begin(&[chunk(seq.id)]).unwrap();
    let out_of_order = step.attend(LayerId(0), right());
    assert!(matches!(out_of_order, Err(CacheError::Order { .. })), "{name}: attend before extend");
    let unknown = step.extend(LayerId(999), good());
    assert_eq!(unknown, Err(CacheError::UnknownLayer(LayerId(999))), "{name}");
    let two = row_tensors(layer, &rows(layer, 0, &tokens(3, 2), start), &subject.device);
    assert!(matches!(step.extend(LayerId(0), two), Err(CacheError::Shape { .. })), "{name}: two rows");
    let mut other = good();
    other.value = match layer.row.value {
        Value::Own(_) => None,
        Value::PrefixOfKey(_) => Some(other.key.clone()),
    };
    assert!(step.extend(LayerId(0), other).is_err(), "{name}: value missing or too many");
    step.extend(LayerId(0), good()).unwrap();
    let again = step.extend(LayerId(0), good());
    assert!(matches!(again, Err(CacheError::Order { .. })), "{name}: extended twice");
    for wrong in [
        query(2, layer.query_heads, layer.row.key),
        query(1, layer.query_heads, layer.row.key + 1),
    ] {
        let refused = step.attend(LayerId(0), wrong);
        assert!(matches!(refused, Err(CacheError::Shape { .. })), "{name}: query shape");
    }
    step.attend(LayerId(0), right()).unwrap();
    if subject.layers.len() > 1 {
        assert!(step.ready().is_err(), "{name}");
        let unfinished = step.commit(Accept::All);
        assert!(matches!(unfinished, Err(CacheError::Order { .. })), "{name}: {unfinished:?}");
    } else {
        drop(step);
    }
    driver.feed(&mut seq, &tokens(4, 2));
}
