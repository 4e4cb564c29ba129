//! A softmax that goes on from tile to tile (online softmax; Milakov and Gimelshein 2018), with powers of two.

#![allow(unsafe_code)] // Vectors of scores through pointers; what each must have room for is said beside it.

use super::inner::Queries;
use super::simd::{Op, Simd, exp2, tanh};
use super::tile::ROWS;

/// One query's softmax so far: its largest score and the sum of the weights, as powers of two of the difference to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Softmax {
    pub max: f32,
    pub sum: f32,
}

impl Softmax {
    /// Over nothing.
    pub const EMPTY: Self = Self {
        max: f32::NEG_INFINITY,
        sum: 0.0,
    };

    /// Both together, and by what the sums of rows of each have to be multiplied.
    pub fn merge(self, other: Self) -> (Self, [f32; 2]) {
        let max = self.max.max(other.max);
        let share = |part: Self| if part.max == max { 1.0 } else { (part.max - max).exp2() };
        let (a, b) = (share(self), share(other));
        let sum = self.sum * a + other.sum * b;
        (Self { max, sum }, [a, b])
    }
}

/// Scores become `cap * tanh(score)`, if they have been divided by the cap, times log2(e). There are `rows` of them,
/// rounded up to whole vectors.
pub struct Cap {
    pub scores: *mut f32,
    pub rows: usize,
    pub cap: f32,
}

impl Op for Cap {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: there are as many scores.
        unsafe {
            let cap = S::splat(self.cap * std::f32::consts::LOG2_E);
            for i in (0..self.rows).step_by(S::LANES) {
                let at = self.scores.add(i);
                S::store(at, S::mul(tanh::<S>(S::load(at)), cap));
            }
        }
    }
}

/// Turns the scores of a tile into weights, and brings the queries' sums of rows to the new maxima. Each query has `rows`
/// scores, and minus infinity up to a whole vector; it is the score of a row that is not seen, too.
pub struct Weigh<'a> {
    /// `[queries][ROWS]`
    pub scores: *mut f32,
    pub rows: usize,
    pub states: &'a mut [Softmax],
    pub sums: Queries,
    /// Vectors of the sums.
    pub vectors: usize,
}

impl Op for Weigh<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self {
            scores,
            rows,
            states,
            sums,
            vectors,
        } = self;
        debug_assert!(rows <= ROWS);
        // SAFETY: there are as many scores and sums.
        unsafe {
            for (i, state) in states.iter_mut().enumerate() {
                let (scores, sums) = (scores.add(i * ROWS), sums.first.add(i * sums.stride));
                // Nearly all tiles are full: a loop whose length is known is no loop.
                match rows {
                    ROWS => one::<S>(scores, ROWS, state, sums, vectors),
                    _ => one::<S>(scores, rows, state, sums, vectors),
                }
            }
        }
    }
}

/// One query of [`Weigh`].
#[inline(always)]
unsafe fn one<S: Simd>(scores: *mut f32, rows: usize, state: &mut Softmax, sums: *mut f32, vectors: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut largest = S::load(scores);
        for i in (S::LANES..rows).step_by(S::LANES) {
            largest = S::max(largest, S::load(scores.add(i)));
        }
        let max = state.max.max(S::largest(largest));
        if max > state.max && state.max > f32::NEG_INFINITY {
            let share = (state.max - max).exp2();
            state.sum *= share;
            let share = S::splat(share);
            for i in 0..vectors {
                let at = sums.add(i * S::LANES);
                S::store(at, S::mul(S::load(at), share));
            }
        }
        state.max = max;
        // Where no row was seen so far, every weight is 0, or not a number if a row is none.
        let from = S::splat(if max == f32::NEG_INFINITY { 0.0 } else { max });
        let mut sum = S::splat(0.0);
        for i in (0..rows).step_by(S::LANES) {
            let at = scores.add(i);
            let weight = exp2::<S>(S::sub(S::load(at), from));
            S::store(at, weight);
            sum = S::add(sum, weight);
        }
        state.sum += S::sum(sum);
    }
}
