//! Gradients of attention.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;
use fewshot_simd::buffers::{Buffer, as_uninit};
use fewshot_simd::epilogue::Epilogue;
use fewshot_simd::gemm::{Gemm, RightMatrix};
use fewshot_simd::instruction_set::InstructionSet;
use rayon::prelude::*;

use super::super::attention::{Attention, columns};
use crate::environment::chosen;
use crate::host::{HostBackend, elements, write_like};
use crate::layers::node::record;
use crate::registry::Runs;

impl<H: HostBackend, C: CheckpointStrategy> Runs<Attention> for Autodiff<H, C> {
    fn run(qkv: FloatTensor<Self>, call: &Attention) -> FloatTensor<Self> {
        let (of, heads) = (qkv.primitive.clone(), call.heads);
        let y = <H as Runs<Attention>>::run(of.clone(), call);
        record::<H, C, 1>([&qkv], y, move |dy, _| [Some(gradient::<H>(&of, &dy, heads))])
    }
}

/// The gradient of queries, keys and values, whose softmax is computed again, head by head.
fn gradient<H: HostBackend>(
    qkv: &FloatTensor<H>,
    dy: &FloatTensor<H>,
    heads: usize,
) -> FloatTensor<H> {
    let shape @ [n, tokens, all]: [usize; 3] = qkv.shape().dims();
    let (width, each) = (all / 3, all / (3 * heads));
    let [values, dy] = [qkv, dy].map(elements::<H>);
    let mut of_heads = Buffer::stale(n * tokens * all);
    let body = chosen();
    of_heads.par_chunks_exact_mut(3 * tokens * each).enumerate().for_each(|(place, out)| {
        let (image, head) = (place / heads, place % heads);
        let of_image = &values[image * tokens * all..][..tokens * all];
        let part = |index: usize| (&of_image[index * width + head * each..], all);
        let dy = &dy[image * tokens * width..][..tokens * width];
        let operands = [part(0), part(1), part(2), (&dy[head * each..], width)];
        head_gradients(body, operands, [tokens, each], out);
    });
    let mut gradient = vec![0.0; n * tokens * all];
    gradient.par_chunks_exact_mut(tokens * all).enumerate().for_each(|(image, gradient)| {
        for (place, to) in gradient.chunks_exact_mut(each).enumerate() {
            let (token, part, head) = (place / (3 * heads), place / heads % 3, place % heads);
            let from = (((image * heads + head) * 3 + part) * tokens + token) * each;
            to.copy_from_slice(&of_heads[from..][..each]);
        }
    });
    write_like::<H, 3>(qkv, gradient, shape)
}

/// A matrix, rows as far apart as given with it.
type Rows<'a> = (&'a [f32], usize);

/// Writes the gradients of queries, keys and values of one head, one after the other.
///
/// With shares `p`: `dv = p^T dy`, `ds = p (dy v^T - sum(p dy v^T)) / sqrt(d)`, `dq = ds k`, `dk = ds^T q`.
fn head_gradients(
    body: &dyn InstructionSet,
    [q, k, v, dy]: [Rows<'_>; 4],
    size @ [tokens, each]: [usize; 2],
    out: &mut [f32],
) {
    let width = body.tile() / 2;
    let multiply = |a: Rows<'_>, b: Rows<'_>, steps: usize, columns: usize, out: &mut [f32]| {
        let b = &RightMatrix::new(width, b, [steps, columns]);
        let product = Gemm { a, b, rows: tokens, epilogue: Epilogue::Sum };
        // SAFETY: a product writes floats.
        body.gemm(&product, (unsafe { as_uninit(out) }, columns));
    };
    let scale = (each as f32).sqrt().recip();
    let square = || Buffer::stale(tokens * tokens);
    let (mut shares, mut slopes, mut turned) = (square(), square(), square());
    multiply(q, (&columns(body, k.0, k.1, size), tokens), each, tokens, &mut shares);
    body.softmax(scale, tokens, &mut shares);
    multiply(dy, (&columns(body, v.0, v.1, size), tokens), each, tokens, &mut slopes);
    let (dq, rest) = out.split_at_mut(tokens * each);
    let (dk, dv) = rest.split_at_mut(tokens * each);
    body.transposed(&shares, tokens, &mut turned);
    multiply((&turned, tokens), dy, tokens, each, dv);
    body.softmax_vjp(scale, tokens, &shares, &mut slopes);
    multiply((&slopes, tokens), k, tokens, each, dq);
    body.transposed(&slopes, tokens, &mut turned);
    multiply((&turned, tokens), q, tokens, each, dk);
}
