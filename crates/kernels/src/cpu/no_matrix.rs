//! What `matrix` is where there are no tile registers: nothing asks for it.

/// See `matrix`.
pub const LEAST: usize = usize::MAX;

pub fn padded(queries: usize) -> usize {
    queries
}

pub fn width(dim: usize) -> usize {
    dim
}

pub fn rooms(_: usize, _: usize, _: usize) -> [usize; 4] {
    [0; 4]
}
