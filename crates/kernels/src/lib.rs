//! Attention kernels: [`mod@reference`] in Burn operations, which takes every problem on every device, and is
//! what every other kernel is tested against; and [`cpu`], over packed rows in the processor's memory.
//!
//! A kernel is one file or folder and one line in [`ALL`]. What is fast comes before what is general: the first kernel
//! that supports a problem runs, and its name goes into the step's report.

pub mod cpu;
pub mod reference;

use kvlab_store::Kernel;

/// Every kernel, best first.
pub const ALL: &[&dyn Kernel] = &[&cpu::Cpu::BEST, &reference::Reference];
