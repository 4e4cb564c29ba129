//! The hash by which a model is known: SHA-256 over what describes it, and samples of its data.

use sha2::{Digest, Sha256};

use crate::mapped::MappedFile;

/// How many places of a file's tensor data are sampled.
const SAMPLES: usize = 64;
/// Bytes of one sample.
const SAMPLE_BYTES: usize = 4096;

/// Covers `described_by`, and of each file its size, its header and [`SAMPLES`] samples of
/// [`SAMPLE_BYTES`], the first at the start of the data and the last at its end.
pub(crate) fn of(described_by: &[u8], files: &[MappedFile]) -> String {
    let mut hash = Sha256::new();
    hash.update((described_by.len() as u64).to_le_bytes());
    hash.update(described_by);
    for file in files {
        let bytes = file.bytes();
        hash.update((bytes.len() as u64).to_le_bytes());
        let (header, data) = bytes.split_at(file.data_start.min(bytes.len()));
        hash.update((header.len() as u64).to_le_bytes());
        hash.update(header);
        if data.len() <= SAMPLES * SAMPLE_BYTES {
            hash.update(data);
            continue;
        }
        let last = data.len() - SAMPLE_BYTES;
        for i in 0..SAMPLES {
            // In u128, so that the product is exact for a file of any size.
            let start = (last as u128 * i as u128 / (SAMPLES - 1) as u128) as usize;
            hash.update(&data[start..start + SAMPLE_BYTES]);
        }
    }
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}
