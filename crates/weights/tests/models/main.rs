//! One binary: models on disk, whole and broken, opened by the public API.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod architectures;
mod folder;
mod gguf_refused;
mod goldens;
mod made;
mod smollm2;
mod there_and_back;
