//! The two traits that every KV cache of kvlab implements, and the plain data around them.
//!
//! # Why this shape
//! Most cache interfaces hand the stored keys and values back to the model. Then quantised storage must
//! be unpacked in full or grows a second attention path, paging goes round the interface, and latent
//! attention (MLA) ends up storing expanded keys. Here the model gives its query and its new rows to the
//! cache, and gets the attention *output* back: what is stored, and how it is read, is the cache's own
//! business. That is [`KvCache`] and [`Step`].
//!
//! A model is written against `&mut dyn Step` and knows no cache; a cache is written against [`Rows`] and
//! [`Query`] and knows no model. [`CacheSpec`] says what a cache holds per layer, and predicts its bytes
//! without allocating any.
//!
//! # What was turned down
//! * *Returning `(K, V)`*: see above.
//! * *Backend generics* (`KvCache<B>`): Burn 0.22 tensors carry their device at run time, so trait objects
//!   cost one virtual call a layer and nothing else.
//! * *Cache methods for rollback in pieces* (`pop`, `evict`, ...): one transaction, [`KvCache::begin`] to
//!   [`Step::commit`], covers decoding, chunked prefill, speculative acceptance and failure.
//!
//! # What it does not do
//! No storage, no kernels, no configuration: those are `kvlab-store`, `kvlab-kernels`, `kvlab-config`.
//!
//! # The contract
//! Every cache must keep it; `kvlab-testkit` has the laws.
//! 1. Only `begin` and `fork` can run out of room; if they fail, nothing changed, and the error carries numbers.
//! 2. Dropping a step without `commit` restores the state before `begin`.
//! 3. `commit(Accept::Prefix(n))` keeps `n` tokens of each chunk as if the others had never been seen.
//! 4. Nothing is evicted before `commit`: every query of a chunk sees all that it should, however long the chunk.
//! 5. Visibility compares stored positions with query positions, never slot numbers.
//! 6. No view of the storage escapes. An append writes in place.
//! 7. What a cache cannot do is said in [`Capabilities`] and refused with the reason.
//! 8. [`Usage`] is the bytes really allocated, and what [`CacheSpec`] predicts equals it to the byte.

mod attend;
mod bytes;
mod cache;
mod device;
mod error;
mod ids;
mod saved;
mod shape;
mod spec;
mod visibility;
mod weights;

pub use attend::{Attended, EMPTY_LSE, Query, Rows, Span};
pub use bytes::Bytes;
pub use cache::{Accept, Capabilities, Chunk, Inspected, KvCache, Opened, Step, StepReport, Support, Truncate, Usage};
pub use device::is_processor;
pub use error::CacheError;
pub use ids::{LayerId, SeqId, TokenId};
pub use saved::{Saved, SavedLayer, SavedPlane};
pub use shape::{AttentionShape, LatentShape};
pub use spec::{CacheSpec, Exactness, Format, LayerSpec, RowSpec, Seal, Value};
pub use visibility::{Retention, Visibility};
pub use weights::{Adaptation, AttentionWeights, HeadWeights, LatentWeights, Matrix, WeightChange};
