//! A cache that shares nothing with ours but the trait: rows as host vectors, attention by hand. It passes the laws,
//! runs real models, and appears in `compare`.

use burn::tensor::{Device, Int, Tensor, TensorData};
use kvlab_core::*;
use kvlab_store::{BuildError, Fit, Options, Plan, Variant};
use kvlab_testkit::check;
use std::collections::BTreeMap;

/// The variant: how it fits a model, and how it is built.
struct Diary;

impl Variant for Diary {
    fn name(&self) -> &'static str {
        "diary"
    }
    fn summary(&self) -> &'static str {
        "every row on the host, in a list"
    }
    fn options(&self) -> &'static [&'static str] {
        &[]
    }
    fn layouts(&self) -> &'static [&'static str] {
        &["contiguous"]
    }
    fn fit(&self, shape: &AttentionShape, _: &Options) -> Result<Fit, String> {
        let (retention, adaptation) = (Retention::All, Adaptation::Keep);
        Ok(Fit {
            row: shape.native_row(),
            retention,
            adaptation,
            exactness: Exactness::Exact,
        })
    }
    fn build(&self, plan: &Plan) -> Result<Box<dyn KvCache>, BuildError> {
        let (pages, device) = (BTreeMap::new(), plan.device.clone());
        Ok(Box::new(DiaryCache {
            spec: self.spec(plan)?,
            pages,
            device,
            next: 0,
        }))
    }
}

/// Rows of one layer: all keys, all values, back to back.
type Page = (Vec<f32>, Vec<f32>);

struct DiaryCache {
    spec: CacheSpec,
    /// For each sequence its length, and a page for each layer.
    pages: BTreeMap<SeqId, (usize, BTreeMap<LayerId, Page>)>,
    device: Device,
    next: u64,
}

impl KvCache for DiaryCache {
    fn spec(&self) -> &CacheSpec {
        &self.spec
    }
    fn capabilities(&self) -> Capabilities {
        let no = |what: &str| Err(format!("a diary has no {what}"));
        Capabilities {
            remembers: true,
            truncate: Truncate::Never("a diary is not torn".into()),
            fork: no("copies"),
            prefix_sharing: no("index"),
            save: no("save"),
            lse: Ok(()),
        }
    }
    fn usage(&self) -> Usage {
        let used: Bytes = self
            .pages
            .values()
            .map(|(len, _)| self.spec.per_token() * *len as u64)
            .sum();
        Usage {
            payload: used,
            reserved: self.spec.allocated(),
            peak: self.spec.allocated(),
            ..Usage::default()
        }
    }
    fn open(&mut self, _: &[TokenId]) -> Result<Opened, CacheError> {
        self.next += 1;
        self.pages.insert(SeqId(self.next), (0, BTreeMap::new()));
        Ok(Opened {
            seq: SeqId(self.next),
            reused: 0,
        })
    }
    fn fork(&mut self, seq: SeqId) -> Result<SeqId, CacheError> {
        self.len(seq)?;
        Err(CacheError::Unsupported {
            what: "fork".into(),
            reason: "a diary has no copies".into(),
        })
    }
    fn can_truncate(&self, seq: SeqId, len: usize) -> Result<(), CacheError> {
        match self.len(seq)? {
            most if len > most => Err(CacheError::OutOfRange {
                what: "truncation, tokens",
                asked: len,
                most,
            }),
            most if len == most => Ok(()),
            _ => Err(CacheError::Unsupported {
                what: "truncation".into(),
                reason: "a diary is not torn".into(),
            }),
        }
    }
    fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), CacheError> {
        self.can_truncate(seq, len)
    }
    fn close(&mut self, seq: SeqId) -> Result<(), CacheError> {
        self.pages
            .remove(&seq)
            .map(|_| ())
            .ok_or(CacheError::UnknownSequence(seq))
    }
    fn len(&self, seq: SeqId) -> Result<usize, CacheError> {
        self.pages
            .get(&seq)
            .map(|(len, _)| *len)
            .ok_or(CacheError::UnknownSequence(seq))
    }
    fn begin<'a>(&'a mut self, batch: &[Chunk<'_>]) -> Result<Box<dyn Step + 'a>, CacheError> {
        let mut chunks: Vec<(SeqId, usize, usize)> = Vec::new();
        let begun = self.pages.values().filter(|(len, _)| *len > 0).count();
        let new = batch.iter().filter(|c| self.len(c.seq) == Ok(0)).count();
        for chunk in batch {
            let (seq, start, tokens) = (chunk.seq, self.len(chunk.seq)?, chunk.tokens.len());
            let free = self.spec.capacity - start;
            match () {
                () if chunks.iter().any(|c| c.0 == seq) => return Err(CacheError::DuplicateSequence(seq)),
                () if tokens == 0 => return Err(CacheError::EmptyChunk(seq)),
                () if tokens > free => {
                    return Err(CacheError::NoRoom {
                        what: "diary, in tokens".into(),
                        needed: tokens,
                        free,
                    });
                }
                () => chunks.push((seq, start, tokens)),
            }
        }
        if begun + new > self.spec.sequences {
            return Err(CacheError::NoRoom {
                what: "shelf, in diaries".into(),
                needed: new,
                free: self.spec.sequences - begun,
            });
        }
        let positions: Vec<i64> = chunks
            .iter()
            .flat_map(|&(_, start, n)| (start..start + n).map(|p| p as i64))
            .collect();
        let positions = Tensor::from_data(positions.as_slice(), &self.device);
        Ok(Box::new(DiaryStep {
            cache: self,
            chunks,
            positions,
            new: BTreeMap::new(),
        }))
    }
}

struct DiaryStep<'a> {
    cache: &'a mut DiaryCache,
    chunks: Vec<(SeqId, usize, usize)>,
    positions: Tensor<1, Int>,
    new: BTreeMap<LayerId, Page>,
}

fn host<const D: usize>(t: Tensor<D>) -> Vec<f32> {
    t.into_data().convert::<f32>().try_to_vec().unwrap()
}

impl DiaryStep<'_> {
    fn pages(&self, row: &RowSpec, layer: LayerId, rows: Rows) -> Result<Page, CacheError> {
        let tokens: usize = self.chunks.iter().map(|c| c.2).sum();
        let (expected, got) = (vec![tokens, row.heads, row.key], rows.key.dims().to_vec());
        let missing = matches!(row.value, Value::Own(_)) != rows.value.is_some();
        if expected != got || missing {
            return Err(CacheError::Shape {
                layer,
                what: "the rows",
                expected,
                got,
            });
        }
        let key = host(rows.key);
        let prefix = |dim: usize| key.chunks(row.key).flat_map(|k| k[..dim].to_vec()).collect();
        let value = rows.value.map_or_else(|| prefix(row.value_dim()), host);
        Ok((key, value))
    }

    /// The formula, for each token and head, over the rows `rows_of` gives for a chunk: positions and page.
    fn formula(&self, row: &RowSpec, spec: &LayerSpec, query: &Query, past: bool, new: Option<&Page>) -> Attended {
        let [tokens, heads, dim] = query.q.dims();
        let (q, vdim) = (host(query.q.clone()), row.value_dim());
        let sinks = query.sinks.clone().map(host);
        let (mut out, mut lse, mut at) = (vec![0.0; tokens * heads * vdim], vec![EMPTY_LSE; tokens * heads], 0);
        for &(seq, start, n) in &self.chunks {
            let empty = Page::default();
            let old = self.cache.pages[&seq]
                .1
                .get(&spec.layer)
                .filter(|_| past)
                .unwrap_or(&empty);
            for (i, head) in (0..n).flat_map(|i| (0..heads).map(move |h| (i, h))) {
                let (t, kv) = (at + i, head * row.heads / heads);
                let qv = &q[(t * heads + head) * dim..][..dim];
                let mut scores = Vec::new();
                let mut see = |page: &Page, first: usize, position: usize, count: usize| {
                    for j in (0..count).filter(|&j| spec.visibility.sees(start + i, position + j)) {
                        let k = &page.0[((first + j) * row.heads + kv) * row.key..][..row.key];
                        let dot: f32 = qv.iter().zip(k).map(|(a, b)| a * b).sum::<f32>() * query.scale;
                        let score = query.softcap.map_or(dot, |c| c * (dot / c).tanh());
                        scores.push((score, page.1[((first + j) * row.heads + kv) * vdim..][..vdim].to_vec()));
                    }
                };
                see(old, 0, 0, if past { start } else { 0 });
                new.into_iter().for_each(|page| see(page, at, start, n));
                let sink = sinks.as_ref().map(|s| s[head]);
                let max = scores.iter().map(|s| s.0).chain(sink).fold(EMPTY_LSE, f32::max);
                let sum: f32 = scores.iter().map(|s| s.0).chain(sink).map(|s| (s - max).exp()).sum();
                for (score, value) in &scores {
                    let o = &mut out[(t * heads + head) * vdim..][..vdim];
                    o.iter_mut()
                        .zip(value)
                        .for_each(|(o, v)| *o += (score - max).exp() / sum * v);
                }
                lse[t * heads + head] = if sum > 0.0 { max + sum.ln() } else { EMPTY_LSE };
            }
            at += n;
        }
        let device = &self.cache.device;
        let lse = TensorData::new(lse, [tokens, heads]);
        Attended {
            out: Tensor::from_data(TensorData::new(out, [tokens, heads, vdim]), device),
            lse: query.lse.then(|| Tensor::from_data(lse, device)),
        }
    }

    fn checked(&self, layer: LayerId, query: &Query) -> Result<LayerSpec, CacheError> {
        let spec = self.cache.spec.layer(layer)?.clone();
        let tokens: usize = self.chunks.iter().map(|c| c.2).sum();
        let [got, heads, dim] = query.q.dims();
        if (got, dim) != (tokens, spec.row.key) || heads % spec.row.heads != 0 {
            let (expected, got) = (vec![tokens, spec.query_heads, spec.row.key], vec![got, heads, dim]);
            return Err(CacheError::Shape {
                layer,
                what: "the query",
                expected,
                got,
            });
        }
        Ok(spec)
    }
}

impl Step for DiaryStep<'_> {
    fn positions(&self) -> &Tensor<1, Int> {
        &self.positions
    }
    fn extend(&mut self, layer: LayerId, rows: Rows) -> Result<(), CacheError> {
        let page = self.pages(&self.cache.spec.layer(layer)?.row, layer, rows)?;
        if self.new.contains_key(&layer) {
            return Err(CacheError::Order {
                layer,
                what: "was written twice",
            });
        }
        self.new.insert(layer, page);
        Ok(())
    }
    fn attend(&mut self, layer: LayerId, query: Query) -> Result<Attended, CacheError> {
        let spec = self.checked(layer, &query)?;
        let new = self.new.get(&layer).ok_or(CacheError::Order {
            layer,
            what: "was not written yet",
        })?;
        Ok(self.formula(&spec.row, &spec, &query, true, (query.span == Span::All).then_some(new)))
    }
    fn attend_fresh(&mut self, layer: LayerId, rows: Rows, query: Query) -> Result<Attended, CacheError> {
        let spec = self.cache.spec.layer(layer)?.clone();
        let own = |v: &Tensor<3>| Value::Own(v.dims()[2]);
        let [_, heads, key] = rows.key.dims();
        let row = RowSpec {
            heads,
            key,
            value: rows.value.as_ref().map_or(spec.row.value, own),
        };
        let page = self.pages(&row, layer, rows)?;
        Ok(self.formula(&row, &spec, &query, false, Some(&page)))
    }
    fn ready(&self) -> Result<(), CacheError> {
        match self.cache.spec.layers.iter().find(|l| !self.new.contains_key(&l.layer)) {
            Some(l) => Err(CacheError::Order {
                layer: l.layer,
                what: "was not written",
            }),
            None => Ok(()),
        }
    }
    fn commit(self: Box<Self>, accepted: Accept) -> Result<StepReport, CacheError> {
        self.ready()?;
        let kept = accepted.resolve(&self.chunks.iter().map(|c| c.2).collect::<Vec<_>>())?;
        let mut at = 0;
        for (&(seq, _, n), &keep) in self.chunks.iter().zip(&kept) {
            let Some((len, pages)) = self.cache.pages.get_mut(&seq) else {
                continue;
            };
            *len += keep;
            for spec in &self.cache.spec.layers {
                let (new, page) = (&self.new[&spec.layer], pages.entry(spec.layer).or_default());
                let cut = |all: &[f32], width: usize| all[at * width..(at + keep) * width].to_vec();
                page.0.extend(cut(&new.0, spec.row.heads * spec.row.key));
                page.1.extend(cut(&new.1, spec.row.heads * spec.row.value_dim()));
            }
            at += n;
        }
        Ok(StepReport {
            kernels: vec!["by hand"],
            accepted: kept.iter().sum(),
        })
    }
}

#[test]
fn it_passes_the_laws() {
    for subject in crate::laws::subjects::of(&Diary, serde_json::json!({})) {
        for law in kvlab_testkit::laws::names() {
            check(law, &subject);
        }
    }
}

#[test]
fn it_appears_in_compare() {
    kvlab_engine::registry::register(&Diary);
    let table = crate::own_variant::compare("[[variant]]\nname = \"own\"\nset = { \"cache.variant\" = \"diary\" }");
    assert!(table.contains("diary"), "{table}");
}
