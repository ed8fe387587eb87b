//! Attention of tokens to each other.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata};
use fewshot_simd::buffers::{Buffer, as_uninit};
use fewshot_simd::epilogue::Epilogue;
use fewshot_simd::gemm::{Gemm, RightMatrix};
use fewshot_simd::instruction_set::InstructionSet;
use rayon::prelude::*;

use super::reference;
use crate::environment::chosen;
use crate::host::{HostBackend, elements, unwrap, wrap, write_like};
use crate::registry::{self, Operation, Runs};

/// Queries whose scores are in memory at a time.
const QUERIES: usize = 64;

/// Multi-head self-attention, `softmax(q k^T / sqrt(d)) v` of each head with `d` values a token.
///
/// A host takes it head by head, and the scores of a whole head are never in memory.
///
/// # Shapes
/// - `qkv`: `[n, tokens, 3 * heads * d]`: queries of all heads, then keys, then values
/// - returns `[n, tokens, heads * d]`
///
/// # Source
/// Vaswani et al., "Attention Is All You Need", NeurIPS 2017.
pub fn attention<B: Backend>(qkv: Tensor<B, 3>, heads: usize) -> Tensor<B, 3> {
    let [n, tokens, all] = qkv.dims();
    let whole = heads > 0 && all.is_multiple_of(3 * heads);
    assert!(whole, "{all} values of a token are not queries, keys and values of {heads} heads");
    if n * tokens * all == 0 {
        return Tensor::empty([n, tokens, all / 3], (&qkv.device(), qkv.dtype()));
    }
    match registry::f32_body::<B, Attention>("attention", [qkv.dtype()]) {
        Some(body) => wrap(body(unwrap(qkv), &Attention { heads })),
        None => reference::attention(qkv, heads),
    }
}

/// Attention of so many heads.
pub(crate) struct Attention {
    pub(super) heads: usize,
}

impl Operation for Attention {
    type Operands<B: Backend> = FloatTensor<B>;
    type Results<B: Backend> = FloatTensor<B>;
}

impl<H: HostBackend> Runs<Attention> for H {
    fn run(qkv: FloatTensor<H>, &Attention { heads }: &Attention) -> FloatTensor<H> {
        let [n, tokens, all]: [usize; 3] = qkv.shape().dims();
        let (width, each) = (all / 3, all / (3 * heads));
        let values = elements::<H>(&qkv);
        let mut of_heads = Buffer::stale(n * tokens * width);
        let body = chosen();
        of_heads.par_chunks_exact_mut(tokens * each).enumerate().for_each(|(place, out)| {
            let (image, head) = (place / heads, place % heads);
            let of_image = &values[image * tokens * all..][..tokens * all];
            let part = |index: usize| &of_image[index * width + head * each..];
            attend(body, [part(0), part(1), part(2)], all, [tokens, each], out);
        });
        let mut y = vec![0.0; n * tokens * width];
        y.par_chunks_exact_mut(tokens * width).enumerate().for_each(|(image, y)| {
            for (place, to) in y.chunks_exact_mut(each).enumerate() {
                let (token, head) = (place / heads, place % heads);
                let from = ((image * heads + head) * tokens + token) * each;
                to.copy_from_slice(&of_heads[from..][..each]);
            }
        });
        drop(values);
        write_like::<H, 3>(&qkv, y, [n, tokens, width])
    }
}

/// The keys of one head, rows as far apart as given, as columns.
pub(super) fn columns(
    body: &dyn InstructionSet,
    keys: &[f32],
    row: usize,
    [tokens, each]: [usize; 2],
) -> Buffer {
    let (mut rows, mut columns) = (Buffer::stale(tokens * each), Buffer::stale(tokens * each));
    for (token, to) in rows.chunks_exact_mut(each).enumerate() {
        to.copy_from_slice(&keys[token * row..][..each]);
    }
    body.transposed(&rows, each, &mut columns);
    columns
}

/// Writes what the tokens of one head, rows as far apart as given, make of each other's values.
fn attend(
    body: &dyn InstructionSet,
    [q, k, v]: [&[f32]; 3],
    row: usize,
    [tokens, each]: [usize; 2],
    out: &mut [f32],
) {
    let turned = columns(body, k, row, [tokens, each]);
    let width = body.tile() / 2;
    let keys = RightMatrix::new(width, (&turned, tokens), [each, tokens]);
    let values = RightMatrix::new(width, (v, row), [tokens, each]);
    let mut scores = Buffer::stale(QUERIES.min(tokens) * tokens);
    let scale = (each as f32).sqrt().recip();
    for (block, out) in out.chunks_mut(QUERIES * each).enumerate() {
        let count = out.len() / each;
        let scores = &mut scores[..count * tokens];
        let products = Gemm {
            a: (&q[block * QUERIES * row..], row),
            b: &keys,
            rows: count,
            epilogue: Epilogue::Sum,
        };
        // SAFETY: products write floats, here and below.
        body.gemm(&products, (unsafe { as_uninit(scores) }, tokens));
        body.softmax(scale, tokens, scores);
        let mixed = Gemm { a: (scores, tokens), b: &values, rows: count, epilogue: Epilogue::Sum };
        body.gemm(&mixed, (unsafe { as_uninit(out) }, each));
    }
}
