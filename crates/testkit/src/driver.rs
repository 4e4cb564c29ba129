//! Drives a cache with rows and queries that are a function of layer, token and position, so that the right
//! output of a token depends on nothing but the tokens up to it.

use crate::oracle::{self, Extras, Row};
use crate::{Layer, Size, Subject};
use burn::tensor::{Device, Tensor, TensorData};
use kvlab_core::{Accept, Chunk, EMPTY_LSE, KvCache, LayerId, Query, Rows, SeqId, Span, TokenId, Value};

/// Values between -1 and 1 without a pattern, from the words that seed them.
fn noise(words: [u64; 5], n: usize) -> Vec<f64> {
    let mut state = words.iter().fold(0x9E37_79B9_7F4A_7C15_u64, |state, word| {
        (state ^ word).wrapping_mul(0xBF58_476D_1CE4_E5B9).rotate_left(31)
    });
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) >> 40
    };
    // A multiple of 2^-23 in f32: the tensor and the oracle get the same number.
    (0..n).map(|_| next() as f64 / (1 << 23) as f64 - 1.0).collect()
}

fn heads(kind: u64, layer: usize, token: TokenId, at: usize, heads: usize, dim: usize) -> Vec<Vec<f64>> {
    let seed = |head: usize| [kind, layer as u64, u64::from(token), at as u64, head as u64];
    (0..heads).map(|head| noise(seed(head), dim)).collect()
}

/// The row of a token, as the model hands it over.
pub fn row(layer: &Layer, id: usize, token: TokenId, at: usize) -> Row {
    let key = heads(1, id, token, at, layer.row.heads, layer.row.key);
    let own = heads(2, id, token, at, layer.row.heads, layer.row.value_dim());
    let value = oracle::value_of(layer, &key, own);
    Row { key, value }
}

/// The query of a token, `[query heads][key dim]`.
pub fn query(layer: &Layer, id: usize, token: TokenId, at: usize) -> Vec<Vec<f64>> {
    heads(3, id, token, at, layer.query_heads, layer.row.key)
}

/// Scores reach about +-4: far from uniform, far from saturated.
pub fn scale(layer: &Layer) -> f64 {
    4.0 / (layer.row.key as f64).sqrt()
}

/// `[tokens][heads][dim]` as a tensor.
pub fn tensor(values: &[Vec<Vec<f64>>], device: &Device) -> Tensor<3> {
    let dims = [values.len(), values[0].len(), values[0][0].len()];
    let flat = values.iter().flatten().flatten().map(|&x| x as f32);
    Tensor::from_data(TensorData::new(flat.collect::<Vec<f32>>(), dims), device)
}

/// A tensor's numbers as `[tokens][heads][dim]`.
pub fn numbers(t: Tensor<3>) -> Vec<Vec<Vec<f64>>> {
    let [_, heads, dim] = t.dims();
    let flat = t.into_data().convert::<f32>().try_to_vec::<f32>().unwrap();
    let rows = flat.chunks(heads * dim);
    rows.map(|row| {
        let heads = row.chunks(dim);
        heads.map(|h| h.iter().map(|&x| f64::from(x)).collect()).collect()
    })
    .collect()
}

/// Rows of a layer for some tokens from a position on.
pub fn rows(layer: &Layer, id: usize, tokens: &[TokenId], start: usize) -> Vec<Row> {
    let at = tokens.iter().enumerate();
    at.map(|(i, &token)| row(layer, id, token, start + i)).collect()
}

/// Rows as tensors, chunks back to back.
pub fn row_tensors(layer: &Layer, rows: &[Row], device: &Device) -> Rows {
    let keys: Vec<_> = rows.iter().map(|r| r.key.clone()).collect();
    let values: Vec<_> = rows.iter().map(|r| r.value.clone()).collect();
    Rows {
        key: tensor(&keys, device),
        value: match layer.row.value {
            Value::Own(_) => Some(tensor(&values, device)),
            Value::PrefixOfKey(_) => None,
        },
    }
}

/// Tensors back to rows: the inverse of [`row_tensors`].
fn rows_of(layer: &Layer, tensors: Rows) -> Vec<Row> {
    let keys = numbers(tensors.key);
    let own = tensors
        .value
        .map(numbers)
        .unwrap_or_else(|| vec![Vec::new(); keys.len()]);
    let pairs = keys.into_iter().zip(own);
    pairs
        .map(|(key, own)| Row {
            value: oracle::value_of(layer, &key, own),
            key,
        })
        .collect()
}

/// What the subject's cache keeps of the rows of a sequence.
pub fn stored(subject: &Subject, layer: &Layer, rows: Vec<Row>) -> Vec<Row> {
    match &subject.stored {
        Some(stored) => rows_of(layer, stored(row_tensors(layer, &rows, &subject.device))),
        None => rows,
    }
}

/// Outputs of one token: `[layer][query head][value dim]`.
pub type Outputs = Vec<Vec<Vec<f64>>>;

/// A subject's cache, and what its sequences have seen.
pub struct Driver<'a> {
    /// The subject.
    pub subject: &'a Subject,
    /// Its cache.
    pub cache: Box<dyn KvCache>,
}

/// A sequence and the tokens it has seen.
#[derive(Clone, Debug)]
pub struct Seq {
    /// The cache's handle.
    pub id: SeqId,
    /// All its tokens.
    pub tokens: Vec<TokenId>,
}

impl<'a> Driver<'a> {
    /// A fresh cache.
    pub fn new(subject: &'a Subject, size: Size) -> Self {
        Self {
            subject,
            cache: (subject.build)(size),
        }
    }

    /// A sequence without tokens.
    pub fn open(&mut self) -> Seq {
        let opened = self.cache.open(&[]).unwrap();
        assert_eq!(opened.reused, 0, "{}", self.subject.name);
        Seq {
            id: opened.seq,
            tokens: Vec::new(),
        }
    }

    /// A sequence that will begin with a prompt, with those of its tokens that the cache has.
    pub fn open_with(&mut self, prompt: &[TokenId]) -> Seq {
        let opened = self.cache.open(prompt).unwrap();
        if self.cache.capabilities().remembers {
            assert_eq!(
                self.cache.len(opened.seq).unwrap(),
                opened.reused,
                "{}",
                self.subject.name
            );
        }
        Seq {
            id: opened.seq,
            tokens: prompt[..opened.reused].to_vec(),
        }
    }

    /// [`feed`](Self::feed), unless there is no room.
    pub fn feed_if_it_fits(&mut self, seq: &mut Seq, tokens: &[TokenId]) {
        let chunk = Chunk { seq: seq.id, tokens };
        if self.cache.begin(&[chunk]).is_ok() {
            self.feed(seq, tokens);
        }
    }

    /// One step that adds tokens to some sequences and keeps `accept` of them. Outputs of every new token, by
    /// sequence; each is compared with the oracle.
    pub fn step(&mut self, batch: &mut [(&mut Seq, &[TokenId])], accept: &Accept) -> Vec<Vec<Outputs>> {
        let name = &self.subject.name;
        let remembers = self.cache.capabilities().remembers;
        let fed: Vec<(SeqId, usize, Vec<TokenId>)> = batch
            .iter()
            .map(|(seq, new)| {
                let all: Vec<_> = seq.tokens.iter().chain(*new).copied().collect();
                let start = if remembers { seq.tokens.len() } else { 0 };
                (seq.id, start, all[start..].to_vec())
            })
            .collect();
        let chunks = fed.iter().map(|(seq, _, tokens)| Chunk { seq: *seq, tokens });
        let chunks: Vec<_> = chunks.collect();
        let mut step = self
            .cache
            .begin(&chunks)
            .unwrap_or_else(|e| panic!("{name}: begin: {e}"));
        let positions = step.positions().clone().into_data().convert::<i64>();
        let want: Vec<i64> = fed
            .iter()
            .flat_map(|(_, start, tokens)| (*start..start + tokens.len()).map(|p| p as i64))
            .collect();
        assert_eq!(positions.try_to_vec::<i64>().unwrap(), want, "{name}: positions");

        let mut by_layer = Vec::new();
        for (id, layer) in self.subject.layers.iter().enumerate() {
            let new: Vec<Row> = fed
                .iter()
                .flat_map(|(_, start, t)| rows(layer, id, t, *start))
                .collect();
            let queries: Vec<_> = fed
                .iter()
                .flat_map(|(_, start, tokens)| {
                    let at = tokens.iter().enumerate();
                    at.map(|(i, &t)| query(layer, id, t, start + i)).collect::<Vec<_>>()
                })
                .collect();
            let q = tensor(&queries, &self.subject.device);
            let new = row_tensors(layer, &new, &self.subject.device);
            let query = Query::new(q, scale(layer) as f32);
            let attended = step.extend_attend(LayerId(id), new, query);
            let attended = attended.unwrap_or_else(|e| panic!("{name}: {e}"));
            by_layer.push(numbers(attended.out));
        }
        step.commit(accept.clone())
            .unwrap_or_else(|e| panic!("{name}: commit: {e}"));

        let lengths: Vec<_> = batch.iter().map(|(_, new)| new.len()).collect();
        let accepted = accept.resolve(&lengths).unwrap();
        let mut outputs = Vec::new();
        let mut offset = 0;
        for (i, (seq, new)) in batch.iter_mut().enumerate() {
            let fed_tokens = fed[i].2.len();
            let first = offset + fed_tokens - new.len();
            let of_token = |t: usize| by_layer.iter().map(|l| l[first + t].clone()).collect();
            let mine: Vec<Outputs> = (0..new.len()).map(of_token).collect();
            let all: Vec<_> = seq.tokens.iter().chain(*new).copied().collect();
            for (t, got) in mine.iter().enumerate() {
                self.compare(&all[..seq.tokens.len() + t + 1], got);
            }
            outputs.push(mine);
            seq.tokens.extend(&new[..accepted[i]]);
            offset += fed_tokens;
        }
        outputs
    }

    /// [`step`](Self::step) for one sequence, all accepted.
    pub fn feed(&mut self, seq: &mut Seq, tokens: &[TokenId]) -> Vec<Outputs> {
        self.step(&mut [(seq, tokens)], &Accept::All).remove(0)
    }

    /// Compares the outputs of the last of `tokens` with the oracle's.
    fn compare(&self, tokens: &[TokenId], got: &Outputs) {
        let at = tokens.len() - 1;
        for (id, layer) in self.subject.layers.iter().enumerate() {
            let rows = stored(self.subject, layer, rows(layer, id, tokens, 0));
            let q = query(layer, id, tokens[at], at);
            let (want, _) = oracle::attend(layer, &rows, &q, at, scale(layer), &Extras::default());
            let error = distance(&want, &got[id]);
            assert!(
                error <= self.subject.tolerance,
                "{}: layer {id}, position {at}: off by {error:e}, allowed {:e}",
                self.subject.name,
                self.subject.tolerance
            );
        }
    }

    /// Attention of new tokens with extras, compared with the oracle; the step is abandoned.
    pub fn probe(&mut self, seq: &Seq, new: &[TokenId], softcap: Option<f64>, with_sinks: bool) {
        let device = self.subject.device.clone();
        let remembers = self.cache.capabilities().remembers;
        let start = if remembers { seq.tokens.len() } else { 0 };
        let all: Vec<_> = seq.tokens.iter().chain(new).copied().collect();
        let name = self.subject.name.clone();
        let chunk = Chunk {
            seq: seq.id,
            tokens: &all[start..],
        };
        let mut step = self.cache.begin(&[chunk]).unwrap();
        for (id, layer) in self.subject.layers.iter().enumerate() {
            let every = rows(layer, id, &all, 0);
            // As each query finds them. Fresh rows that are not stored lose nothing.
            let kept = |at: usize| stored(self.subject, layer, every[..=at].to_vec());
            let kept: Vec<_> = (start..all.len()).map(kept).collect();
            let merged_rows = kept.iter().map(|kept| [&kept[..start], &every[start..]].concat());
            let merged_rows: Vec<_> = merged_rows.collect();
            let every = vec![every.clone(); all.len() - start];
            let queries: Vec<_> = (start..all.len()).map(|at| query(layer, id, all[at], at)).collect();
            let sinks = with_sinks.then(|| noise([9, id as u64, 0, 0, 0], layer.query_heads));
            let ask = |span| Query {
                q: tensor(&queries, &device),
                scale: scale(layer) as f32,
                softcap: softcap.map(|c| c as f32),
                sinks: sinks.as_ref().map(|s| {
                    let s: Vec<f32> = s.iter().map(|&x| x as f32).collect();
                    Tensor::from_floats(s.as_slice(), &device)
                }),
                span,
                lse: true,
            };
            let fresh = row_tensors(layer, &every[0][start..], &device);
            step.extend(LayerId(id), fresh.clone()).unwrap();
            let whole = step.attend(LayerId(id), ask(Span::All)).unwrap();
            let past = step.attend(LayerId(id), ask(Span::Past)).unwrap();
            let new_only = step.attend_fresh(LayerId(id), fresh, ask(Span::All)).unwrap();
            let parts = [
                (whole, &kept, 0, None),
                (past.clone(), &kept, 0, Some(start)),
                (new_only.clone(), &every, start, None),
            ];
            let parts = parts.into_iter().chain((!with_sinks).then(|| {
                let merged = past.merge(new_only).expect("both have lse");
                (merged, &merged_rows, 0, None)
            }));
            for (got, every, from, before) in parts {
                let out = numbers(got.out);
                let lse = numbers(got.lse.expect("asked for").unsqueeze_dim::<3>(2));
                for (i, at) in (start..all.len()).enumerate() {
                    let extras = Extras {
                        softcap,
                        sinks: sinks.clone(),
                        before,
                        from,
                    };
                    let (want, want_lse) = oracle::attend(layer, &every[i], &queries[i], at, scale(layer), &extras);
                    let error = distance(&want, &out[i]);
                    let span = (from, before);
                    assert!(
                        error <= self.subject.tolerance,
                        "{name}: layer {id}, position {at}, rows {span:?}: off by {error:e}"
                    );
                    for (want, got) in want_lse.iter().zip(&lse[i]) {
                        let near = (want - got[0]).abs() <= 4.0 * self.subject.tolerance;
                        let both_empty = want.is_infinite() && got[0] <= f64::from(EMPTY_LSE) / 2.0;
                        assert!(near || both_empty, "{name}: lse {} should be {want}", got[0]);
                    }
                }
            }
        }
    }
}

/// Largest absolute difference; infinite if one is not finite or the shapes differ.
pub fn distance(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    if a.len() != b.len() || a.iter().zip(b).any(|(x, y)| x.len() != y.len()) {
        return f64::INFINITY;
    }
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.fold(0.0, |max, (x, y)| {
        let d = (x - y).abs();
        if d.is_finite() { f64::max(max, d) } else { f64::INFINITY }
    })
}

/// Tokens without a pattern.
pub fn tokens(seed: u64, n: usize) -> Vec<TokenId> {
    let values = noise([7, seed, 0, 0, 0], n);
    values.into_iter().map(|x| ((x + 1.0) * 30.0) as TokenId).collect()
}
