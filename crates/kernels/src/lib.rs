//! Attention kernels: [`mod@reference`] in Burn operations, which takes every problem on every device, and is
//! what every other kernel is tested against.
//!
//! A kernel is one file and one line in [`ALL`]. What is fast comes before what is general: the first kernel
//! that supports a problem runs, and its name goes into the step's report.

pub mod reference;

use kvlab_store::Kernel;

/// Every kernel, best first.
pub const ALL: &[&dyn Kernel] = &[&reference::Reference];
