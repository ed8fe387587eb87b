//! What holds on every backend.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{inverse_power, with_reference};

use crate::rank_update::laws::tensor;
use crate::steps::set::{Layout, assert_close};

fn numbers<B: Backend>(of: (Tensor<B, 1>, Tensor<B, 1>)) -> [f32; 2] {
    [of.0, of.1].map(|tensor| tensor.into_data().iter::<f32>().next().expect("a number"))
}

fn one<B: Backend>(value: f32) -> Tensor<B, 1> {
    Tensor::from_data([value], &Default::default())
}

pub fn powers_equal_the_reference<B: Backend>() {
    use Layout::*;
    for shape in [[1, 1], [1, 31], [1, 800], [3, 33], [64, 100], [7, 1]] {
        for layout in [Contiguous, Permuted, Expanded, Sliced] {
            for mean in [None, Some(0.25), Some(1e4)] {
                let run = || {
                    let x = tensor::<B>(shape, layout, 1);
                    numbers(inverse_power(x, mean.map(one), 7.0))
                };
                let (found, wanted) = (run(), with_reference(run));
                assert_close(&format!("{shape:?}, {layout:?}, {mean:?}"), &found, &wanted, 1e-5);
            }
        }
    }
    // By hand: the power is 25, and then its mean (36 + 3 * 25) / 4 beside a power of 36.
    let x = |values| Tensor::<B, 2>::from_data(values, &Default::default());
    let (inverse, mean) = inverse_power(x([[3.0, 4.0], [4.0, 3.0]]), None, 4.0);
    assert_close("first", &numbers((inverse, mean.clone())), &[1.0 / 25.0, 25.0], 1e-6);
    let second = inverse_power(x([[6.0, 0.0], [0.0, 6.0]]), Some(mean), 4.0);
    assert_close("second", &numbers(second), &[1.0 / 36.0, 27.75], 1e-6);
}

pub fn zeros_have_no_inverse<B: Backend>() {
    let zeros = || Tensor::<B, 2>::zeros([2, 5], &Default::default());
    assert_eq!(numbers(inverse_power(zeros(), None, 3.0)), [0.0, 0.0]);
    assert_eq!(numbers(inverse_power(zeros(), Some(one(0.0)), 3.0)), [0.0, 0.0]);
    assert_close(
        "after",
        &numbers(inverse_power(zeros(), Some(one(6.0)), 3.0)),
        &[0.25, 4.0],
        1e-6,
    );
}

pub fn what_is_not_finite_stays_as_in_the_reference<B: Backend>() {
    let odd = [f32::NAN, f32::INFINITY, 2.0, 0.0];
    for (x, mean) in odd.into_iter().flat_map(|x| odd.map(|mean| (x, mean))) {
        let run = || {
            let x = Tensor::<B, 2>::from_data([[1.0, x]], &Default::default());
            numbers(inverse_power(x, Some(one(mean)), 3.0))
        };
        let (found, wanted) = (run(), with_reference(run));
        let same =
            |(a, b): (&f32, &f32)| (a.is_nan() && b.is_nan()) || (a - b).abs() < 1e-5 || a == b;
        assert!(found.iter().zip(&wanted).all(same), "{x}, {mean}: {found:?} for {wanted:?}");
    }
}
