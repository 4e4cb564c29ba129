//! Work for all threads at once, at the price of about a microsecond while it goes on.
//!
//! Workers look for work for a short while, then between the turns of others (rayon's threads, on which Burn's own operations
//! run, get the cores), and then sleep. A worker that has not begun when the caller is done is not waited for: the caller does its share.
//! So a sleeper, or a core that something else has taken, costs its work and not its wake-up.

#![allow(unsafe_code)] // One pointer to a closure of the caller, which waits until nobody uses it.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long a worker looks for work without a break: longer than the gap between two products of a layer.
const PATIENCE: Duration = Duration::from_micros(50);

/// How long it goes on looking, and lets others have the core if they want it: longer than the gap between two tokens.
/// To be woken takes longer than many a product.
const LONG_PATIENCE: Duration = Duration::from_millis(1);

type Work<'a> = &'a (dyn Fn(usize) + Sync);

/// States of a [`Desk`].
const FREE: u8 = 0;
const OFFERED: u8 = 1;
const TAKEN: u8 = 2;

/// Where a worker finds its work.
#[repr(align(128))]
struct Desk {
    state: AtomicU8,
    asleep: AtomicBool,
    /// Written by the caller while the state is [`FREE`], read by the worker while it is [`TAKEN`].
    work: UnsafeCell<Option<Work<'static>>>,
    failure: UnsafeCell<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `state` says who may touch the cells: the caller while it is FREE or OFFERED, the worker while it is TAKEN.
// What a cell holds is itself `Send`.
unsafe impl Sync for Desk {}
// SAFETY: as above.
unsafe impl Send for Desk {}

struct Worker {
    desk: Arc<Desk>,
    thread: Thread,
}

static WORKERS: Mutex<Vec<Worker>> = Mutex::new(Vec::new());
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread is in the middle of a [`run`].
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// How many threads [`run`] uses: as many as were [set](set_threads), or as rayon has.
pub fn threads() -> usize {
    match THREADS.load(Ordering::Relaxed) {
        0 => rayon::current_num_threads(),
        threads => threads,
    }
}

/// Sets how many threads [`run`] uses, the caller's included.
pub fn set_threads(threads: usize) {
    THREADS.store(threads.max(1), Ordering::Relaxed);
}

/// Calls `work(thread)` once for each thread `0..threads()`, and returns when all are done. They run at the same time
/// where cores are free; one after the other where they are not, or where `work` itself calls this.
pub fn run(work: &(dyn Fn(usize) + Sync)) {
    let threads = threads();
    if threads == 1 || BUSY.get() {
        return (0..threads).for_each(work);
    }
    let mut workers = match WORKERS.try_lock() {
        Ok(workers) => workers,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        // Another thread has the workers: they would not come sooner for waiting.
        Err(TryLockError::WouldBlock) => return (0..threads).for_each(work),
    };
    while workers.len() < threads - 1 {
        match hire(workers.len()) {
            Some(worker) => workers.push(worker),
            // No more threads to be had.
            None => break,
        }
    }
    BUSY.set(true);
    let hired = &workers[..workers.len().min(threads - 1)];
    let failure = share(hired, threads, work);
    BUSY.set(false);
    drop(workers);
    if let Some(failure) = failure {
        resume_unwind(failure);
    }
}

/// Calls `work` with every part, on all threads: each takes the next part when it is done with one. A single part is the
/// caller's.
pub fn for_each<T>(parts: impl Iterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    if parts.size_hint().1.is_some_and(|most| most <= 1) {
        return parts.for_each(work);
    }
    let parts = Mutex::new(parts);
    run(&|_| {
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some(part) = next() {
            work(part);
        }
    });
}

/// Does the work with these workers; what the first panic said, if there was one.
fn share(workers: &[Worker], threads: usize, work: Work<'_>) -> Option<Box<dyn Any + Send>> {
    // SAFETY: the lifetime is extended for the workers' desks. No worker uses it after this function: each desk
    // is FREE again, or taken back, before it returns.
    let shared: Work<'static> = unsafe { std::mem::transmute::<Work<'_>, Work<'static>>(work) };
    for worker in workers {
        // SAFETY: the desk is FREE, as `collect` left it, and the workers are locked: this thread alone uses it.
        unsafe { *worker.desk.work.get() = Some(shared) };
        worker.desk.state.store(OFFERED, Ordering::SeqCst);
        if worker.desk.asleep.load(Ordering::SeqCst) {
            worker.thread.unpark();
        }
    }
    let mut failure = attempt(work, 0);
    for thread in workers.len() + 1..threads {
        failure = failure.or(attempt(work, thread));
    }
    for (i, worker) in workers.iter().enumerate() {
        failure = failure.or(collect(&worker.desk, work, i + 1));
    }
    failure
}

fn attempt(work: Work<'_>, thread: usize) -> Option<Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(|| work(thread))).err()
}

/// Waits for a worker that has begun; does the work of one that has not.
fn collect(desk: &Desk, work: Work<'_>, thread: usize) -> Option<Box<dyn Any + Send>> {
    let taken_back = desk
        .state
        .compare_exchange(OFFERED, FREE, Ordering::AcqRel, Ordering::Acquire);
    if taken_back.is_ok() {
        return attempt(work, thread);
    }
    let mut turns = 0_u32;
    while desk.state.load(Ordering::Acquire) != FREE {
        turns += 1;
        match turns < 10_000 {
            true => std::hint::spin_loop(),
            false => std::thread::yield_now(),
        }
    }
    // SAFETY: the desk is FREE and the workers are locked: this thread alone uses it.
    unsafe { (*desk.failure.get()).take() }
}

fn hire(index: usize) -> Option<Worker> {
    let desk = Arc::new(Desk {
        state: AtomicU8::new(FREE),
        asleep: AtomicBool::new(false),
        work: UnsafeCell::new(None),
        failure: UnsafeCell::new(None),
    });
    let own = Arc::clone(&desk);
    let thread = std::thread::Builder::new().name(format!("kvlab-cpu-{}", index + 1));
    let handle = thread.spawn(move || attend_desk(&own, index + 1)).ok()?;
    Some(Worker {
        desk,
        thread: handle.thread().clone(),
    })
}

/// The life of a worker; it ends with the process.
fn attend_desk(desk: &Desk, thread: usize) {
    BUSY.set(true);
    let mut since = Instant::now();
    let mut turns = 0_u32;
    loop {
        let offer = desk.state.load(Ordering::Acquire) == OFFERED
            && desk
                .state
                .compare_exchange(OFFERED, TAKEN, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        if offer {
            // SAFETY: the state is TAKEN, so the caller waits, and does not touch the desk.
            unsafe {
                let work = (*desk.work.get()).take();
                *desk.failure.get() = work.and_then(|work| attempt(work, thread));
            }
            desk.state.store(FREE, Ordering::Release);
            since = Instant::now();
            turns = 0;
            continue;
        }
        turns += 1;
        std::hint::spin_loop();
        if !turns.is_multiple_of(32) {
            continue;
        }
        let waited = since.elapsed();
        if waited > PATIENCE {
            std::thread::yield_now();
        }
        if waited > LONG_PATIENCE {
            desk.asleep.store(true, Ordering::SeqCst);
            // The caller offers first and then looks who sleeps; so one of both sees the other.
            while desk.state.load(Ordering::SeqCst) != OFFERED {
                std::thread::park();
            }
            desk.asleep.store(false, Ordering::SeqCst);
            since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;
    use std::sync::atomic::AtomicU64;

    fn calls(threads: usize) -> Vec<u64> {
        let counts: Vec<AtomicU64> = (0..threads + 1).map(|_| AtomicU64::new(0)).collect();
        run(&|thread| {
            counts[thread].fetch_add(1, Ordering::Relaxed);
        });
        counts.into_iter().map(AtomicU64::into_inner).collect()
    }

    /// One test, because the number of threads is one for the process.
    #[test]
    fn everyone_works_once() {
        for threads in [1, 2, 5, 3] {
            set_threads(threads);
            let mut expected = vec![1; threads];
            expected.push(0);
            for round in 0..2000 {
                assert_eq!(calls(threads), expected, "round {round}");
                if round % 500 == 0 {
                    // Long enough for the workers to fall asleep.
                    std::thread::sleep(10 * LONG_PATIENCE);
                }
            }
            from_inside_and_from_many_sides(threads);
            a_panic_comes_through(threads);
        }
    }

    fn from_inside_and_from_many_sides(threads: usize) {
        let total = AtomicU64::new(0);
        let count = || {
            run(&|_| run(&|_| _ = total.fetch_add(1, Ordering::Relaxed)));
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(count);
            }
        });
        rayon::join(count, count);
        assert_eq!(total.into_inner(), 6 * (threads * threads) as u64);
    }

    fn a_panic_comes_through(threads: usize) {
        for bad in 0..threads {
            let failed = catch_unwind(|| {
                run(&|thread| {
                    if thread == bad {
                        panic!("thread {bad}");
                    }
                });
            });
            let said = failed.unwrap_err();
            assert_eq!(*said.downcast::<String>().unwrap(), format!("thread {bad}"));
            assert_eq!(calls(threads)[..threads], vec![1; threads]);
        }
    }
}
