//! Named attention problems, for tests (small) and benches (as real models have them).

use kvlab_core::{AttentionShape, LatentShape, Visibility};
use std::num::NonZeroUsize;

/// One attention problem: a chunk behind rows that are stored.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name in tests and benches.
    pub name: &'static str,
    /// The layer.
    pub shape: AttentionShape,
    /// Tokens that are in the cache.
    pub depth: usize,
    /// Tokens of the chunk.
    pub chunk: usize,
}

fn heads(query_heads: usize, kv_heads: usize, dim: usize) -> AttentionShape {
    AttentionShape {
        hidden: query_heads * dim,
        query_heads,
        kv_heads,
        key: dim,
        value: dim,
        rotary: dim,
        latent: None,
        visibility: Visibility::Causal,
    }
}

fn latent(query_heads: usize, rank: usize, rope: usize) -> AttentionShape {
    AttentionShape {
        latent: Some(LatentShape { rank, rope }),
        ..heads(query_heads, query_heads, rope)
    }
}

fn windowed(window: usize, shape: AttentionShape) -> AttentionShape {
    AttentionShape {
        visibility: NonZeroUsize::new(window).map_or(Visibility::Causal, Visibility::Window),
        ..shape
    }
}

/// Problems of real models: decode at depths, prefill of a chunk.
pub fn real() -> Vec<Case> {
    let smollm2 = || heads(9, 3, 64);
    let llama_1b = || heads(32, 4, 64);
    let deepseek_lite = || latent(16, 512, 64);
    let case = |name, shape, depth, chunk| Case {
        name,
        shape,
        depth,
        chunk,
    };
    vec![
        case("smollm2 decode @ 512", smollm2(), 512, 1),
        case("smollm2 decode @ 2048", smollm2(), 2048, 1),
        case("smollm2 prefill 256 @ 0", smollm2(), 0, 256),
        case("smollm2 prefill 256 @ 1024", smollm2(), 1024, 256),
        case("smollm2 window 256 decode @ 2048", windowed(256, smollm2()), 2048, 1),
        case("1.1B decode @ 2048", llama_1b(), 2048, 1),
        case("deepseek-lite decode @ 512", deepseek_lite(), 512, 1),
    ]
}

/// The same geometries cut down, with lengths on both sides of what kernels cut at.
pub fn small() -> Vec<Case> {
    let case = |name, shape, depth, chunk| Case {
        name,
        shape,
        depth,
        chunk,
    };
    vec![
        case("nothing stored", heads(4, 2, 8), 0, 1),
        case("one of each", heads(4, 2, 8), 1, 1),
        case("odd head sizes", heads(6, 3, 10), 17, 3),
        case("a block exactly", heads(2, 1, 4), 1024, 1),
        case("a block and one", heads(2, 1, 4), 1025, 2),
        case("two blocks and a chunk", heads(2, 2, 4), 2048, 5),
        case(
            "a window in the middle of a block",
            windowed(700, heads(2, 1, 4)),
            1500,
            9,
        ),
        case("one head for all", heads(8, 1, 16), 40, 4),
        case("a latent", latent(4, 12, 4), 33, 3),
    ]
}
