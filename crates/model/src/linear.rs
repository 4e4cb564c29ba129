//! A projection that is ready to run: its weight as a tensor, or packed.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use kvlab_core::TokenId;
use kvlab_linear::Packed;
use std::sync::Arc;

/// A weight `[out, in]`.
///
/// As a tensor it is stored as in a file, and multiplied from the left. Times in ms for 2048 x 2048 on flex (two
/// busy cores, so only the ratios count): `x` times a stored `[in, out]` / `x` times the view of an `[out, in]` / this.
///
/// | tokens | f32 | f16 | bf16 |
/// |---|---|---|---|
/// | 1 | 4.0 / 3.1 / 3.0 | 9.4 / 5.6 / 5.5 | 3.0 / 33 / 6.3 |
/// | 8 | 6.5 / 20 / 5.6 | 9.6 / 23 / 12 | 7.8 / 42 / 9.4 |
/// | 64 | 27 / 39 / 21 | 24 / 39 / 29 | 35 / 58 / 33 |
///
/// Nothing is transposed at loading, and a tied head shares the embedding's memory.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each weight")]
pub(crate) enum Weight {
    /// On any device.
    Tensor(Tensor<2>),
    /// On the processor, in the format of the file; takes f32 and gives f32.
    Packed(Arc<Packed>),
}

/// `y = W x + b`.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    weight: Weight,
    /// `[1, out]`
    bias: Option<Tensor<2>>,
}

impl Linear {
    pub(crate) fn new(weight: Weight, bias: Option<Tensor<2>>) -> Self {
        Self { weight, bias }
    }

    /// Weight and bias, if the weight is packed: both are on the processor then.
    pub(crate) fn packed(&self) -> Option<(&Packed, Option<&Tensor<2>>)> {
        match &self.weight {
            Weight::Packed(packed) => Some((packed, self.bias.as_ref())),
            Weight::Tensor(_) => None,
        }
    }

    /// `[tokens, in]` to `[tokens, out]`.
    pub(crate) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let [y] = Self::together([self], x);
        y
    }

    /// Several projections of the same input. Packed ones read it once.
    pub(crate) fn together<const N: usize>(linears: [&Self; N], x: Tensor<2>) -> [Tensor<2>; N] {
        let packed = linears.map(|linear| match &linear.weight {
            Weight::Packed(packed) => Some(packed.as_ref()),
            Weight::Tensor(_) => None,
        });
        let all: Vec<&Packed> = packed.iter().flatten().copied().collect();
        let products = if all.len() == N {
            multiply(&all, x)
        } else {
            let one = |linear: &Self| match &linear.weight {
                Weight::Tensor(weight) => vec![times(weight, x.clone())],
                Weight::Packed(packed) => multiply(&[packed], x.clone()),
            };
            linears.into_iter().flat_map(one).collect()
        };
        let mut products = products.into_iter().zip(linears).map(|(y, linear)| match &linear.bias {
            Some(bias) => y + bias.clone(),
            None => y,
        });
        // There is a product for each of them.
        std::array::from_fn(|_| products.next().unwrap_or_else(|| unreachable!()))
    }

    /// Splits an output into heads: `[tokens, heads, out / heads]`.
    pub(crate) fn split(y: Tensor<2>, heads: usize) -> Tensor<3> {
        let [tokens, out] = y.dims();
        y.reshape([tokens, heads, out / heads])
    }

    /// `[tokens, in]` to `[tokens, heads, out / heads]`.
    pub(crate) fn heads(&self, x: Tensor<2>, heads: usize) -> Tensor<3> {
        Self::split(self.forward(x), heads)
    }
}

impl Weight {
    /// Some rows of it, `[tokens, in]` in f32: the embeddings of tokens that it has.
    pub(crate) fn select(&self, tokens: &[TokenId], device: &Device) -> Tensor<2> {
        let packed = match self {
            Self::Packed(packed) => packed,
            Self::Tensor(tensor) => {
                let tokens: Vec<i64> = tokens.iter().map(|&token| i64::from(token)).collect();
                let count = tokens.len();
                let tokens = Tensor::<1, Int>::from_data(TensorData::new(tokens, [count]), device);
                return tensor.clone().select(0, tokens).cast(DType::F32);
            }
        };
        let mut rows = vec![0.0; tokens.len() * packed.cols()];
        for (row, &token) in rows.chunks_exact_mut(packed.cols()).zip(tokens) {
            // The decoder has checked the tokens, and the row is as long as it must be.
            let read = packed.row(token as usize, row);
            debug_assert_eq!(read, Ok(()));
        }
        Tensor::from_data(TensorData::new(rows, [tokens.len(), packed.cols()]), device)
    }
}

/// A product with a weight on the device.
fn times(weight: &Tensor<2>, x: Tensor<2>) -> Tensor<2> {
    let (tokens, out) = (x.dims()[0], weight.dims()[0]);
    let y = weight.clone().matmul(x.transpose());
    // One token is contiguous as it is.
    if tokens == 1 {
        y.reshape([1, out])
    } else {
        y.transpose()
    }
}

/// Products with packed weights, which are on the processor, as `x` is.
fn multiply(weights: &[&Packed], x: Tensor<2>) -> Vec<Tensor<2>> {
    let (tokens, device) = (x.dims()[0], x.device());
    let x = x.into_data();
    let x: &[f32] = x.as_slice().unwrap_or_default();
    let mut products: Vec<Vec<f32>> = weights.iter().map(|w| vec![0.0; tokens * w.rows()]).collect();
    let mut outputs: Vec<&mut [f32]> = products.iter_mut().map(Vec::as_mut_slice).collect();
    // The shapes of a decoder were checked when it was built, and activations beside packed weights are f32.
    let done = kvlab_linear::apply(weights, x, &mut outputs);
    debug_assert_eq!(done, Ok(()));
    let tensors = products.into_iter().zip(weights);
    tensors
        .map(|(y, w)| Tensor::from_data(TensorData::new(y, [tokens, w.rows()]), &device))
        .collect()
}
