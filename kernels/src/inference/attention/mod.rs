//! Attention of tokens to each other.

pub(crate) mod host;
mod reference;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::host::{HostTable, unwrap, wrap};
use crate::registry;

/// Multi-head self-attention, `softmax(q k^T / sqrt(d)) v` of each head with `d` values a token.
///
/// A host takes it head by head, and the scores of a whole head are never in memory; it works below autodiff: on a
/// backend that differentiates, plain operations run, and gradients flow.
///
/// # Shapes
/// - `qkv`: `[n, tokens, 3 * heads * d]`: queries of all heads, then keys, then values
/// - returns `[n, tokens, heads * d]`
///
/// # Panics
/// When the last dimension is not that of three times so many heads.
///
/// # Source
/// Vaswani et al., "Attention Is All You Need", NeurIPS 2017.
pub fn attention<B: Backend>(qkv: Tensor<B, 3>, heads: usize) -> Tensor<B, 3> {
    let [n, tokens, all] = qkv.dims();
    let whole = heads > 0 && all.is_multiple_of(3 * heads);
    assert!(whole, "{all} values of a token are not queries, keys and values of {heads} heads");
    if n * tokens * all == 0 {
        return Tensor::zeros([n, tokens, all / 3], (&qkv.device(), qkv.dtype()));
    }
    match registry::f32_table::<HostTable<B>>("attention", [qkv.dtype()]) {
        Some(table) => wrap((table.attention)(unwrap(qkv), heads)),
        None => reference::attention(qkv, heads),
    }
}
