//! The laws. Each is a function that panics where a subject breaks it.

use crate::driver::{Driver, Seq, distance, numbers, row_tensors, rows, stored, tensor, tokens};
use crate::{Size, Subject};
use kvlab_core::{Accept, Bytes, CacheError, Chunk, Inspected, LayerId, Query, SeqId, Truncate, Value};

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
    ("what is stored reads back", inspect),
    ("a found prefix changes nothing", prefix),
    ("a saved sequence goes on elsewhere", save),
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
    let lengths: &[usize] = if subject.thorough { &LENGTHS } else { &[4, 9, 17] };
    let chunks: &[usize] = if subject.thorough {
        &[1, 2, 3, 4, 5, 7, 10, 17]
    } else {
        &[1, 5, 17]
    };
    for &length in lengths {
        let all = tokens(1, length);
        for &chunk in chunks {
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
    for &warm in if subject.thorough { &[1, 3, 5, 9][..] } else { &[5] } {
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
                let new = if step == 0 {
                    prompts[i].as_slice()
                } else {
                    next.as_slice()
                };
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
    for round in 0..if subject.thorough { 12 } else { 4 } {
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
    for keep in (0..=6).step_by(if subject.thorough { 1 } else { 3 }) {
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
    for &length in if subject.thorough { &[0, 1, 4, 9, 13][..] } else { &[9] } {
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
    for &length in if subject.thorough { &[1, 4, 9, 12][..] } else { &[9] } {
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
    // Sequences are opened and grow until there is no room: that must come, with numbers, and change nothing.
    let reserved = driver.cache.usage().reserved;
    let mut seqs: Vec<Seq> = Vec::new();
    for round in 0.. {
        assert!(round < 100, "{}: never full", subject.name);
        let mut seq = driver.open();
        let before = driver.cache.usage();
        if !fits(&mut driver, &[(seq.id, 4)]) {
            assert_eq!(driver.cache.usage(), before, "{}", subject.name);
            seqs.push(seq);
            break;
        }
        driver.feed(&mut seq, &tokens(round, 4));
        seqs.push(seq);
    }
    let last = seqs.len() - 1;
    assert!(
        last >= size.sequences,
        "{}: room for {last} sequences only",
        subject.name
    );
    // A batch is refused as a whole.
    assert!(
        !fits(&mut driver, &[(seqs[0].id, 1), (seqs[last].id, 4)]),
        "{}",
        subject.name
    );
    let before = driver.cache.usage();
    match driver.cache.fork(seqs[0].id) {
        Ok(seq) => driver.cache.close(seq).unwrap(),
        Err(error) => {
            let able = driver.cache.capabilities().fork.is_ok();
            let right = matches!(error, CacheError::NoRoom { .. } | CacheError::Unsupported { .. });
            assert!(
                right && able == matches!(error, CacheError::NoRoom { .. }),
                "{}: {error}",
                subject.name
            );
        }
    }
    assert_eq!(driver.cache.usage(), before, "{}", subject.name);
    assert_eq!(before.reserved, reserved, "{}", subject.name);
    // The others go on as if nothing had been asked, and what is closed makes room.
    driver.cache.close(seqs[0].id).unwrap();
    let rest = &mut seqs[1..];
    driver.feed(&mut rest[last - 1], &tokens(50, 4));
    // One sequence may take all the room that there is, and not more.
    for seq in rest.iter() {
        driver.cache.close(seq.id).unwrap();
    }
    let mut long = driver.open();
    driver.feed(&mut long, &tokens(51, size.capacity));
    for round in 0..50 {
        if !fits(&mut driver, &[(long.id, 7)]) {
            break;
        }
        driver.feed(&mut long, &tokens(52 + round, 7));
    }
    let used = driver.cache.usage();
    assert!(used.used() <= used.reserved, "{}", subject.name);
    driver.feed_if_it_fits(&mut long, &tokens(53, 1));
}

/// Whether a step over so many tokens of some sequences could begin. If not, the refusal has numbers.
fn fits(driver: &mut Driver<'_>, batch: &[(SeqId, usize)]) -> bool {
    let new: Vec<_> = batch.iter().map(|&(_, n)| tokens(9, n)).collect();
    let pairs = batch.iter().zip(&new);
    let chunks: Vec<_> = pairs.map(|(&(seq, _), tokens)| Chunk { seq, tokens }).collect();
    match driver.cache.begin(&chunks).map(|_| ()) {
        Ok(()) => true,
        Err(CacheError::NoRoom { needed, free, .. }) => {
            assert!(needed > free, "{}: {needed} needed, {free} free", driver.subject.name);
            false
        }
        Err(other) => panic!("{}: {other}", driver.subject.name),
    }
}

/// Prompts that begin alike: what is found is what would have been computed.
fn prefix(subject: &Subject) {
    let mut driver = Driver::new(subject, ROOMY);
    if driver.cache.capabilities().prefix_sharing.is_err() {
        let prompt = tokens(1, 12);
        let mut seq = driver.open_with(&prompt);
        driver.feed(&mut seq, &prompt);
        driver.cache.close(seq.id).unwrap();
        let again = driver.cache.open(&prompt).unwrap();
        assert_eq!(again.reused, 0, "{}: finds what it says that it cannot", subject.name);
        return;
    }
    let mut found = 0;
    for &common in if subject.thorough {
        &[1, 3, 4, 5, 8, 9, 13][..]
    } else {
        &[9]
    } {
        for closed in [false, true] {
            let mut driver = Driver::new(subject, ROOMY);
            let first: Vec<_> = tokens(1, common).into_iter().chain(tokens(2, 4)).collect();
            let second: Vec<_> = tokens(1, common).into_iter().chain(tokens(3, 6)).collect();
            let mut a = driver.open_with(&first);
            driver.feed(&mut a, &first);
            if closed {
                driver.cache.close(a.id).unwrap();
            }
            for prompt in [&second, &first, &second] {
                let mut b = driver.open_with(prompt);
                let reused = b.tokens.len();
                assert!(reused < prompt.len(), "{}: nothing left to compute", subject.name);
                found += reused;
                let rest = prompt[reused..].to_vec();
                driver.feed(&mut b, &rest);
                driver.feed(&mut b, &tokens(4, 2));
                driver.cache.close(b.id).unwrap();
            }
            if !closed {
                driver.feed(&mut a, &tokens(5, 3));
            }
        }
    }
    assert!(
        found > 0,
        "{}: says that it finds prefixes, and found none",
        subject.name
    );
}

fn bytes(subject: &Subject) {
    for size in [
        ROOMY,
        Size {
            capacity: 20,
            sequences: 1,
        },
    ] {
        let mut driver = Driver::new(subject, size);
        let spec = driver.cache.spec().clone();
        assert_eq!(driver.cache.usage().reserved, spec.allocated(), "{}", subject.name);
        let mut seq = driver.open();
        for n in [1, 1, 3, 2, 6, 1] {
            driver.feed(&mut seq, &tokens(n as u64, n));
            let usage = driver.cache.usage();
            let len = if driver.cache.capabilities().remembers {
                seq.tokens.len()
            } else {
                0
            };
            assert_eq!(usage.used(), spec.used_at(len), "{} at {len}", subject.name);
            assert_eq!(usage.reserved, spec.allocated(), "{}", subject.name);
            assert!(usage.peak >= usage.reserved, "{}", subject.name);
        }
    }
}

fn parts(subject: &Subject) {
    let mut driver = Driver::new(subject, ROOMY);
    let mut seq = driver.open();
    for round in 0..if subject.thorough { 5 } else { 2 } {
        for n in [1, 4, 9] {
            driver.probe(&seq, &tokens(60 + n as u64, n), None, false);
        }
        driver.probe(&seq, &tokens(70, 3), Some(2.0), false);
        driver.probe(&seq, &tokens(71, 3), None, true);
        driver.probe(&seq, &tokens(72, 3), Some(2.0), true);
        driver.feed(&mut seq, &tokens(round, 3));
    }
}

/// What is shown of the storage are the rows that were given, at their positions, and nothing of what comes later.
fn inspect(subject: &Subject) {
    let mut driver = Driver::new(subject, ROOMY);
    let mut seq = driver.open();
    if let Err(CacheError::Unsupported { .. }) = driver.cache.inspect(seq.id, LayerId(0)) {
        return;
    }
    for round in 0..5 {
        driver.feed(&mut seq, &tokens(round, 1 + 2 * round as usize));
        let shown: Vec<_> = (0..subject.layers.len())
            .map(|i| driver.cache.inspect(seq.id, LayerId(i)).unwrap())
            .collect();
        for (id, layer) in subject.layers.iter().enumerate() {
            let Inspected { positions, rows: shown } = &shown[id];
            let given = stored(subject, layer, rows(layer, id, &seq.tokens, 0));
            let (keys, values) = (numbers(shown.key.clone()), shown.value.clone().map(numbers));
            assert_eq!(keys.len(), positions.len(), "{}", subject.name);
            for (i, &at) in positions.iter().enumerate() {
                // A cache may store a row for each query head that shares it.
                let each = keys[i].len() / layer.row.heads;
                let repeated =
                    |heads: &[Vec<f64>]| heads.iter().flat_map(|h| vec![h.clone(); each]).collect::<Vec<_>>();
                let close = |got: &[Vec<f64>], given: &[Vec<f64>]| {
                    let error = distance(got, &repeated(given));
                    assert!(
                        error <= subject.tolerance,
                        "{}: row {at} reads back off by {error:e}",
                        subject.name
                    );
                };
                close(&keys[i], &given[at].key);
                if let Some(values) = &values {
                    close(&values[i], &given[at].value);
                }
            }
            let seen =
                |at: usize| layer.visibility.sees(seq.tokens.len(), at) && layer.retention.keeps(seq.tokens.len(), at);
            let remembered = driver.cache.capabilities().remembers;
            let missing: Vec<_> = (0..seq.tokens.len())
                .filter(|at| remembered && seen(*at) && !positions.contains(at))
                .collect();
            assert_eq!(missing, [0; 0], "{}: rows that the next token sees", subject.name);
        }
    }
}

/// Saved, restored into another cache with other room and other sequences, and continued: the rows are the same bits,
/// and so is what follows. What is damaged is refused and changes nothing.
fn save(subject: &Subject) {
    let name = &subject.name;
    for &length in if subject.thorough { &[0, 1, 4, 9, 13][..] } else { &[9] } {
        let mut driver = Driver::new(subject, ROOMY);
        let mut seq = driver.open();
        if length > 0 {
            driver.feed(&mut seq, &tokens(1, length));
        }
        let saved = driver.cache.save(seq.id);
        if let Err(reason) = driver.cache.capabilities().save {
            let refused = matches!(saved, Err(CacheError::Unsupported { .. }));
            assert!(refused, "{name}: not able to save ({reason}), but tried");
            return;
        }
        let saved = saved.unwrap();
        let mut other = Driver::new(
            subject,
            Size {
                capacity: 40,
                sequences: 3,
            },
        );
        let mut neighbour = other.open();
        other.feed(&mut neighbour, &tokens(5, 6));
        let usage = other.cache.usage();
        let mut refuse = |change: &dyn Fn(&mut kvlab_core::Saved), what: &str| {
            let mut damaged = saved.clone();
            change(&mut damaged);
            let refused = other.cache.restore(&damaged, &seq.tokens);
            assert!(
                matches!(refused, Err(CacheError::Saved(_))),
                "{name}: {what}: {refused:?}"
            );
            assert_eq!(other.cache.usage(), usage, "{name}: {what}");
        };
        refuse(&|s| drop(s.layers.pop()), "a layer is missing");
        refuse(&|s| s.spec.layers[0].key.payload_bits += 1, "another format");
        refuse(&|s| s.spec.layers[0].row.heads += 1, "other heads");
        refuse(&|s| s.len += 1, "another length");
        if length > 0 {
            refuse(&|s| drop(s.layers[0].planes.pop()), "a tensor is missing");
            refuse(&|s| s.layers[0].planes[0].name.push('x'), "a tensor of another name");
            if saved.layers[0].positions.len() > 1 {
                refuse(&|s| s.layers[0].positions.truncate(1), "positions are missing");
            }
        }
        let mut back = Seq {
            id: other.cache.restore(&saved, &seq.tokens).unwrap(),
            tokens: seq.tokens.clone(),
        };
        assert_eq!(other.cache.len(back.id).unwrap(), length, "{name}");
        let again = other.cache.save(back.id).unwrap();
        for (before, after) in saved.layers.iter().zip(&again.layers) {
            assert_eq!(before.positions, after.positions, "{name}");
            assert!(before.planes == after.planes, "{name}: {length} tokens: other bits");
        }
        for n in [1, 1, 5, 1] {
            let new = tokens(20 + n, n as usize);
            let (here, there) = (driver.feed(&mut seq, &new), other.feed(&mut back, &new));
            for (a, b) in here.iter().flatten().zip(there.iter().flatten()) {
                let d = distance(a, b);
                assert!(d <= 1e-5, "{name}: restored, an output is off by {d:e}");
            }
            other.feed(&mut neighbour, &new);
        }
        other.cache.close(back.id).unwrap();
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
    assert_eq!(
        begin(&mut driver, &[chunk(nobody)]),
        Err(CacheError::UnknownSequence(nobody)),
        "{name}"
    );
    assert!(
        matches!(driver.cache.truncate(nobody, 0), Err(CacheError::UnknownSequence(_))),
        "{name}"
    );
    assert!(driver.cache.fork(nobody).is_err(), "{name}");
    assert!(driver.cache.len(nobody).is_err(), "{name}");
    let twice = begin(&mut driver, &[chunk(seq.id), chunk(seq.id)]);
    assert!(
        matches!(twice, Err(CacheError::DuplicateSequence(_))),
        "{name}: {twice:?}"
    );
    let empty = Chunk {
        seq: seq.id,
        tokens: &[],
    };
    assert!(
        matches!(begin(&mut driver, &[empty]), Err(CacheError::EmptyChunk(_))),
        "{name}"
    );

    let layer = &subject.layers[0];
    let start = if driver.cache.capabilities().remembers { 5 } else { 0 };
    let good = || row_tensors(layer, &rows(layer, 0, &one, start), &subject.device);
    let query = |tokens: usize, heads: usize, dim: usize| {
        Query::new(tensor(&vec![vec![vec![0.5; dim]; heads]; tokens], &subject.device), 1.0)
    };
    let right = || query(1, layer.query_heads, layer.row.key);
    let mut step = driver.cache.begin(&[chunk(seq.id)]).unwrap();
    let out_of_order = step.attend(LayerId(0), right());
    assert!(
        matches!(out_of_order, Err(CacheError::Order { .. })),
        "{name}: attend before extend"
    );
    let unknown = step.extend(LayerId(999), good());
    assert_eq!(unknown, Err(CacheError::UnknownLayer(LayerId(999))), "{name}");
    let two = row_tensors(layer, &rows(layer, 0, &tokens(3, 2), start), &subject.device);
    assert!(
        matches!(step.extend(LayerId(0), two), Err(CacheError::Shape { .. })),
        "{name}: two rows"
    );
    let mut other = good();
    other.value = match layer.row.value {
        Value::Own(_) => None,
        Value::PrefixOfKey(_) => Some(other.key.clone()),
    };
    assert!(
        step.extend(LayerId(0), other).is_err(),
        "{name}: value missing or too many"
    );
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
        assert!(
            matches!(unfinished, Err(CacheError::Order { .. })),
            "{name}: {unfinished:?}"
        );
    } else {
        drop(step);
    }
    driver.feed(&mut seq, &tokens(4, 2));
}
