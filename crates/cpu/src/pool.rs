//! Work for all threads at once.

/// How many threads [`run`] uses.
pub fn threads() -> usize {
    rayon::current_num_threads()
}

/// Calls `work(thread)` once for each thread `0..threads()`, at the same time, and returns when all are done.
pub fn run(work: &(dyn Fn(usize) + Sync)) {
    rayon::broadcast(|context| work(context.index()));
}
