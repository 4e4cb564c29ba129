//! Memory that the next call uses again: zeros from the system take as long as filling them.

use bytemuck::Pod;
use std::sync::{Mutex, PoisonError};

/// What the last call is done with.
pub(crate) struct Spare<T>(Mutex<Vec<T>>);

impl<T: Pod> Spare<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// At least so many numbers, whatever they are.
    pub(crate) fn take(&self, len: usize) -> Vec<T> {
        let mut spare = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if spare.len() < len {
            spare.resize(len, T::zeroed());
        }
        spare
    }

    /// Keeps the longer of two.
    pub(crate) fn give(&self, done: Vec<T>) {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < done.len() {
            *spare = done;
        }
    }
}
