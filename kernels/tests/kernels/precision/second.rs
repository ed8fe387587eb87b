//! Second derivatives through rounded products.

use super::products::{PRODUCTS, Product};
use super::*;

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

fn norm(a: &[f64]) -> f64 {
    distance(a, &vec![0.0; a.len()])
}

/// The derivatives, by the operands and by the gradient of the result, of the product of the first
/// gradients with given directions.
fn second(
    operands: [Tensor<Once, 1>; 2],
    gradient: impl FnOnce([usize; 1]) -> Tensor<Once, 1>,
    directions: [Tensor<Once, 1>; 2],
    product: impl FnOnce([Tensor<Twice, 1>; 2]) -> Tensor<Twice, 1>,
) -> [Tensor<Flex, 1>; 3] {
    let lifted = operands.clone().map(|leaf| Tensor::from_inner(leaf).require_grad());
    let y = product(lifted.clone());
    let of_y = gradient(y.dims()).require_grad();
    let first = (y * Tensor::from_inner(of_y.clone())).sum().backward();
    let parts = lifted
        .iter()
        .zip(directions)
        .map(|(leaf, direction)| (leaf.grad(&first).expect("it is tracked") * direction).sum());
    let found = Tensor::cat(parts.collect(), 0).sum().backward();
    let [a, b] = operands;
    [a, b, of_y].map(|leaf| leaf.grad(&found).expect("it is tracked"))
}

#[test]
fn second_gradients_are_those_of_rounded_operands() {
    for (precision, rounding) in LOW {
        for product in PRODUCTS {
            let leaves = || product.operands::<Once>().map(Tensor::require_grad);
            let gradient = |shape| drawn::<Once, 1>(3, shape);
            let directions = || {
                let [a, b] = leaves().map(|leaf| leaf.dims());
                [drawn::<Once, 1>(4, a), drawn(5, b)]
            };
            let low = |of: [Tensor<Twice, 1>; 2]| product.in_precision(precision, of);
            let found = second(leaves(), gradient, directions(), low);
            assert!(found.iter().all(|tensor| tensor.dtype() == DType::F32), "{product:?}");
            let round = |tensor: Tensor<Once, 1>| rounded(&tensor, precision);
            let law = |of: [Tensor<Twice, 1>; 2]| product.by_reference(of);
            let of_f64 = |shape| round(gradient(shape)).detach();
            let turned = directions().map(|of| round(of).detach());
            let expected = second(leaves().map(round), of_f64, turned, law).map(read);
            let exact = second(leaves(), gradient, directions(), law).map(read);
            for (index, found) in found.map(read).iter().enumerate() {
                let what = format!("{product:?} in {precision:?}, {index}");
                let error = distance(found, &expected[index]) / norm(&expected[index]);
                assert!(error < 1.01 * rounding, "{what}: {error:e}");
                assert_rounded(&what, found, &exact[index], rounding);
            }
        }
    }
}

/// The loss of a layer of `tanh` and one without, `[n, 6]` to `[n, 3]`.
fn loss<B: Backend>(precision: Precision, seed: u64, weights: [Tensor<B, 1>; 2]) -> Tensor<B, 1> {
    let [first, second] = PLAIN;
    let x = drawn::<B, 1>(seed, [8 * 6]);
    let hidden = first.in_precision(precision, [x, weights[0].clone()]).tanh();
    let y = second.in_precision(precision, [hidden, weights[1].clone()]);
    let error = y - drawn::<B, 1>(seed + 1, [8 * 3]);
    (error.clone() * error).mean()
}

const PLAIN: [Product; 2] = [
    Product::Linear { x: [8, 6], weight: [6, 10] },
    Product::Linear { x: [8, 10], weight: [10, 3] },
];

/// The loss after a step on another one, and its gradients.
fn after_a_step(precision: Precision, weights: [Tensor<Once, 1>; 2]) -> (f64, [Vec<f64>; 2]) {
    let leaves = weights.map(|weight| weight.detach().require_grad());
    let lifted = leaves.clone().map(|leaf| Tensor::<Twice, 1>::from_inner(leaf).require_grad());
    let inner = loss(precision, 20, lifted.clone()).backward();
    let [a, b] = leaves.clone();
    let [da, db] = lifted.map(|leaf| leaf.grad(&inner).expect("it is tracked"));
    assert_eq!([da.dtype(), db.dtype()], [DType::F32; 2]);
    let outer = loss(precision, 30, [a - da * 0.5, b - db * 0.5]);
    let value = read(outer.clone().inner())[0];
    let found = outer.backward();
    (value, leaves.map(|leaf| read(leaf.grad(&found).expect("it is tracked"))))
}

#[test]
fn the_gradient_through_an_inner_step_is_that_of_central_differences() {
    // A step large beside the roundings, of which the loss has many.
    let step = 0.05;
    let weights = [drawn::<Once, 1>(10, [60]), drawn::<Once, 1>(11, [30])];
    for (precision, rounding) in LOW {
        let (_, gradients) = after_a_step(precision, weights.clone());
        let (_, exact) = after_a_step(Precision::F32, weights.clone());
        // Along the exact gradient, where the slope is steepest.
        let length = exact.iter().map(|of| norm(of).powi(2)).sum::<f64>().sqrt();
        let ends = [step, -step].map(|step| {
            let moved = weights.each_ref().map(|weight| weight.clone().cast(FloatDType::F64));
            let [a, b] = moved;
            let [da, db] = exact.each_ref().map(|of| {
                let of: Vec<f64> = of.iter().map(|v| v * step / length).collect();
                let count = of.len();
                Tensor::<Once, 1>::from_data(
                    TensorData::new(of, [count]),
                    (&Default::default(), DType::F64),
                )
            });
            let moved = [a + da, b + db].map(|weight| weight.cast(FloatDType::F32));
            after_a_step(precision, moved).0
        });
        let slope = (ends[0] - ends[1]) / (2.0 * step);
        let pairs = gradients.iter().zip(&exact);
        let along: f64 =
            pairs.flat_map(|(g, of)| g.iter().zip(of)).map(|(g, of)| g * of / length).sum();
        let error = (along - slope).abs() / slope.abs();
        assert!(error < 16.0 * rounding, "{precision:?}: {along}, not {slope}");
        for (found, exact) in gradients.iter().zip(&exact) {
            let error = distance(found, exact) / norm(exact);
            assert!(error < 20.0 * rounding, "{precision:?}: {error:e} off f32");
            assert_rounded("after a step", found, exact, rounding);
        }
    }
}
