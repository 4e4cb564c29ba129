//! Codecs: the number format of the stored keys or values. A kind of codec is one file and one line in [`ALL`].

mod blocks;
mod channels;
mod float;
mod fp8;
pub mod hadamard;
mod host;
mod int;
mod packing;
mod scale;
mod settings;

use crate::{Options, Plane};
use burn::tensor::{Device, Tensor};
use kvlab_core::Format;
pub use packing::{Code, Packing, Scales};
pub use settings::Settings;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A number format for stored rows.
///
/// What it does to a vector depends on that vector alone, or on those of its [`block`](Self::block) of rows, which
/// begins at a fixed position. So the same tokens give the same codes in whatever chunks they come.
pub trait Codec: Send + Sync {
    /// Its name in a config, with the options that differ from the default: `int4(group=16)`. Codecs of one name
    /// store the same bits.
    fn name(&self) -> &'static str;

    /// Rows that are packed together, because they share scales. Only whole blocks are encoded and decoded.
    fn block(&self) -> usize {
        1
    }

    /// What vectors of `dim` values cost.
    fn format(&self, dim: usize) -> Format;

    /// Largest absolute error of a number in a vector of `dim` values, none of which is larger than `max_abs`; 0 if
    /// exact, infinite where the format may saturate.
    fn max_error(&self, dim: usize, max_abs: f32) -> f32;

    /// Whether it can hold vectors on `device`. `parts` are the values of one vector by what they mean, which must
    /// not share a scale: one part, or the latent and the rotary part of an MLA row
    /// ([`RowSpec::key_parts`](kvlab_core::RowSpec::key_parts)).
    ///
    /// # Errors
    /// The reason why not.
    fn check(&self, parts: &[usize], device: &Device) -> Result<(), String>;

    /// Planes for `[slots, heads, dim]` numbers.
    fn allocate(&self, shape: [usize; 3], device: &Device) -> Vec<Plane>;

    /// Numbers `[rows, heads, dim]` to planes of the same kind and order as [`allocate`](Self::allocate)'s.
    fn encode(&self, rows: Tensor<3>) -> Vec<Plane>;

    /// Planes of some rows back to f32 numbers, `[rows, heads, dim]`.
    fn decode(&self, planes: &[Plane]) -> Tensor<3>;

    /// How the planes are to be read, for kernels that do it themselves; `None` where only
    /// [`decode`](Self::decode) can.
    fn packing(&self) -> Option<Packing> {
        None
    }
}

/// A kind of codec: it becomes one with its options.
pub struct Family {
    /// Its name in a config.
    pub name: &'static str,
    /// The options that it takes.
    pub options: &'static [&'static str],
    /// Makes a codec.
    make: fn(&mut Settings<'_>) -> Result<Box<dyn Codec>, String>,
}

/// Every kind of codec.
pub const ALL: &[Family] = &[
    float::F32,
    float::F16,
    float::BF16,
    fp8::E4M3,
    fp8::E5M2,
    int::INT8,
    int::INT4,
    int::INT2,
];

/// Full precision: the codec of rows that are not stored.
pub const EXACT: &dyn Codec = &float::EXACT;

/// The codec of rows that are not packed yet: f16, or f32 on a device without it.
pub fn open(device: &Device) -> &'static dyn Codec {
    match float::HALF.check(&[], device) {
        Ok(()) => &float::HALF,
        Err(_) => EXACT,
    }
}

/// The codec of that name with those options. It is made once, and lives as long as the process.
///
/// # Errors
/// What is wrong with the name or an option.
pub fn make(name: &str, options: &Options) -> Result<&'static dyn Codec, String> {
    static MADE: Mutex<BTreeMap<String, &'static dyn Codec>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let key = format!("{name} {:?}", options.0);
    if let Some(codec) = made.get(&key) {
        return Ok(*codec);
    }
    let Some(family) = ALL.iter().find(|family| family.name == name) else {
        let known: Vec<_> = ALL.iter().map(|family| family.name).collect();
        return Err(format!(
            "there is no cache format {name:?}; known are {}",
            known.join(", ")
        ));
    };
    let mut settings = Settings::new(family.name, family.options, options)?;
    let codec: &'static dyn Codec = Box::leak((family.make)(&mut settings)?);
    made.insert(key, codec);
    Ok(codec)
}

#[cfg(test)]
mod tests;
