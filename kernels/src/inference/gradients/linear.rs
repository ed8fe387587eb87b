//! Gradients of a linear layer and what follows it.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;
use fewshot_simd::epilogue::Activation;
use rayon::prelude::*;

use super::super::fused_linear::{FusedLinear, Residual};
use super::rows_of_part;
use crate::environment::chosen;
use crate::host::{HostBackend, elements, into_elements, write_like};
use crate::layers::node::record;
use crate::registry::Runs;

/// Floats that are worth a task of their own.
const TASK: usize = 1 << 15;

impl<H: HostBackend, C: CheckpointStrategy> Runs<FusedLinear> for Autodiff<H, C> {
    fn run(
        (tensors, residual): ([FloatTensor<Self>; 3], Option<Residual<Self>>),
        call: &FusedLinear,
    ) -> FloatTensor<Self> {
        match residual {
            Some((scale, add)) => with_residual::<H, C>(tensors, scale, add, call),
            None => with_activation::<H, C>(tensors, call.0),
        }
    }
}

/// The sums of the layer are kept, for the derivative of the activation is one of them.
fn with_activation<H: HostBackend, C: CheckpointStrategy>(
    tensors: [FloatTensor<Autodiff<H, C>>; 3],
    activation: Activation,
) -> FloatTensor<Autodiff<H, C>> {
    let parents = tensors.each_ref();
    let layer = parents.map(|of| of.primitive.clone());
    let [x, weight, _] = layer.clone();
    let identity = FusedLinear(Activation::Identity);
    let sums = <H as Runs<FusedLinear>>::run((layer, None), &identity);
    if activation == Activation::Identity {
        return record::<H, C, 3>(parents, sums, move |dy, requires_grad| {
            layer_gradients::<H>(x, weight, dy, requires_grad)
        });
    }
    let y = each_part::<H>(sums.clone(), |_, y| chosen().activate_all(activation, y));
    record::<H, C, 3>(parents, y, move |dy, requires_grad| {
        let of_sums = elements::<H>(&sums);
        let slopes = |place: usize, dy: &mut [f32]| {
            let sums = &of_sums[place * TASK..][..dy.len()];
            chosen().activate_all_vjp(activation, sums, dy);
        };
        let of_sums = each_part::<H>(dy, slopes);
        layer_gradients::<H>(x, weight, of_sums, requires_grad)
    })
}

/// `change` of parts of [`TASK`] floats, with the index of each.
fn each_part<H: HostBackend>(
    x: FloatTensor<H>,
    change: impl Fn(usize, &mut [f32]) + Sync,
) -> FloatTensor<H> {
    let (shape, device) = (x.shape(), H::float_device(&x));
    let mut x = into_elements::<H>(x);
    x.par_chunks_mut(TASK).enumerate().for_each(|(place, x)| change(place, x));
    crate::host::write_shape::<H>(x, shape, &device)
}

fn transposed<H: HostBackend>(matrix: FloatTensor<H>) -> FloatTensor<H> {
    H::float_swap_dims(matrix, 0, 1)
}

/// The gradients of `x`, weight and bias, of those of the sums.
fn layer_gradients<H: HostBackend>(
    x: FloatTensor<H>,
    weight: FloatTensor<H>,
    dy: FloatTensor<H>,
    [of_x, of_weight, of_bias]: [bool; 3],
) -> [Option<FloatTensor<H>>; 3] {
    [
        of_x.then(|| H::float_matmul(dy.clone(), transposed::<H>(weight))),
        of_weight.then(|| H::float_matmul(transposed::<H>(x), dy.clone())),
        of_bias.then(|| {
            let [_, outputs]: [usize; 2] = dy.shape().dims();
            write_like::<H, 1>(&dy, column_sums::<H>(&dy), [outputs])
        }),
    ]
}

/// The sum of each column.
fn column_sums<H: HostBackend>(x: &FloatTensor<H>) -> Vec<f32> {
    let shape @ [_, columns]: [usize; 2] = x.shape().dims();
    let x = elements::<H>(x);
    let rows = rows_of_part(shape, TASK);
    let add = |mut sums: Vec<f32>, row: &[f32]| {
        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        sums
    };
    let parts = x.par_chunks(rows * columns);
    let parts: Vec<_> =
        parts.map(|part| part.chunks_exact(columns).fold(vec![0.0; columns], add)).collect();
    parts.iter().fold(vec![0.0; columns], |sums, part| add(sums, part))
}

/// `y = s (x w + b) + add`, of which nothing but operands is kept. With `g = x^T dy` and `t` the sums of the columns of `dy`:
/// `dx = dy (s w)^T`, `dw = s g`, `db = s t` and `ds = sum(w g) + b t`, the sum over inputs.
fn with_residual<H: HostBackend, C: CheckpointStrategy>(
    tensors: [FloatTensor<Autodiff<H, C>>; 3],
    scale: Option<FloatTensor<Autodiff<H, C>>>,
    add: FloatTensor<Autodiff<H, C>>,
    call: &FusedLinear,
) -> FloatTensor<Autodiff<H, C>> {
    let layer = tensors.each_ref().map(|of| of.primitive.clone());
    let [x, weight, bias] = layer.clone();
    let of_scale = scale.as_ref().map(|scale| scale.primitive.clone());
    let residual = Some((of_scale.clone(), add.primitive.clone()));
    let y = <H as Runs<FusedLinear>>::run((layer, residual), call);
    let [of_x, of_weight, of_bias] = &tensors;
    match (&scale, of_scale) {
        (Some(scale), Some(values)) => {
            let parents = [of_x, of_weight, of_bias, &add, scale];
            record::<H, C, 5>(parents, y, move |dy, requires_grad| {
                scaled_gradients::<H>([x, weight, bias, values], dy, requires_grad)
            })
        }
        _ => {
            let parents = [of_x, of_weight, of_bias, &add];
            record::<H, C, 4>(parents, y, move |dy, [requires_grad @ .., is_asked]| {
                let of_add = is_asked.then(|| dy.clone());
                let [dx, dw, db] = layer_gradients::<H>(x, weight, dy, requires_grad);
                [dx, dw, db, of_add]
            })
        }
    }
}

/// The gradients of `x`, weight, bias, summand and scale.
fn scaled_gradients<H: HostBackend>(
    [x, weight, bias, scale]: [FloatTensor<H>; 4],
    dy: FloatTensor<H>,
    [of_x, of_weight, of_bias, of_add, of_scale]: [bool; 5],
) -> [Option<FloatTensor<H>>; 5] {
    let shape @ [_, outputs]: [usize; 2] = weight.shape().dims();
    let sums = if of_bias || of_scale { column_sums::<H>(&dy) } else { Vec::new() };
    let [weights, biases, scales] = [&weight, &bias, &scale].map(elements::<H>);
    let dx = of_x.then(|| {
        let scaled = write_like::<H, 2>(&weight, times(&weights, &scales), shape);
        H::float_matmul(dy.clone(), transposed::<H>(scaled))
    });
    let products = (of_weight || of_scale)
        .then(|| into_elements::<H>(H::float_matmul(transposed::<H>(x), dy.clone())));
    let vector = |values: Vec<f32>| write_like::<H, 1>(&bias, values, [outputs]);
    let d_scale = products.as_ref().filter(|_| of_scale).map(|products| {
        let mut total = times(&biases, &sums);
        for (weights, products) in weights.chunks_exact(outputs).zip(products.chunks_exact(outputs))
        {
            let each = total.iter_mut().zip(weights.iter().zip(products));
            each.for_each(|(total, (weight, product))| *total += weight * product);
        }
        vector(total)
    });
    let products = products.filter(|_| of_weight);
    let dw = products.map(|products| write_like::<H, 2>(&weight, times(&products, &scales), shape));
    let db = of_bias.then(|| vector(times(&sums, &scales)));
    [dx, dw, db, of_add.then_some(dy), d_scale]
}

/// Each row times the factors.
fn times(rows: &[f32], factors: &[f32]) -> Vec<f32> {
    let rows = rows.chunks_exact(factors.len());
    rows.flat_map(|row| row.iter().zip(factors).map(|(x, by)| x * by)).collect()
}
