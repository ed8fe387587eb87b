//! One product at a time, against f64 on rounded operands.

use fewshot_kernels::{conv2d, linear, with_reference};

use super::*;

/// A product of two operands, which are flat.
#[derive(Clone, Copy, Debug)]
pub enum Product {
    /// Of `[n, c, h, w]` and `[o, c, k, k]`.
    Convolution { x: [usize; 4], weight: [usize; 4], stride: usize, padding: usize },
    /// Of `[n, i]` and `[i, o]`.
    Linear { x: [usize; 2], weight: [usize; 2] },
}

pub const PRODUCTS: [Product; 5] = [
    convolution([3, 5, 7, 6], [4, 5, 3, 3], 1, 1),
    convolution([2, 3, 8, 9], [6, 3, 3, 3], 2, 1),
    convolution([2, 9, 5, 4], [3, 9, 1, 1], 1, 0),
    // Without a fused body.
    convolution([2, 3, 8, 7], [4, 3, 5, 5], 1, 2),
    Product::Linear { x: [7, 30], weight: [30, 5] },
];

const fn convolution(x: [usize; 4], weight: [usize; 4], stride: usize, padding: usize) -> Product {
    Product::Convolution { x, weight, stride, padding }
}

impl Product {
    /// The operands.
    pub fn operands<B: Backend>(&self) -> [Tensor<B, 1>; 2] {
        let lengths = match self {
            Self::Convolution { x, weight, .. } => [x.iter().product(), weight.iter().product()],
            Self::Linear { x, weight } => [x.iter().product(), weight.iter().product()],
        };
        [drawn(1, [lengths[0]]), drawn(2, [lengths[1]])]
    }

    pub fn in_precision<B: Backend>(
        &self,
        precision: Precision,
        [a, b]: [Tensor<B, 1>; 2],
    ) -> Tensor<B, 1> {
        match *self {
            Self::Convolution { x, weight, stride, padding } => precision
                .conv2d(a.reshape(x), b.reshape(weight), None, stride, padding)
                .flatten(0, 3),
            Self::Linear { x, weight } => {
                precision.linear(a.reshape(x), b.reshape(weight), None).flatten(0, 1)
            }
        }
    }

    /// In the type of the operands.
    pub fn by_reference<B: Backend>(&self, [a, b]: [Tensor<B, 1>; 2]) -> Tensor<B, 1> {
        match *self {
            Self::Convolution { x, weight, stride, padding } => {
                let body = conv2d::reference::conv2d;
                body(a.reshape(x), b.reshape(weight), None, stride, padding).flatten(0, 3)
            }
            Self::Linear { x, weight } => a.reshape(x).matmul(b.reshape(weight)).flatten(0, 1),
        }
    }
}

/// The result, and its gradients by both operands for a given one of its own.
fn outcome(
    operands: [Tensor<Once, 1>; 2],
    gradient: impl FnOnce([usize; 1]) -> Tensor<Once, 1>,
    product: impl FnOnce([Tensor<Once, 1>; 2]) -> Tensor<Once, 1>,
) -> [Tensor<Flex, 1>; 3] {
    let y = product(operands.clone());
    let found = (y.clone() * gradient(y.dims())).sum().backward();
    let [a, b] = operands.map(|operand| operand.grad(&found).expect("it is tracked"));
    [y.inner(), a, b]
}

#[test]
fn products_and_gradients_are_those_of_rounded_operands_rounded_once() {
    for (precision, rounding) in LOW {
        for product in PRODUCTS {
            let leaves = || product.operands::<Once>().map(Tensor::require_grad);
            let gradient = |shape| drawn::<Once, 1>(3, shape);
            let low = |of| product.in_precision(precision, of);
            let found = outcome(leaves(), gradient, low);
            assert!(found.iter().all(|tensor| tensor.dtype() == DType::F32), "{product:?}");
            let of_rounded = leaves().map(|leaf| rounded(&leaf, precision));
            let of_f64 = |shape| rounded(&gradient(shape), precision).detach();
            let law = |of| product.by_reference(of);
            let expected = outcome(of_rounded, of_f64, law).map(read);
            let exact = outcome(leaves(), gradient, law).map(read);
            for (index, found) in found.map(read).iter().enumerate() {
                let what = format!("{product:?} in {precision:?}, {index}");
                // One rounding, and sums in f32 whose terms may cancel.
                assert_near(&what, found, &expected[index], 1.01 * rounding, 1e-6);
                assert_rounded(&what, found, &exact[index], rounding);
            }
        }
    }
}

#[test]
fn results_and_gradients_are_of_the_low_type() {
    for (precision, _) in LOW {
        for product in PRODUCTS {
            let leaves = product.operands::<Once>().map(Tensor::require_grad);
            let low_product = |of| product.in_precision(precision, of);
            for found in outcome(leaves, |shape| drawn(3, shape), low_product) {
                let again = read(found.clone().cast(low(precision)));
                assert_eq!(read(found), again, "{product:?} in {precision:?}");
            }
        }
    }
}

#[test]
fn the_gradient_of_a_result_is_rounded_before_the_product() {
    // As many ones as a sum of the low type can tell from one more.
    for (precision, size, gradient) in
        [(Precision::MixedBf16, [30, 34], 1.0038), (Precision::MixedF16, [28, 73], 1.00048)]
    {
        let [h, w] = size;
        let device = Default::default();
        let weight = Tensor::<Once, 1>::ones([1], &device).require_grad();
        let map = Tensor::ones([1, 1, h, w], &device);
        let y = precision.conv2d(map, weight.clone().reshape([1, 1, 1, 1]), None, 1, 0);
        let rows = Tensor::ones([h * w, 1], &device);
        let z = precision.linear(rows, weight.clone().reshape([1, 1]), None);
        for sum in [y.sum(), z.sum()] {
            let found = weight.grad(&(sum * gradient).backward()).expect("it is tracked");
            assert_eq!(read(found), [(h * w) as f64], "{precision:?}");
        }
    }
}

#[test]
fn the_precision_f32_changes_no_bit() {
    for product in PRODUCTS {
        let found = product.in_precision(Precision::F32, product.operands::<Flex>());
        let [a, b] = product.operands::<Flex>();
        let expected: Tensor<Flex, 1> = match product {
            Product::Convolution { x, weight, stride, padding } => {
                conv2d(a.reshape(x), b.reshape(weight), None, stride, padding).flatten(0, 3)
            }
            Product::Linear { x, weight } => {
                linear(a.reshape(x), b.reshape(weight), None).flatten(0, 1)
            }
        };
        assert_eq!(read(found), read(expected), "{product:?}");
    }
}

#[test]
fn the_reference_rounds_as_fused_bodies_do() {
    for (precision, rounding) in LOW {
        for product in PRODUCTS {
            let run = || {
                let leaves = product.operands::<Once>().map(Tensor::require_grad);
                let low = |of| product.in_precision(precision, of);
                outcome(leaves, |shape| drawn(3, shape), low).map(read)
            };
            let (found, expected) = (run(), with_reference(run));
            for (found, expected) in found.iter().zip(&expected) {
                // Burn's own convolution also rounds sums on its way, in f16.
                let what = format!("{product:?} in {precision:?}");
                assert_near(&what, found, expected, 2.01 * rounding, 8.0 * rounding);
            }
        }
    }
}

#[test]
fn a_bias_is_added_in_f32() {
    let device = Default::default();
    for (precision, _) in LOW {
        let x = Tensor::<Once, 2>::zeros([3, 4], &device);
        let bias = Tensor::<Once, 1>::full([2], 1000.3, &device).require_grad();
        let y = precision.linear(x, Tensor::ones([4, 2], &device), Some(bias.clone()));
        assert_eq!(read(y.clone().inner()), [f64::from(1000.3f32); 6]);
        let map = Tensor::<Once, 4>::zeros([3, 1, 2, 2], &device);
        let weight = Tensor::ones([2, 1, 3, 3], &device);
        let z = precision.conv2d(map, weight, Some(bias.clone()), 1, 1);
        assert_eq!(read(z.clone().inner()), [f64::from(1000.3f32); 24]);
        // In bf16, 1.001 would be 1.
        let sum = (y.sum() + z.sum()) * 1.001;
        let gradient = bias.grad(&sum.backward()).expect("it is tracked");
        let wanted = (3.0 + 12.0) * f64::from(1.001f32);
        assert_near("bias", &read(gradient), &[wanted; 2], 1e-6, 0.0);
    }
}

#[test]
fn what_is_too_large_for_f16_is_infinite_as_on_a_gpu() {
    let device = Default::default();
    let far = |precision: Precision| {
        let x = Tensor::<Flex, 4>::full([1, 1, 4, 4], 100.0, &device);
        let y = precision.conv2d(x, Tensor::full([1, 1, 3, 3], 100.0, &device), None, 1, 1);
        let x = Tensor::<Flex, 2>::full([1, 9], 100.0, &device);
        let z = precision.linear(x, Tensor::full([9, 1], 100.0, &device), None);
        [y.max(), z.max()].map(|most| read(most)[0])
    };
    assert_eq!(far(Precision::MixedF16), [f64::INFINITY; 2]);
    assert_eq!(far(Precision::MixedBf16), [90112.0; 2]);
    assert_eq!(far(Precision::F32), [90000.0; 2]);
}

#[test]
fn operands_of_a_low_type_get_gradients_of_it() {
    for (precision, _) in LOW {
        let [a, b] = PRODUCTS[0].operands::<Once>();
        let (a, b) = (a.cast(low(precision)).require_grad(), b.require_grad());
        let y = PRODUCTS[0].in_precision(precision, [a.clone(), b.clone()]);
        assert_eq!(y.dtype(), DType::F32);
        let gradients = y.sum().backward();
        assert_eq!(a.grad(&gradients).map(|g| g.dtype()), Some(low(precision).into()));
        assert_eq!(b.grad(&gradients).map(|g| g.dtype()), Some(DType::F32));
    }
}
