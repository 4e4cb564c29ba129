//! What this machine can do at most: bytes read from memory, and f32 operations, a second. No kernel can be faster.
//!
//! The vectors are pulp's, which picks the instruction set at run time as the kernels do; the loops do nothing else.

use crate::{run, threads};
use pulp::{Simd, WithSimd};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long one of the two measurements goes on.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often a measurement is made at least, however long it takes.
const LEAST: usize = 3;

/// Passes over the buffer that read all of it.
const SLICES: usize = 8;

/// Accumulators of one thread: more than multiply-adds are in flight on the processors of the day (two units times four cycles),
/// and with the two constants as many as AVX2 has registers for.
const CHAINS: usize = 12;

/// What was measured, with all [`threads`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// Threads that took part.
    pub threads: usize,
    /// Bytes that were read over and over, all threads together: several times the last-level cache.
    pub buffer_bytes: usize,
    /// Bytes a second, reading memory in order; the best of several passes over an eighth of the buffer each.
    pub read_bytes_per_second: f64,
    /// f32 operations a second, of multiply-adds on registers (two operations each); the best of several passes.
    pub f32_flops_per_second: f64,
}

/// Measures both. Takes one to two seconds, and memory of four last-level caches (256 MiB to 1 GiB), which is given back.
pub fn probe() -> Probe {
    let threads = threads();
    let buffer_bytes = buffer_bytes(last_level_cache());
    Probe {
        threads,
        buffer_bytes,
        read_bytes_per_second: read_rate(buffer_bytes, threads),
        f32_flops_per_second: flop_rate(threads),
    }
}

/// Runs `pass` until its time is up, and says how long the fastest took.
fn fastest(pass: impl Fn()) -> f64 {
    let began = Instant::now();
    let mut best = f64::INFINITY;
    let mut passes = 0;
    while passes < LEAST || began.elapsed() < PATIENCE {
        let start = Instant::now();
        pass();
        best = best.min(start.elapsed().as_secs_f64());
        passes += 1;
    }
    // A clock too coarse for the work would show 0.
    best.max(1e-9)
}

fn read_rate(bytes: usize, threads: usize) -> f64 {
    let values = bytes / threads / size_of::<f32>();
    let parts: Vec<Mutex<Vec<f32>>> = (0..threads).map(|_| Mutex::default()).collect();
    // Whoever changes the number of threads meanwhile has more of them than there are parts: those do nothing.
    let part = |thread: usize| {
        let part = parts.get(thread)?;
        Some(part.lock().unwrap_or_else(PoisonError::into_inner))
    };
    // Written by the thread that reads it, so that the pages lie near it.
    run(&|thread| {
        if let Some(mut part) = part(thread) {
            part.resize(values, 1.0);
        }
    });
    // In slices, one after the other: a short pass is more often left alone by whatever else runs, and a slice comes again only
    // after the whole buffer went through the caches.
    let slice = (values / SLICES).max(1);
    let next = AtomicUsize::new(0);
    let seconds = fastest(|| {
        let from = next.fetch_add(1, Ordering::Relaxed) % SLICES * slice;
        run(&|thread| {
            // Empty where there were fewer threads before.
            if let Some(numbers) = part(thread).as_ref().and_then(|part| part.get(from..from + slice)) {
                black_box(dispatch(Sum(numbers)));
            }
        });
    });
    (slice * size_of::<f32>() * threads) as f64 / seconds
}

fn flop_rate(threads: usize) -> f64 {
    const ROUNDS: usize = 1 << 20;
    let lanes = dispatch(Chains { rounds: 0 });
    let seconds = fastest(|| {
        run(&|_| {
            black_box(dispatch(Chains { rounds: ROUNDS }));
        });
    });
    (2 * lanes * CHAINS * ROUNDS * threads) as f64 / seconds
}

/// With the widest vectors that the machine has. pulp's own choice knows AVX2 only with a feature that Burn does not ask for.
fn dispatch<W: WithSimd>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    match (pulp::x86::V4::try_new(), pulp::x86::V3::try_new()) {
        (Some(avx512), _) => return Simd::vectorize(avx512, work),
        (None, Some(avx2)) => return Simd::vectorize(avx2, work),
        (None, None) => {}
    }
    pulp::Arch::new().dispatch(work)
}

/// Reads every value.
struct Sum<'a>(&'a [f32]);

impl WithSimd for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let (vectors, _) = S::as_simd_f32s(self.0);
        let mut sums = [simd.splat_f32s(0.0); 8];
        let (blocks, _) = vectors.as_chunks::<8>();
        for block in blocks {
            for (sum, vector) in sums.iter_mut().zip(block) {
                *sum = simd.add_f32s(*sum, *vector);
            }
        }
        sums.iter().map(|sum| simd.reduce_sum_f32s(*sum)).sum()
    }
}

/// Independent chains of multiply-adds; says how many numbers a vector has.
struct Chains {
    rounds: usize,
}

impl WithSimd for Chains {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> usize {
        // The chains settle at 1: no number on the way is slow.
        let (factor, step) = (simd.splat_f32s(black_box(0.5)), simd.splat_f32s(black_box(0.5)));
        let mut chains = [simd.splat_f32s(0.0); CHAINS];
        for _ in 0..self.rounds {
            for chain in &mut chains {
                *chain = simd.mul_add_e_f32s(*chain, factor, step);
            }
        }
        black_box(chains.map(|chain| simd.reduce_sum_f32s(chain)));
        size_of::<S::f32s>() / size_of::<f32>()
    }
}

fn buffer_bytes(cache: Option<usize>) -> usize {
    cache.unwrap_or(128 << 20).saturating_mul(4).clamp(256 << 20, 1 << 30)
}

/// Bytes of the last-level cache that the first core has, where the operating system says.
fn last_level_cache() -> Option<usize> {
    let size = |index| {
        let file = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = std::fs::read_to_string(file).ok()?;
        let kib: usize = text.trim().strip_suffix('K')?.parse().ok()?;
        kib.checked_mul(1024)
    };
    (0..8).filter_map(size).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_is_far_larger_than_the_cache() {
        assert_eq!(buffer_bytes(Some(32 << 20)), 256 << 20);
        assert_eq!(buffer_bytes(Some(100 << 20)), 400 << 20);
        assert_eq!(buffer_bytes(Some(384 << 20)), 1 << 30);
        assert_eq!(buffer_bytes(None), 512 << 20);
    }

    /// The loops do what the rates are computed from.
    #[test]
    fn every_value_is_read_and_every_chain_is_run() {
        let values = vec![1.0_f32; 64 * 1024];
        assert_eq!(dispatch(Sum(&values)), 64.0 * 1024.0);
        let lanes = dispatch(Chains { rounds: 3 });
        assert!(lanes.is_power_of_two() && lanes <= 16, "{lanes}");
    }

    /// Wide bounds: no processor that runs this is outside of them, and a count that is off by the lanes or the threads would be.
    #[test]
    fn rates_are_those_of_a_processor() {
        let rate = flop_rate(1) / 1e9;
        assert!((0.2..1000.0).contains(&rate), "{rate} GFLOP/s");
        let rate = read_rate(8 << 20, 1) / 1e9;
        assert!((0.1..1000.0).contains(&rate), "{rate} GB/s");
    }
}
