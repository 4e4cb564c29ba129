//! Codecs: the number format of the stored keys or values. One codec is one file and one line in [`ALL`].

mod float;

use crate::Plane;
use burn::tensor::{Device, Tensor};
use kvlab_core::Format;

/// A number format for stored rows.
pub trait Codec: Send + Sync {
    /// Its name in a config.
    fn name(&self) -> &'static str;

    /// What it costs.
    fn format(&self) -> Format;

    /// Largest relative error of a stored number, for numbers in the format's normal range; 0 if exact.
    fn relative_error(&self) -> f32;

    /// Whether it can hold vectors of `dim` values on `device`.
    ///
    /// # Errors
    /// The reason why not.
    fn check(&self, dim: usize, device: &Device) -> Result<(), String>;

    /// Planes for `[slots, heads, dim]` numbers.
    fn allocate(&self, shape: [usize; 3], device: &Device) -> Vec<Plane>;

    /// Numbers `[rows, heads, dim]` to planes of the same kind and order as [`allocate`](Self::allocate)'s.
    fn encode(&self, rows: Tensor<3>) -> Vec<Plane>;

    /// Planes of some rows back to f32 numbers, `[rows, heads, dim]`.
    fn decode(&self, planes: &[Plane]) -> Tensor<3>;
}

/// Every codec, by name.
pub const ALL: &[&dyn Codec] = &[&float::F32, &float::F16, &float::BF16];

/// The codec of that name.
pub fn by_name(name: &str) -> Option<&'static dyn Codec> {
    ALL.iter().copied().find(|codec| codec.name() == name)
}

/// Full precision: the codec of rows that are not stored.
pub const EXACT: &dyn Codec = &float::F32;
