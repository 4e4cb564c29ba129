//! Products, split over the threads.

use crate::kernel::{Input, Part, compute};
use crate::output::Output;
use crate::{LinearError, Packed};
use kvlab_cpu::Isa;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Less work than this, in bytes of weights times rows, is not worth a second thread.
const ALONE: usize = 64 << 10;
/// Shares of a thread: more than one, since threads do not all run at the same pace.
const SHARES: usize = 4;
/// Panels that kernels of many rows take at a time.
const TOGETHER: usize = 4;

/// `y = W x` for weights that have their inputs in common: queries, keys and values, or a gate and what it gates.
///
/// `x` is `[tokens, in]`, and the outputs are `[tokens, out]` each. With AVX2 and AVX-512, activations of 16 tokens and more have 16
/// bits in blocks of 32, as far as they do not stand out; so do weights in F16 and BF16. A product is off by some 2e-5 to 6e-5 of
/// the norms then, unless a weight's [precision](Packed::with_precision) says otherwise.
///
/// # Errors
/// [`LinearError::Inputs`] and [`LinearError::Outputs`] for slices of another length.
pub fn apply(weights: &[&Packed], x: &[f32], outputs: &mut [&mut [f32]]) -> Result<(), LinearError> {
    apply_with(Isa::best(), weights, x, outputs)
}

/// [`apply`] with an instruction set that the machine has.
pub(crate) fn apply_with(
    isa: Isa,
    weights: &[&Packed],
    x: &[f32],
    outputs: &mut [&mut [f32]],
) -> Result<(), LinearError> {
    let tokens = check(weights, x, outputs)?;
    if tokens == 0 {
        return Ok(());
    }
    let cols = weights[0].cols();
    let input = Input::new(isa, weights, x, cols);
    let outputs: Vec<Output<'_>> = weights
        .iter()
        .zip(outputs)
        .map(|(w, out)| Output::new(out, w.rows()))
        .collect();
    let total: usize = weights.iter().map(|w| w.bytes()).sum();
    let threads = if total.saturating_mul(tokens) < ALONE {
        1
    } else {
        kvlab_cpu::threads()
    };
    let panels: usize = weights.iter().map(|w| w.panels()).sum();
    let shares = Shares::new(panels, threads);
    let work = |thread: usize| {
        while let Some(share) = shares.next(thread) {
            // Counted over all weights: the part of this share that is in each.
            let mut before = 0;
            for (weight, out) in weights.iter().zip(&outputs) {
                let own = before..before + weight.panels();
                before = own.end;
                let panels = share.start.max(own.start)..share.end.min(own.end);
                if !panels.is_empty() {
                    let panels = panels.start - own.start..panels.end - own.start;
                    // SAFETY: the counter gives every panel out once, each weight has an output of its own, and the input
                    // was prepared for all of them.
                    #[allow(unsafe_code)]
                    unsafe {
                        compute(isa, &Part { weight, panels, out }, &input);
                    }
                }
            }
        }
    };
    if threads == 1 {
        work(0)
    } else {
        kvlab_cpu::run(&work)
    }
    Ok(())
}

/// Panels, given out share by share: each thread has a range of its own, so that it reads on where it was, and then helps the
/// others.
struct Shares {
    /// The next panel of each range, and its end.
    ranges: Vec<(AtomicUsize, usize)>,
    share: usize,
}

impl Shares {
    fn new(panels: usize, threads: usize) -> Self {
        // Even, since kernels take at least two panels at a time.
        let cut = |thread: usize| (panels * thread / threads).next_multiple_of(2).min(panels);
        let share = panels.div_ceil(threads * if threads == 1 { 1 } else { SHARES });
        Self {
            ranges: (0..threads).map(|t| (AtomicUsize::new(cut(t)), cut(t + 1))).collect(),
            share: share.next_multiple_of(TOGETHER),
        }
    }

    fn next(&self, thread: usize) -> Option<Range<usize>> {
        let ranges = self.ranges.iter().cycle().skip(thread).take(self.ranges.len());
        let mut shares = ranges.map(|(next, end)| (next.fetch_add(self.share, Ordering::Relaxed), *end));
        shares
            .find(|(first, end)| first < end)
            .map(|(first, end)| first..end.min(first + self.share))
    }
}

/// The number of tokens.
fn check(weights: &[&Packed], x: &[f32], outputs: &[&mut [f32]]) -> Result<usize, LinearError> {
    let Some(first) = weights.first() else {
        return Ok(0);
    };
    let cols = first.cols();
    if cols == 0 || !x.len().is_multiple_of(cols) {
        return Err(LinearError::Inputs { cols, got: x.len() });
    }
    if let Some(other) = weights.iter().find(|w| w.cols() != cols) {
        return Err(LinearError::Inputs {
            cols: other.cols(),
            got: cols,
        });
    }
    let tokens = x.len() / cols;
    if outputs.len() != weights.len() {
        return Err(LinearError::Outputs {
            expected: weights.len(),
            got: outputs.len(),
        });
    }
    for (weight, out) in weights.iter().zip(outputs) {
        let expected = tokens * weight.rows();
        if out.len() != expected {
            return Err(LinearError::Outputs {
                expected,
                got: out.len(),
            });
        }
    }
    Ok(tokens)
}
