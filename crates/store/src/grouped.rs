//! A cache for models whose layers differ: it sends each layer to the cache of its group, and is a cache itself.

use burn::tensor::{Int, Tensor};
use kvlab_core::{
    Accept, Attended, CacheError, CacheSpec, Capabilities, Chunk, Exactness, Inspected, KvCache, LayerId, Opened,
    Query, Rows, Saved, SeqId, Step, StepReport, TokenId, Usage,
};
use std::collections::BTreeMap;

/// Several caches, each for some layers of one model.
pub struct Grouped {
    spec: CacheSpec,
    groups: Vec<Box<dyn KvCache>>,
    group_of: BTreeMap<LayerId, usize>,
    sequences: BTreeMap<SeqId, Vec<SeqId>>,
    next: u64,
}

impl Grouped {
    /// Puts caches together that hold different layers.
    pub fn new(groups: Vec<Box<dyn KvCache>>) -> Self {
        let specs: Vec<_> = groups.iter().map(|g| g.spec().clone()).collect();
        let layers = specs.iter().enumerate();
        let group_of = layers.flat_map(|(i, spec)| spec.layers.iter().map(move |l| (l.layer, i)));
        Self {
            spec: Self::spec_of(&specs),
            group_of: group_of.collect(),
            groups,
            sequences: BTreeMap::new(),
            next: 0,
        }
    }

    /// The spec of a cache of such groups.
    pub fn spec_of(groups: &[CacheSpec]) -> CacheSpec {
        let mut layers: Vec<_> = groups.iter().flat_map(|g| g.layers.iter().cloned()).collect();
        layers.sort_by_key(|l| l.layer);
        let mut names: Vec<&str> = Vec::new();
        let mut lossy: Vec<String> = Vec::new();
        for group in groups {
            if !names.contains(&group.variant.as_str()) {
                names.push(&group.variant);
            }
            if let Exactness::Lossy(reasons) = &group.exactness {
                let new: Vec<_> = reasons.iter().filter(|r| !lossy.contains(r)).cloned().collect();
                lossy.extend(new);
            }
        }
        CacheSpec {
            variant: names.join("+"),
            layers,
            capacity: groups.iter().map(|g| g.capacity).min().unwrap_or(0),
            sequences: groups.iter().map(|g| g.sequences).min().unwrap_or(0),
            exactness: match lossy.is_empty() {
                true => Exactness::Exact,
                false => Exactness::Lossy(lossy),
            },
        }
    }

    fn members(&self, seq: SeqId) -> Result<&Vec<SeqId>, CacheError> {
        let members = self.sequences.get(&seq);
        members.ok_or(CacheError::UnknownSequence(seq))
    }

    fn add(&mut self, members: Vec<SeqId>) -> SeqId {
        self.next += 1;
        self.sequences.insert(SeqId(self.next), members);
        SeqId(self.next)
    }
}

impl KvCache for Grouped {
    fn spec(&self) -> &CacheSpec {
        &self.spec
    }

    fn capabilities(&self) -> Capabilities {
        let all = self.groups.iter().map(|g| g.capabilities());
        all.reduce(Capabilities::and).unwrap_or(Capabilities {
            remembers: true,
            truncate: kvlab_core::Truncate::Any,
            fork: Ok(()),
            prefix_sharing: Ok(()),
            save: Ok(()),
            lse: Ok(()),
        })
    }

    fn usage(&self) -> Usage {
        let usages = self.groups.iter().map(|g| g.usage());
        usages.fold(Usage::default(), std::ops::Add::add)
    }

    fn open(&mut self, prompt: &[TokenId]) -> Result<Opened, CacheError> {
        let mut opened = Vec::with_capacity(self.groups.len());
        for group in &mut self.groups {
            opened.push(group.open(prompt)?);
        }
        // A prefix counts as far as every group has it.
        let reused = opened.iter().map(|o| o.reused).min().unwrap_or(0);
        let able = self
            .groups
            .iter()
            .zip(&opened)
            .all(|(group, o)| group.can_truncate(o.seq, reused).is_ok());
        let reused = if able { reused } else { 0 };
        for (group, o) in self.groups.iter_mut().zip(&mut opened) {
            if able {
                group.truncate(o.seq, reused)?;
            } else {
                // A window that cannot go back so far begins anew.
                group.close(o.seq)?;
                o.seq = group.open(&[])?.seq;
            }
        }
        let seq = self.add(opened.into_iter().map(|o| o.seq).collect());
        Ok(Opened { seq, reused })
    }

    fn fork(&mut self, seq: SeqId) -> Result<SeqId, CacheError> {
        let members = self.members(seq)?.clone();
        let mut forked = Vec::with_capacity(members.len());
        for (i, member) in members.into_iter().enumerate() {
            match self.groups[i].fork(member) {
                Ok(new) => forked.push(new),
                Err(error) => {
                    for (group, new) in self.groups.iter_mut().zip(forked) {
                        group.close(new)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(self.add(forked))
    }

    fn can_truncate(&self, seq: SeqId, len: usize) -> Result<(), CacheError> {
        let mut members = self.groups.iter().zip(self.members(seq)?);
        members.try_for_each(|(group, &member)| group.can_truncate(member, len))
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), CacheError> {
        self.can_truncate(seq, len)?;
        let members = self.members(seq)?.clone();
        let mut members = self.groups.iter_mut().zip(members);
        members.try_for_each(|(group, member)| group.truncate(member, len))
    }

    fn close(&mut self, seq: SeqId) -> Result<(), CacheError> {
        let members = self.members(seq)?.clone();
        for (group, member) in self.groups.iter_mut().zip(members) {
            group.close(member)?;
        }
        self.sequences.remove(&seq);
        Ok(())
    }

    fn len(&self, seq: SeqId) -> Result<usize, CacheError> {
        let members = self.members(seq)?;
        match self.groups.first().zip(members.first()) {
            Some((group, &member)) => group.len(member),
            None => Ok(0),
        }
    }

    fn inspect(&self, seq: SeqId, layer: LayerId) -> Result<Inspected, CacheError> {
        let members = self.members(seq)?;
        let group = *self.group_of.get(&layer).ok_or(CacheError::UnknownLayer(layer))?;
        self.groups[group].inspect(members[group], layer)
    }

    fn save(&self, seq: SeqId) -> Result<Saved, CacheError> {
        let members = self.groups.iter().zip(self.members(seq)?);
        let parts = members.map(|(group, &member)| group.save(member));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let mut layers: Vec<_> = parts.into_iter().flat_map(|part| part.layers).collect();
        layers.sort_by_key(|layer| layer.layer);
        Ok(Saved {
            spec: self.spec.clone(),
            len: self.len(seq)?,
            layers,
        })
    }

    fn restore(&mut self, saved: &Saved, tokens: &[TokenId]) -> Result<SeqId, CacheError> {
        saved.check(&self.spec)?;
        let mut members: Vec<SeqId> = Vec::with_capacity(self.groups.len());
        for i in 0..self.groups.len() {
            let ours = |layer: &LayerId| self.group_of.get(layer) == Some(&i);
            let part = Saved {
                spec: CacheSpec {
                    layers: saved.spec.layers.iter().filter(|l| ours(&l.layer)).cloned().collect(),
                    ..saved.spec.clone()
                },
                len: saved.len,
                layers: saved.layers.iter().filter(|l| ours(&l.layer)).cloned().collect(),
            };
            match self.groups[i].restore(&part, tokens) {
                Ok(member) => members.push(member),
                Err(error) => {
                    for (group, member) in self.groups.iter_mut().zip(members) {
                        group.close(member)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(self.add(members))
    }

    fn begin<'a>(&'a mut self, batch: &[Chunk<'_>]) -> Result<Box<dyn Step + 'a>, CacheError> {
        let members = batch.iter().map(|chunk| self.members(chunk.seq).cloned());
        let members: Vec<Vec<SeqId>> = members.collect::<Result<_, _>>()?;
        let mut steps = Vec::with_capacity(self.groups.len());
        for (i, group) in self.groups.iter_mut().enumerate() {
            let chunks = batch.iter().zip(&members).map(|(chunk, members)| Chunk {
                seq: members[i],
                tokens: chunk.tokens,
            });
            // A group without room drops the steps begun so far, which undoes them.
            steps.push(group.begin(&chunks.collect::<Vec<_>>())?);
        }
        if steps.is_empty() {
            return Err(CacheError::UnknownLayer(LayerId(0)));
        }
        let lengths = batch.iter().map(|c| c.tokens.len()).collect();
        Ok(Box::new(GroupedStep {
            steps,
            group_of: &self.group_of,
            lengths,
        }))
    }
}

struct GroupedStep<'a> {
    steps: Vec<Box<dyn Step + 'a>>,
    group_of: &'a BTreeMap<LayerId, usize>,
    lengths: Vec<usize>,
}

impl<'a> GroupedStep<'a> {
    fn step(&mut self, layer: LayerId) -> Result<&mut Box<dyn Step + 'a>, CacheError> {
        let group = self.group_of.get(&layer);
        let group = *group.ok_or(CacheError::UnknownLayer(layer))?;
        Ok(&mut self.steps[group])
    }
}

impl Step for GroupedStep<'_> {
    fn positions(&self) -> &Tensor<1, Int> {
        self.steps[0].positions()
    }

    fn extend(&mut self, layer: LayerId, rows: Rows) -> Result<(), CacheError> {
        self.step(layer)?.extend(layer, rows)
    }

    fn attend(&mut self, layer: LayerId, query: Query) -> Result<Attended, CacheError> {
        self.step(layer)?.attend(layer, query)
    }

    fn attend_fresh(&mut self, layer: LayerId, rows: Rows, query: Query) -> Result<Attended, CacheError> {
        self.step(layer)?.attend_fresh(layer, rows, query)
    }

    fn extend_attend(&mut self, layer: LayerId, rows: Rows, query: Query) -> Result<Attended, CacheError> {
        self.step(layer)?.extend_attend(layer, rows, query)
    }

    fn ready(&self) -> Result<(), CacheError> {
        self.steps.iter().try_for_each(|step| step.ready())
    }

    fn commit(self: Box<Self>, accepted: Accept) -> Result<StepReport, CacheError> {
        // Everything that can be refused is refused here, before any group has committed.
        self.ready()?;
        let accepted = accepted.resolve(&self.lengths)?;
        let mut report = StepReport::default();
        for step in self.steps {
            let part = step.commit(Accept::Each(accepted.clone()))?;
            report.kernels.extend(part.kernels);
            report.accepted = part.accepted;
        }
        report.kernels.sort_unstable();
        report.kernels.dedup();
        Ok(report)
    }
}
