//! The state of the machine in a tenth of a second: how fast its threads read memory, and what it costs them to start
//! and finish an empty job together. A line of JSON. `machine.py` compiles and runs it.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::{Duration, Instant};

/// Beyond any L3 of the machines that this runs on.
const BYTES: usize = 256 << 20;
const PASSES: u64 = 5;
/// Empty jobs are timed in groups, and the median group counts: a thread that lost its core spoils one group.
const GROUPS: usize = 15;
const JOBS: u32 = 500;
const LONGEST: Duration = Duration::from_millis(200);

/// Plain enough that the compiler makes wide loads of it: it must wait for memory and for nothing else.
fn fold(words: &[u64]) -> u64 {
    words.iter().fold(0, |all, word| all ^ word)
}

/// Runs a job on `threads` threads, all spinning in between. Job `n` is the `n`th call, from 1.
fn together(threads: usize, job: impl Fn(usize) + Sync, calls: impl FnOnce(&dyn Fn())) {
    const END: u64 = u64::MAX;
    let (begun, done) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 1..threads {
            let (begun, done, job) = (&begun, &done, &job);
            scope.spawn(move || {
                let mut seen = 0;
                loop {
                    let now = begun.load(Acquire);
                    if now == END {
                        break;
                    }
                    if now == seen {
                        spin_loop();
                        continue;
                    }
                    seen = now;
                    job(thread);
                    done.fetch_add(1, Release);
                }
            });
        }
        calls(&|| {
            let all = done.load(Acquire) + threads as u64 - 1;
            begun.fetch_add(1, Release);
            job(0);
            while done.load(Acquire) < all {
                spin_loop();
            }
        });
        begun.store(END, Release);
    });
}

/// GB/s of the fastest of some passes over the whole of it.
fn read(words: &[u64], threads: usize) -> f64 {
    let share = words.len() / threads;
    let mut best = f64::INFINITY;
    let job = |thread: usize| {
        black_box(fold(black_box(&words[thread * share..][..share])));
    };
    together(threads, job, |run| {
        for _ in 0..PASSES {
            let start = Instant::now();
            run();
            best = best.min(start.elapsed().as_secs_f64());
        }
    });
    (share * threads * 8) as f64 / best / 1e9
}

/// Microseconds to start an empty job on all threads and wait for it.
fn fork_join(threads: usize) -> f64 {
    let mut groups = Vec::new();
    together(threads, |_| (), |run| {
        let begin = Instant::now();
        while groups.len() < GROUPS && (groups.is_empty() || begin.elapsed() < LONGEST) {
            let start = Instant::now();
            (0..JOBS).for_each(|_| run());
            groups.push(start.elapsed().as_secs_f64() / f64::from(JOBS) * 1e6);
        }
    });
    groups.sort_by(f64::total_cmp);
    groups[groups.len() / 2]
}

fn main() {
    let threads = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1);
    // Written, so that every page is there.
    let words: Vec<u64> = (0..BYTES as u64 / 8).collect();
    println!(
        "{{\"threads\": {threads}, \"read_gbs_1\": {:.1}, \"read_gbs\": {:.1}, \"fork_join_us\": {:.3}}}",
        read(&words, 1),
        read(&words, threads),
        fork_join(threads)
    );
}
