//! Weights: parameters, and the bytes they take in each precision.

use crate::PlanError;
use kvlab_core::Bytes;
use kvlab_model::{DecoderSpec, FeedForwardPlan, Role};
use kvlab_weights::{Checkpoint, Dtype};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// A number format of weights, without scales: real formats of 8 bits or fewer take some per cent more
/// (Q8_0 of GGUF 8.5 bits, Q4_0 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits.
    Fp32,
    /// 16 bits, IEEE or bfloat.
    Fp16,
    /// 8 bits.
    Int8,
    /// 4 bits.
    Int4,
    /// 2 bits.
    Int2,
}

impl Precision {
    /// All, the widest first.
    pub const ALL: [Self; 5] = [Self::Fp32, Self::Fp16, Self::Int8, Self::Int4, Self::Int2];

    /// Bits of a parameter.
    pub fn bits(self) -> u64 {
        match self {
            Self::Fp32 => 32,
            Self::Fp16 => 16,
            Self::Int8 => 8,
            Self::Int4 => 4,
            Self::Int2 => 2,
        }
    }

    /// Bytes of so many parameters, rounded up.
    pub fn bytes(self, parameters: u64) -> Bytes {
        let bits = u128::from(parameters) * u128::from(self.bits());
        Bytes(u64::try_from(bits.div_ceil(8)).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fp32 => "FP32",
            Self::Fp16 => "FP16/BF16",
            Self::Int8 => "INT8",
            Self::Int4 => "INT4",
            Self::Int2 => "INT2",
        })
    }
}

impl FromStr for Precision {
    type Err = PlanError;

    /// Reads `fp32`, `fp16`, `bf16`, `int8`, `int4`, `int2`, and `f32`, `f16`.
    fn from_str(text: &str) -> Result<Self, PlanError> {
        Ok(match text.to_ascii_lowercase().as_str() {
            "fp32" | "f32" => Self::Fp32,
            "fp16" | "f16" | "bf16" => Self::Fp16,
            "int8" => Self::Int8,
            "int4" => Self::Int4,
            "int2" => Self::Int2,
            _ => {
                let what =
                    format!("there is no weight precision {text:?}; known are fp32, fp16, bf16, int8, int4 and int2");
                return Err(PlanError::Request(what));
            }
        })
    }
}

/// Weights as a header lists them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stored {
    /// Bytes of all tensors.
    pub bytes: Bytes,
    /// Numbers in all tensors.
    pub values: u64,
    /// Number formats with their share of the bytes, the largest first.
    #[serde(serialize_with = "crate::answer::by_name")]
    pub formats: Vec<(String, Bytes)>,
}

impl Stored {
    /// The tensors of a checkpoint; `None` where one has a format of unknown size.
    pub(crate) fn of(checkpoint: &Checkpoint) -> Option<Self> {
        let mut stored = Self {
            bytes: Bytes(0),
            values: 0,
            formats: Vec::new(),
        };
        for name in checkpoint.names() {
            let info = checkpoint.info(name)?;
            let values: usize = info.shape.iter().product();
            let bytes = Bytes(bytes(info.dtype, values)? as u64);
            stored.bytes = stored.bytes + bytes;
            stored.values += values as u64;
            match stored
                .formats
                .iter_mut()
                .find(|(format, _)| format == info.dtype.name())
            {
                Some((_, sum)) => *sum = *sum + bytes,
                None => stored.formats.push((info.dtype.name().to_owned(), bytes)),
            }
        }
        stored.formats.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        Some(stored)
    }
}

/// Formats that nothing here unpacks have a size too.
fn bytes(dtype: Dtype, values: usize) -> Option<usize> {
    dtype.bytes(values).or(match dtype.name() {
        "BOOL" | "U8" | "I8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => Some(values),
        "I16" | "U16" => values.checked_mul(2),
        "I32" | "U32" => values.checked_mul(4),
        "I64" => values.checked_mul(8),
        _ => None,
    })
}

/// How many parameters a model has, and how many one token is multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parameters {
    /// All; a tied head counts once.
    pub total: u64,
    /// Those that take part in one token: with experts, the chosen ones only.
    pub active: u64,
    /// Of the matrices that one token is multiplied with, without the head.
    pub multiplied: u64,
    /// Of the head, `vocab x hidden`: the token embedding where it is tied.
    pub head: u64,
    /// Of what is looked up, one row a token: embeddings that are not the head.
    pub looked_up: u64,
}

impl Parameters {
    /// Counts the tensors of a model; of experts, as many as are chosen for a token take part.
    pub fn of(model: &DecoderSpec) -> Self {
        let mut active = model.clone();
        // A router scores all experts, also those that are not chosen.
        let mut routers = 0;
        for layer in &mut active.layers {
            if let FeedForwardPlan::Experts(experts) = &mut layer.mlp {
                routers += (experts.count - experts.chosen) as u64 * model.hidden() as u64;
                experts.count = experts.chosen;
            }
        }
        let (mut multiplied, mut looked_up) = (routers, 0);
        for tensor in active.tensors() {
            match tensor.role {
                Role::Matrix { .. } => multiplied += tensor.values() as u64,
                Role::Embedding if !model.tied_head => looked_up += tensor.values() as u64,
                Role::Positions => looked_up += tensor.values() as u64,
                _ => {}
            }
        }
        let head = model.vocab() as u64 * model.hidden() as u64;
        Self {
            total: model.parameters(),
            active: active.parameters() + routers,
            // An untied head is one of the matrices.
            multiplied: if model.tied_head { multiplied } else { multiplied - head },
            head,
            looked_up,
        }
    }

    /// Parameters that a step over so many tokens reads: looked-up rows left out, and of the experts those that some token
    /// chooses, if each token chose evenly and on its own.
    pub fn read(&self, tokens: usize, chosen_of: Option<(usize, usize)>) -> f64 {
        let looked_up = self.looked_up as f64;
        let (active, total) = (self.active as f64 - looked_up, self.total as f64 - looked_up);
        let Some((chosen, count)) = chosen_of.filter(|(chosen, count)| chosen < count) else {
            return total;
        };
        let (chosen, count) = (chosen as f64, count as f64);
        let met = count * (1.0 - (1.0 - chosen / count).powf(tokens as f64));
        active + (total - active) * (met - chosen) / (count - chosen)
    }
}

/// Experts chosen for a token, and of how many, where the model has experts.
pub(crate) fn experts(model: &DecoderSpec) -> Option<(usize, usize)> {
    model.layers.iter().find_map(|layer| match layer.mlp {
        FeedForwardPlan::Experts(experts) => Some((experts.chosen, experts.count)),
        FeedForwardPlan::Dense(_) => None,
    })
}
