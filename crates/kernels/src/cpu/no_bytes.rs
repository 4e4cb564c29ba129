//! Processors without the byte products of `bytes.rs`.

#![allow(unsafe_code, clippy::missing_safety_doc)]

use super::inner::{Lines, Queries, Scaled};
use kvlab_store::codec::Packing;

pub const CHUNK: usize = 64;
pub const GROUP: usize = 32;
pub const CHUNK_ROOM: usize = 0;
pub const WEIGHTS_ROOM: usize = 0;
pub const FOURS_ROOM: usize = 0;

pub struct Chunk;
pub struct Weights;
pub struct Fours;

/// There is none.
#[derive(Clone, Copy)]
pub enum Kind {}

impl Kind {
    pub fn new(_: &Packing, _: usize, _: bool) -> Option<Self> {
        None
    }

    pub fn by_channel(self) -> bool {
        match self {}
    }
}

pub unsafe fn queries(kind: Kind, _: Queries, _: usize, _: Option<[*const f32; 2]>, _: *mut Chunk) {
    match kind {}
}

pub unsafe fn scores(kind: Kind, _: Lines<'_>, _: *const Chunk, _: usize, _: usize, _: *mut f32) {
    match kind {}
}

pub unsafe fn weights(kind: Kind, _: Scaled, _: usize, _: usize, _: *const f32, _: usize, _: *mut Weights) {
    match kind {}
}

pub unsafe fn values(kind: Kind, _: Lines<'_>, _: *const Weights, _: usize, _: usize, _: Queries, _: *mut Fours) {
    match kind {}
}
