//! Latent attention on the device, from weights that had a latent or were given one.

use super::{Fit, HostQuery};
use crate::ModelError;
use crate::attention::latent::LatentSizes;
use crate::attention::{LatentAttention, QueryProjection};
use crate::host::HostLinear;
use crate::load::transposed;
use crate::norm::Norm;
use crate::place::Place;
use burn::tensor::{Int, Tensor, TensorData};
use kvlab_core::{LatentWeights, Matrix};

pub(super) fn attention(
    fit: &Fit,
    query: HostQuery,
    weights: LatentWeights,
    latent_norm: Option<Norm>,
    head_norms: Option<[Norm; 2]>,
    place: &Place,
) -> Result<LatentAttention, ModelError> {
    let sizes = LatentSizes {
        heads: fit.query_heads,
        rank: weights.down.rows,
        nope: fit.key - fit.rotary,
        rope: fit.rotary,
        rope_blocks: if fit.rotary == 0 { 0 } else { weights.rope_blocks },
        value: fit.value,
    };
    if head_norms.is_some() && sizes.nope > 0 {
        let reason = format!(
            "its key heads are normed over all {} values before {} of them turn, and a latent would split them; it can \
             be factorised only where all of them turn",
            fit.key, fit.rotary
        );
        return Err(fit.refuse(reason));
    }
    let linear = |weight: Matrix, bias| HostLinear::dense(weight, bias).place(place);
    let [query_norm, key_norm] = head_norms.map_or([None, None], |norms| norms.map(Some));
    let LatentSizes {
        heads,
        rank,
        nope,
        rope_blocks,
        value,
        ..
    } = sizes;
    let block = |head: usize| head * rope_blocks / heads;
    let uses = (0..heads).flat_map(|h| (0..rope_blocks).map(move |b| f32::from(u8::from(block(h) == b))));
    let uses_block = (rope_blocks > 1).then(|| place.tensor(uses.collect(), [1, heads, rope_blocks, 1]));
    let block_of_head: Vec<i32> = (0..heads).map(|head| block(head) as i32).collect();
    Ok(LatentAttention {
        sizes,
        query: projection(fit, query, place)?,
        query_norm,
        key_norm,
        down: linear(weights.down, None)?,
        latent_norm,
        rope: (rope_blocks > 0)
            .then(|| linear(weights.rope, weights.rope_bias))
            .transpose()?,
        up_key: (nope > 0).then(|| place.tensor(weights.up_key.data, [heads, nope, rank])),
        up_value: place.tensor(heads_transposed(&weights.up_value, heads), [heads, rank, value]),
        value_bias: weights.value_bias.map(|bias| place.tensor(bias, [1, heads, value])),
        block_of_head: Tensor::<1, Int>::from_data(TensorData::new(block_of_head, [heads]), &place.device),
        uses_block,
        store_expanded: false,
    })
}

/// The queries, each head as `[nope | rope]`. Ordinary attention has the turning values first.
fn projection(fit: &Fit, query: HostQuery, place: &Place) -> Result<QueryProjection, ModelError> {
    Ok(match query {
        HostQuery::LowRank { down, norm, up } => QueryProjection::LowRank {
            down: down.place(place)?,
            norm,
            up: up.place(place)?,
        },
        HostQuery::Full(query) if fit.latent_rank.is_some() => QueryProjection::Full(query.place(place)?),
        HostQuery::Full(query) => {
            let heads = (0..fit.query_heads).map(|head| head * fit.key);
            let order = heads.flat_map(|h| (h + fit.rotary..h + fit.key).chain(h..h + fit.rotary));
            QueryProjection::Full(query.reordered(order).place(place)?)
        }
    })
}

/// `[heads * value, rank]` to `[heads, rank, value]`.
fn heads_transposed(matrix: &Matrix, heads: usize) -> Vec<f32> {
    let (each, rank) = (matrix.rows / heads, matrix.cols);
    matrix
        .data
        .chunks_exact(each * rank)
        .flat_map(|head| transposed(head, each, rank))
        .collect()
}
