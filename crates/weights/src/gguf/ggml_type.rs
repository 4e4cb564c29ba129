//! The numbers by which GGUF names its tensor formats.

use crate::Dtype;

/// Number, format. The order is that of the messages.
const READABLE: [(u32, Dtype); 12] = [
    (28, Dtype::F64),
    (0, Dtype::F32),
    (1, Dtype::F16),
    (30, Dtype::BF16),
    (8, Dtype::Q8_0),
    (2, Dtype::Q4_0),
    (3, Dtype::Q4_1),
    (6, Dtype::Q5_0),
    (7, Dtype::Q5_1),
    (12, Dtype::Q4K),
    (13, Dtype::Q5K),
    (14, Dtype::Q6K),
];

/// Formats that are known by name only, so that the refusal can name them.
const NAMED: [(u32, &str); 19] = [
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (39, "MXFP4"),
];

/// The format of that number, or how to call it in a refusal.
pub(super) fn dtype(number: u32) -> Result<Dtype, String> {
    if let Some((_, dtype)) = READABLE.iter().find(|(n, _)| *n == number) {
        return Ok(*dtype);
    }
    let named = NAMED.iter().find(|(n, _)| *n == number);
    Err(named.map_or(format!("ggml type {number}"), |(_, name)| (*name).to_owned()))
}

/// The number of a format, `None` if GGUF has none for it.
pub(super) fn number(dtype: Dtype) -> Option<u32> {
    READABLE.iter().find(|(_, d)| *d == dtype).map(|(n, _)| *n)
}

/// Names of the formats that can be read.
pub(super) fn readable() -> Vec<&'static str> {
    READABLE.iter().map(|(_, dtype)| dtype.name()).collect()
}
