//! What all threads of the machine do at best: multiply-adds in f32, and reading memory.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds: of the day, or those that this thread was on a processor.
#[derive(Clone, Copy)]
pub struct Clock {
    alone: bool,
}

impl Clock {
    /// If `alone`, products have one thread.
    pub fn new(alone: bool) -> Self {
        if alone {
            kvlab_cpu::set_threads(1);
        }
        Self { alone }
    }

    pub fn now(self) -> f64 {
        let since = || {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs_f64()
        };
        if self.alone {
            thread_seconds().unwrap_or_else(since)
        } else {
            since()
        }
    }
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn thread_seconds() -> Option<f64> {
    #[repr(C)]
    struct Time {
        seconds: i64,
        nanoseconds: i64,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Time) -> i32;
    }
    const THREAD: i32 = 3;
    let mut time = Time {
        seconds: 0,
        nanoseconds: 0,
    };
    // SAFETY: the C library's function on 64-bit Linux, which fills in what it is given.
    let failed = unsafe { clock_gettime(THREAD, &raw mut time) };
    (failed == 0).then_some(time.seconds as f64 + time.nanoseconds as f64 * 1e-9)
}

#[cfg(not(target_os = "linux"))]
fn thread_seconds() -> Option<f64> {
    None
}

/// Calls `work` on all threads at once, and adds up what each says that it did in a second.
fn on_all(work: impl Fn(usize) -> f64 + Sync) -> f64 {
    let sum = Mutex::new(0.0);
    kvlab_cpu::run(&|thread| {
        let rate = work(thread);
        *sum.lock().unwrap() += rate;
    });
    sum.into_inner().unwrap()
}

/// Operations a second of multiply-adds in f32 that wait for nothing.
pub fn f32_flops(clock: Clock) -> f64 {
    const TURNS: usize = 20_000;
    on_all(|_| {
        let start = clock.now();
        let lanes = multiply_add(TURNS);
        (TURNS * CHAINS * lanes * 2) as f64 / (clock.now() - start)
    })
}

/// Sums that do not wait for each other.
const CHAINS: usize = 24;

/// Multiplies and adds `turns` times in each chain; the numbers of a register.
#[allow(unsafe_code)]
fn multiply_add(turns: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the machine has AVX-512.
        unsafe { avx512(turns) };
        return 16;
    }
    let mut sums = [[0.0_f32; 8]; CHAINS];
    let (w, x) = black_box(([1.0_f32; 8], [0.5_f32; 8]));
    for _ in 0..turns {
        for sum in &mut sums {
            for ((sum, w), x) in sum.iter_mut().zip(&w).zip(&x) {
                *sum += w * x;
            }
        }
    }
    black_box(sums);
    8
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512(turns: usize) {
    use std::arch::x86_64::{_mm512_fmadd_ps, _mm512_set1_ps};
    let mut sums = [_mm512_set1_ps(0.0); CHAINS];
    let (w, x) = black_box((_mm512_set1_ps(1.0), _mm512_set1_ps(0.5)));
    for _ in 0..turns {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(w, x, *sum);
        }
    }
    black_box(sums);
}

/// More memory than the caches hold.
pub struct Memory(Vec<[u64; 8]>);

impl Memory {
    pub fn new(bytes: usize) -> Self {
        Self((0..bytes as u64 / 64).map(|i| [i; 8]).collect())
    }

    /// Bytes a second that all threads read, one after the other in a part of their own.
    pub fn read(&self, clock: Clock) -> f64 {
        let part = self.0.len() / kvlab_cpu::threads();
        on_all(|thread| {
            let lines = &self.0[thread * part..][..part];
            let start = clock.now();
            let mut sum = [[0_u64; 8]; 4];
            for four in lines.as_chunks::<4>().0 {
                for (sum, line) in sum.iter_mut().zip(four) {
                    for (sum, number) in sum.iter_mut().zip(line) {
                        *sum = sum.wrapping_add(*number);
                    }
                }
            }
            black_box(sum);
            size_of_val(lines) as f64 / (clock.now() - start)
        })
    }
}
