//! Prefix sharing: against a model that remembers every row, over random histories; and by hand.

#![allow(clippy::expect_used)]

use super::*;
use proptest::prelude::*;
use std::hash::{DefaultHasher, Hasher};

/// A hash that says nothing.
#[derive(Clone, Debug, Default)]
struct Constant;

struct Zero(DefaultHasher);

impl Hasher for Zero {
    fn finish(&self) -> u64 {
        0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }
}

impl BuildHasher for Constant {
    type Hasher = Zero;
    fn build_hasher(&self) -> Zero {
        Zero(DefaultHasher::new())
    }
}

/// What a row is: all tokens up to its own. Two rows may stand for each other if this is the same.
type Content = Vec<TokenId>;

/// A paged layout, and what its slots hold.
struct Model<S> {
    layout: Paged<S>,
    slots: Vec<Option<Content>>,
    sequences: BTreeMap<SeqId, Vec<TokenId>>,
    next: u64,
    hits: usize,
}

impl<S: BuildHasher + Default + Send> Model<S> {
    fn new(page_size: usize, count: usize, reach: Reach) -> Self {
        let layout = Paged::new(page_size, count, reach, true);
        Self {
            slots: vec![None; layout.slots()],
            layout,
            sequences: BTreeMap::new(),
            next: 0,
            hits: 0,
        }
    }

    fn open(&mut self, prompt: &[TokenId]) -> (SeqId, usize) {
        self.next += 1;
        let seq = SeqId(self.next);
        let reused = self.layout.open(seq, prompt);
        assert!(reused == 0 || reused < prompt.len(), "one token is left to compute");
        self.hits += usize::from(reused > 0);
        self.sequences.insert(seq, prompt[..reused].to_vec());
        (seq, reused)
    }

    fn append(&mut self, seq: SeqId, tokens: &[TokenId]) -> bool {
        let start = self.sequences[&seq].len();
        let growth = Growth { seq, start, tokens };
        if self.layout.check(&[growth]).is_err() {
            return false;
        }
        let placed = self.layout.append(growth);
        for copy in placed.copies {
            for i in 0..copy.len {
                self.slots[copy.to + i] = self.slots[copy.from + i].clone();
            }
        }
        let all = self.sequences.get_mut(&seq).expect("it is open");
        all.extend_from_slice(tokens);
        for write in placed.writes {
            for i in 0..write.len {
                self.slots[write.slot + i] = Some(all[..start + write.offset + i + 1].to_vec());
            }
        }
        true
    }

    /// Every sequence finds its own rows, and the pool's books are right.
    fn check(&self) {
        let mut users: BTreeMap<PageId, usize> = BTreeMap::new();
        for (&seq, tokens) in &self.sequences {
            let mut found = BTreeSet::new();
            for run in self.layout.runs(seq, tokens.len()) {
                for i in 0..run.len {
                    let position = run.position + i;
                    assert_eq!(self.slots[run.slot + i].as_deref(), Some(&tokens[..=position]));
                    found.insert(position);
                }
            }
            let Reach { window, sinks } = self.layout.reach;
            let needed = (0..tokens.len()).filter(|&p| p < sinks || tokens.len() - p < window);
            for position in needed {
                assert!(found.contains(&position), "position {position} of {}", tokens.len());
            }
            for page in self.layout.tables[&seq].pages.iter().flatten() {
                *users.entry(*page).or_default() += 1;
            }
        }
        self.layout.pool.check(&users).expect("the books are right");
    }
}

/// Random operations over few tokens, so that prompts often begin alike. `state` is the only source of chance.
fn history<S: BuildHasher + Default + Send>(model: &mut Model<S>, steps: usize, mut state: u64) {
    let mut random = |n: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    for step in 0..steps {
        let open: Vec<SeqId> = model.sequences.keys().copied().collect();
        let pick = |r: usize| open.get(r % open.len().max(1)).copied();
        match (random(10), pick(random(1000))) {
            (0..3, _) if open.len() < 6 => {
                let prompt: Vec<TokenId> = (0..1 + random(12)).map(|_| random(2) as TokenId).collect();
                let (seq, reused) = model.open(&prompt);
                model.append(seq, &prompt[reused..]);
            }
            (3..7, Some(seq)) => {
                let tokens: Vec<TokenId> = (0..1 + random(5)).map(|_| random(2) as TokenId).collect();
                model.append(seq, &tokens);
            }
            (7, Some(seq)) if open.len() < 6 => {
                model.next += 1;
                let new = SeqId(model.next);
                let tokens = model.sequences[&seq].clone();
                let copies = model.layout.fork(seq, new, tokens.len()).expect("forks share");
                assert!(copies.is_empty());
                model.sequences.insert(new, tokens);
            }
            (8, Some(seq)) => {
                let tokens = model.sequences.get_mut(&seq).expect("it is open");
                let len = tokens.len().saturating_sub(random(4));
                if len < tokens.len() && len >= model.layout.shortest(seq) {
                    model.layout.truncate(seq, len);
                    tokens.truncate(len);
                }
            }
            (9, Some(seq)) => {
                model.layout.close(seq);
                model.sequences.remove(&seq);
            }
            _ => {}
        }
        // Looking at everything after every step would take most of the time.
        if steps < 1000 || step % 16 == 0 {
            model.check();
        }
    }
    model.check();
    for seq in model.sequences.keys().copied().collect::<Vec<_>>() {
        model.layout.close(seq);
    }
    model.sequences.clear();
    model.check();
    assert_eq!(
        model.layout.pool.available(),
        model.layout.count,
        "everything can be had again"
    );
    assert_eq!(model.layout.used(&BTreeMap::new()).rows, 0);
}

#[test]
fn a_hundred_thousand_operations() {
    for (i, size) in [1, 2, 3, 4].into_iter().enumerate() {
        let mut model: Model<RandomState> = Model::new(size, 24, Reach::ALL);
        history(&mut model, 25_000, i as u64);
        assert!(model.hits > 200, "only {} prompts found something", model.hits);
    }
}

#[test]
fn a_hash_that_says_nothing_changes_nothing() {
    let mut model: Model<Constant> = Model::new(2, 12, Reach::ALL);
    history(&mut model, 900, 7);
    assert!(model.hits > 20);
}

proptest! {
    #[test]
    fn with_a_window(window in 1..9_usize, sinks in 0..4_usize, size in 1..5_usize, seed in 0..1000_u64) {
        let mut model: Model<RandomState> = Model::new(size, 30, Reach { window, sinks });
        history(&mut model, 200, seed);
    }
}

/// T50: pages 1 and 3 are there, 2 is not: only page 1 is used. T51: ten tokens in common, pages of four: eight.
#[test]
fn a_hole_ends_the_prefix() {
    let mut model: Model<RandomState> = Model::new(4, 20, Reach::ALL);
    let prompt: Vec<TokenId> = (0..14).collect();
    let (a, _) = model.open(&prompt);
    model.append(a, &prompt);
    let mut other = prompt.clone();
    other[10] = 99;
    assert_eq!(model.open(&other).1, 8);
    let second = model.layout.tables[&a].pages[1].expect("no window");
    model.layout.pool.forget(second);
    assert_eq!(model.open(&prompt).1, 4);
}

/// T45: the same prompt again. All but its last token is there.
#[test]
fn the_same_prompt_leaves_one_token() {
    let mut model: Model<RandomState> = Model::new(4, 20, Reach::ALL);
    let prompt: Vec<TokenId> = (0..8).collect();
    let (a, cold) = model.open(&prompt);
    model.append(a, &prompt);
    let (b, warm) = model.open(&prompt);
    assert_eq!((cold, warm), (0, 7));
    model.append(b, &prompt[7..]);
    model.check();
    // The copy that `b` wrote into is its own.
    assert_ne!(model.layout.tables[&a].pages[1], model.layout.tables[&b].pages[1]);
}

/// What is kept goes, the longest unused first, and is not found afterwards.
#[test]
fn eviction_is_by_age_and_leaves_no_phantoms() {
    let mut model: Model<RandomState> = Model::new(2, 6, Reach::ALL);
    let (old, new): (Vec<TokenId>, Vec<TokenId>) = ((0..5).collect(), (10..15).collect());
    for prompt in [&old, &new] {
        let (seq, _) = model.open(prompt);
        assert!(model.append(seq, prompt));
        model.layout.close(seq);
        model.sequences.remove(&seq);
    }
    assert_eq!(model.layout.used(&BTreeMap::new()).kept, 8, "two full pages of each");
    let (seq, _) = model.open(&[20, 21, 22, 23, 24, 25, 26]);
    assert!(model.append(seq, &[20, 21, 22, 23, 24, 25, 26]));
    assert_eq!(model.open(&new).1, 4, "the newer one is still there");
    assert_eq!(model.open(&old).1, 0, "the older one made room");
    model.check();
}
