//! Forgetful: no slot at all. The layout of a cache that keeps nothing between steps.

use super::{Copy, Growth, Layout, Placed, Run, Shortage};
use kvlab_core::{SeqId, Truncate};

/// See the module.
#[derive(Debug)]
pub struct Forgetful;

impl Layout for Forgetful {
    fn name(&self) -> &'static str {
        "none"
    }

    fn slots(&self) -> usize {
        0
    }

    fn rollback(&self) -> Truncate {
        Truncate::Any
    }

    fn runs(&self, _: SeqId, _: usize) -> Vec<Run> {
        Vec::new()
    }

    fn check(&self, _: &[Growth<'_>]) -> Result<(), Shortage> {
        Ok(())
    }

    fn append(&mut self, _: Growth<'_>) -> Placed {
        Placed::default()
    }

    fn fork(&mut self, _: SeqId, _: SeqId, _: usize) -> Result<Vec<Copy>, Shortage> {
        Ok(Vec::new())
    }

    fn shortest(&self, _: SeqId) -> usize {
        0
    }

    fn truncate(&mut self, _: SeqId, _: usize) {}

    fn close(&mut self, _: SeqId) {}
}
