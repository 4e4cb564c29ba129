//! A pool of pages: who uses each, which tokens a full one holds, and which one goes when room is needed.

use kvlab_core::TokenId;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;

/// A page, by its number.
pub type PageId = usize;

/// A full page that is known: never used twice, so that what followed a page which is gone is never found again.
pub type Known = u64;

/// What leads to the root of all prompts.
pub const ROOT: Known = 0;

/// A known page holds these tokens, and follows that other known page.
type Key = (Known, Vec<TokenId>);

#[derive(Clone, Debug, Default)]
struct Page {
    /// Sequences that have it in their table.
    users: usize,
    /// Its name among the known, if its tokens are.
    known: Option<Known>,
    /// When it was last let go.
    touched: u64,
}

/// See the module. A page is free, in use, or kept: known, and without a user.
#[derive(Debug)]
pub struct Pool<S = RandomState> {
    pages: Vec<Page>,
    free: Vec<PageId>,
    /// Kept pages, the one longest unused first.
    kept: BTreeSet<(u64, PageId)>,
    index: HashMap<Key, PageId, S>,
    keys: BTreeMap<Known, Key>,
    clock: u64,
    names: Known,
}

impl<S: BuildHasher + Default> Pool<S> {
    /// `count` free pages.
    pub fn new(count: usize) -> Self {
        Self {
            pages: vec![Page::default(); count],
            free: (0..count).rev().collect(),
            kept: BTreeSet::new(),
            index: HashMap::default(),
            keys: BTreeMap::new(),
            clock: 0,
            names: ROOT,
        }
    }

    /// Pages that can be had: free ones, and kept ones that would be forgotten for it.
    pub fn available(&self) -> usize {
        self.free.len() + self.kept.len()
    }

    /// Pages that are known and without a user.
    pub fn kept(&self) -> impl Iterator<Item = PageId> {
        self.kept.iter().map(|&(_, page)| page)
    }

    /// Sequences that use a page.
    pub fn users(&self, page: PageId) -> usize {
        self.pages[page].users
    }

    /// The name of a page, if its tokens are known.
    pub fn name(&self, page: PageId) -> Option<Known> {
        self.pages[page].known
    }

    /// A page for one user: a free one, or the kept one that is longest unused.
    pub fn take(&mut self) -> Option<PageId> {
        let page = match self.free.pop() {
            Some(page) => page,
            None => {
                let (_, page) = self.kept.pop_first()?;
                self.forget(page);
                page
            }
        };
        self.pages[page].users = 1;
        Some(page)
    }

    /// One more user.
    pub fn share(&mut self, page: PageId) {
        self.kept.remove(&(self.pages[page].touched, page));
        self.pages[page].users += 1;
    }

    /// One user less. Without any, a known page is kept and another is free.
    pub fn release(&mut self, page: PageId) {
        self.clock += 1;
        let entry = &mut self.pages[page];
        entry.users = entry.users.saturating_sub(1);
        entry.touched = self.clock;
        match (entry.users, entry.known) {
            (0, Some(_)) => {
                self.kept.insert((self.clock, page));
            }
            (0, None) => self.free.push(page),
            _ => {}
        }
    }

    /// The known page that holds `tokens` and follows `before`.
    pub fn find(&self, before: Known, tokens: &[TokenId]) -> Option<PageId> {
        self.index.get(&(before, tokens.to_vec())).copied()
    }

    /// Makes a full page known. If another one with the same tokens and past is, that one stays. The name to look
    /// for what follows comes back.
    pub fn learn(&mut self, page: PageId, before: Known, tokens: &[TokenId]) -> Known {
        if let Some(name) = self.find(before, tokens).and_then(|other| self.pages[other].known) {
            return name;
        }
        self.names += 1;
        let key = (before, tokens.to_vec());
        self.index.insert(key.clone(), page);
        self.keys.insert(self.names, key);
        self.pages[page].known = Some(self.names);
        self.names
    }

    /// What a page holds is about to change: nobody finds it any more.
    pub fn forget(&mut self, page: PageId) {
        let name = self.pages[page].known.take();
        if let Some(key) = name.and_then(|name| self.keys.remove(&name)) {
            self.index.remove(&key);
        }
    }

    /// Everything that must hold between the parts, for tests.
    #[cfg(test)]
    pub fn check(&self, users: &BTreeMap<PageId, usize>) -> Result<(), String> {
        for (page, entry) in self.pages.iter().enumerate() {
            let free = self.free.iter().filter(|p| **p == page).count();
            let kept = usize::from(self.kept.contains(&(entry.touched, page)));
            let used = usize::from(entry.users > 0);
            if free + kept + used != 1 {
                return Err(format!("page {page}: {free} times free, {kept} kept, {used} in use"));
            }
            if users.get(&page).copied().unwrap_or(0) != entry.users {
                return Err(format!("page {page}: {} users counted", entry.users));
            }
            if kept == 1 && entry.known.is_none() {
                return Err(format!("page {page} is kept, but nobody can find it"));
            }
        }
        let named = self.pages.iter().filter(|p| p.known.is_some()).count();
        if named != self.index.len() || named != self.keys.len() {
            return Err(format!("{named} named pages, {} in the index", self.index.len()));
        }
        for (key, &page) in &self.index {
            let name = self.pages[page].known.ok_or("an index entry without a name")?;
            if self.keys.get(&name) != Some(key) {
                return Err(format!("page {page} is indexed under another key"));
            }
        }
        Ok(())
    }
}
