//! Paged: fixed pages from one pool, a table of them for each sequence, shared until they are written
//! (PagedAttention; Kwon et al. 2023).
//!
//! Full pages stay known by their tokens and all tokens before them, so that a prompt that begins alike finds them
//! again, also after their sequences are closed, until their room is needed.

use super::pool::{Known, PageId, Pool, ROOT};
use super::{Copy, Growth, Layout, Placed, Run, Shortage, Used, Write};
use kvlab_core::{SeqId, TokenId, Truncate};
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

/// Which past rows are needed: a window and the first few, or everything.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Tokens, the query's own included; `usize::MAX` for all.
    pub window: usize,
    /// Rows at the start.
    pub sinks: usize,
}

impl Reach {
    /// Every row.
    pub const ALL: Self = Self {
        window: usize::MAX,
        sinks: 0,
    };
}

/// The pages of one sequence.
#[derive(Clone, Debug, Default)]
struct Table {
    /// Page `i` holds positions `i * page_size ..`; `None` if it fell behind the window.
    pages: Vec<Option<PageId>>,
    /// All tokens so far.
    tokens: Vec<TokenId>,
    /// What full pages are known as: page `i` holds what `chain[i]` stands for, or a twin of it does.
    chain: Vec<Known>,
    /// Rows before this position, from the sinks on, are gone.
    oldest: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Paged<S = RandomState> {
    page_size: usize,
    reach: Reach,
    sharing: bool,
    /// Rows that are packed together, a divisor of the page size.
    block: usize,
    count: usize,
    pool: Pool<S>,
    tables: BTreeMap<SeqId, Table>,
}

impl<S: BuildHasher + Default> Paged<S> {
    /// A pool of `count` pages of `page_size` slots. With `sharing`, prompts find what others have stored, in whole
    /// blocks of `block` rows.
    pub fn new_in_blocks(block: usize, page_size: usize, count: usize, reach: Reach, sharing: bool) -> Self {
        Self {
            block,
            ..Self::new(page_size, count, reach, sharing)
        }
    }

    /// A pool of `count` pages of `page_size` slots. With `sharing`, prompts find what others have stored.
    pub fn new(page_size: usize, count: usize, reach: Reach, sharing: bool) -> Self {
        Self {
            page_size,
            reach,
            sharing,
            block: 1,
            count,
            pool: Pool::new(count),
            tables: BTreeMap::new(),
        }
    }

    /// The page that the next row of a sequence goes into, if it has one that is partly filled.
    fn open_page(&self, seq: SeqId, len: usize) -> Option<PageId> {
        let table = self.tables.get(&seq)?;
        if len.is_multiple_of(self.page_size) {
            return None;
        }
        table.pages.get(len / self.page_size).copied().flatten()
    }

    /// Pages to be had for all of these: new ones, and a copy of each partly filled page that stays with others.
    fn needed(&self, batch: &[Growth<'_>]) -> usize {
        let mut writers: BTreeMap<PageId, usize> = BTreeMap::new();
        let mut needed = 0;
        for growth in batch {
            let pages = |len: usize| len.div_ceil(self.page_size);
            needed += pages(growth.start + growth.tokens.len()) - pages(growth.start);
            if let Some(page) = self.open_page(growth.seq, growth.start) {
                *writers.entry(page).or_default() += 1;
            }
        }
        let copies = writers
            .iter()
            .map(|(&page, &writers)| writers - usize::from(writers == self.pool.users(page)));
        needed + copies.sum::<usize>()
    }

    /// Lets go of what no later query of the sequence sees. One row more than the window is kept, so that it can be
    /// cut back by one token.
    fn trim(&mut self, seq: SeqId) {
        let (size, reach) = (self.page_size, self.reach);
        let Some(table) = self.tables.get_mut(&seq) else { return };
        let first = table.tokens.len().saturating_sub(reach.window);
        for i in reach.sinks.div_ceil(size)..first / size {
            if let Some(page) = table.pages[i].take() {
                self.pool.release(page);
                table.oldest = (i + 1) * size;
            }
        }
    }

    /// Makes the pages known that became full between two lengths.
    fn learn(&mut self, seq: SeqId, from: usize, to: usize) {
        if !self.sharing {
            return;
        }
        let size = self.page_size;
        let Some(table) = self.tables.get_mut(&seq) else { return };
        for i in from / size..to / size {
            if let Some(page) = table.pages[i] {
                // If a twin is known already, the chain goes on from there, and this page stays unknown.
                let before = table.chain.last().copied().unwrap_or(ROOT);
                table
                    .chain
                    .push(self.pool.learn(page, before, &table.tokens[i * size..(i + 1) * size]));
            }
        }
    }

    fn runs_of(&self, table: &Table, len: usize) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (i, page) in table.pages.iter().enumerate() {
            let position = i * self.page_size;
            if let (Some(page), true) = (page, position < len) {
                let slot = page * self.page_size;
                let rows = self.page_size.min(len - position);
                match runs.last_mut() {
                    Some(run) if run.slot + run.len == slot && run.position + run.len == position => run.len += rows,
                    _ => runs.push(Run {
                        slot,
                        position,
                        len: rows,
                    }),
                }
            }
        }
        runs
    }
}

impl<S: BuildHasher + Default + Send> Layout for Paged<S> {
    fn name(&self) -> &'static str {
        "paged"
    }

    fn slots(&self) -> usize {
        self.count * self.page_size
    }

    fn rollback(&self) -> Truncate {
        match self.reach.window {
            usize::MAX => Truncate::Any,
            _ => Truncate::Last(1),
        }
    }

    fn shares(&self) -> bool {
        self.sharing
    }

    fn open(&mut self, seq: SeqId, prompt: &[TokenId]) -> usize {
        let mut table = Table::default();
        let mut name = ROOT;
        for tokens in prompt.chunks_exact(self.page_size) {
            let found = self.pool.find(name, tokens);
            let Some((page, next)) = found.and_then(|page| Some((page, self.pool.name(page)?))) else {
                break;
            };
            self.pool.share(page);
            table.pages.push(Some(page));
            table.chain.push(next);
            name = next;
        }
        // At least one token is left to compute, so that there are logits.
        let reused = (table.pages.len() * self.page_size).min(prompt.len().saturating_sub(1));
        let reused = reused / self.block * self.block;
        table.tokens = prompt[..reused].to_vec();
        table.chain.truncate(reused / self.page_size);
        for page in table.pages.drain(reused.div_ceil(self.page_size)..).rev().flatten() {
            self.pool.release(page);
        }
        self.tables.insert(seq, table);
        reused
    }

    fn runs(&self, seq: SeqId, len: usize) -> Vec<Run> {
        self.tables
            .get(&seq)
            .map(|table| self.runs_of(table, len))
            .unwrap_or_default()
    }

    fn check(&self, batch: &[Growth<'_>]) -> Result<(), Shortage> {
        let (needed, free) = (self.needed(batch), self.pool.available());
        if needed <= free {
            return Ok(());
        }
        Err(Shortage {
            what: "paged cache, in pages",
            needed,
            free,
        })
    }

    fn append(&mut self, growth: Growth<'_>) -> Placed {
        let Growth { seq, start, tokens } = growth;
        let (size, end) = (self.page_size, start + tokens.len());
        let mut placed = Placed::default();
        if let Some(page) = self.open_page(seq, start) {
            if self.pool.users(page) > 1 {
                if let Some(own) = self.pool.take() {
                    placed.copies.push(Copy {
                        from: page * size,
                        to: own * size,
                        len: start % size,
                    });
                    self.pool.release(page);
                    if let Some(table) = self.tables.get_mut(&seq) {
                        table.pages[start / size] = Some(own);
                    }
                }
            } else {
                self.pool.forget(page);
            }
        }
        let table = self.tables.entry(seq).or_default();
        let mut position = start;
        while position < end {
            let i = position / size;
            if i == table.pages.len() {
                table.pages.push(self.pool.take());
            }
            let len = (size - position % size).min(end - position);
            if let Some(page) = table.pages[i] {
                let slot = page * size + position % size;
                placed.writes.push(Write {
                    offset: position - start,
                    slot,
                    len,
                });
            }
            position += len;
        }
        table.tokens.extend_from_slice(tokens);
        self.learn(seq, start, end);
        self.trim(seq);
        placed
    }

    fn fork(&mut self, from: SeqId, to: SeqId, _len: usize) -> Result<Vec<Copy>, Shortage> {
        if let Some(table) = self.tables.get(&from).cloned() {
            table.pages.iter().flatten().for_each(|&page| self.pool.share(page));
            self.tables.insert(to, table);
        }
        Ok(Vec::new())
    }

    fn shortest(&self, seq: SeqId) -> usize {
        match self.tables.get(&seq) {
            Some(table) if table.oldest > 0 => table.oldest + self.reach.window - 1,
            _ => 0,
        }
    }

    fn truncate(&mut self, seq: SeqId, len: usize) {
        if let Some(table) = self.tables.get_mut(&seq) {
            let keep = len.div_ceil(self.page_size);
            for page in table.pages.drain(keep..).rev().flatten() {
                self.pool.release(page);
            }
            table.tokens.truncate(len);
            table.chain.truncate(len / self.page_size);
        }
    }

    fn close(&mut self, seq: SeqId) {
        if let Some(table) = self.tables.remove(&seq) {
            // The last page first: of what is kept, the ends of prompts go before their beginnings.
            for page in table.pages.into_iter().rev().flatten() {
                self.pool.release(page);
            }
        }
    }

    fn used(&self, lengths: &BTreeMap<SeqId, usize>) -> Used {
        let mut filled: BTreeMap<PageId, usize> = BTreeMap::new();
        for (seq, &len) in lengths {
            let pages = self
                .tables
                .get(seq)
                .into_iter()
                .flat_map(|table| table.pages.iter().enumerate());
            for (i, page) in pages.filter_map(|(i, page)| Some((i, (*page)?))) {
                let rows = len.saturating_sub(i * self.page_size).min(self.page_size);
                let most = filled.entry(page).or_default();
                *most = rows.max(*most);
            }
        }
        let rows: usize = filled.values().sum();
        let kept: BTreeSet<PageId> = self.pool.kept().collect();
        Used {
            rows,
            padding: filled.len() * self.page_size - rows,
            kept: kept.len() * self.page_size,
        }
    }
}

#[cfg(test)]
#[path = "paged_tests.rs"]
mod tests;
