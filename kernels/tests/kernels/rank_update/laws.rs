//! What holds on every backend.

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorPrimitive};
use fewshot_kernels::Coefficient::{self, Number};
use fewshot_kernels::{rank_update, with_reference};

use crate::steps::set::{Layout, assert_close, laid_out, shaped, values};

pub fn tensor<B: Backend>(shape: [usize; 2], layout: Layout, seed: u64) -> Tensor<B, 2> {
    Tensor::from_primitive(TensorPrimitive::Float(laid_out::<B>(&shape, layout, seed)))
}

pub fn given<B: Backend>(values: &[f32], shape: [usize; 2]) -> Tensor<B, 2> {
    Tensor::from_primitive(TensorPrimitive::Float(shaped::<B>(values, &shape)))
}

pub fn read<B: Backend>(tensor: &Tensor<B, 2>) -> Vec<f32> {
    tensor.to_data().into_vec().unwrap()
}

/// The three ways to lose a share of a weight, at three rates.
pub fn ways<B: Backend>(rows: usize, layout: Layout) -> [Way<B>; 3] {
    let each = |rows| Coefficient::Tensor(tensor::<B>([rows, 1], layout, 9));
    let read = Coefficient::Tensor(tensor::<B>([1, 1], layout, 8).reshape([1]));
    let whole = Number(1.0);
    [(Number(0.25), read), (each(rows), Number(0.7)), (each(1), whole)]
}

type Way<B> = (Coefficient<Tensor<B, 2>>, Coefficient<Tensor<B, 1>>);

pub fn updates_equal_the_reference<B: Backend>() {
    use Layout::*;
    // The last ones are work for more than one thread.
    let shapes = [[1, 1], [1, 40], [40, 1], [31, 33], [64, 32], [5, 17], [517, 1031], [300, 1000]];
    for ([rows, columns], k) in shapes.into_iter().flat_map(|s| [1, 2, 7, 64].map(|k| (s, k))) {
        for layout in [Contiguous, Permuted, Expanded, Sliced] {
            for (lost, rate) in ways::<B>(rows, layout) {
                let update = || {
                    let weight = tensor::<B>([rows, columns], layout, 1);
                    let [left, right] = [([k, rows], 2), ([k, columns], 3)]
                        .map(|(shape, seed)| tensor(shape, layout, seed));
                    rank_update(weight, lost.clone(), left, right, rate.clone())
                };
                let (found, wanted) = (update(), with_reference(update));
                assert_eq!(found.dims(), [rows, columns]);
                let what = format!("{rows}x{columns}, {k}, {layout:?}, {lost:?}, {rate:?}");
                assert_close(&what, &read(&found), &read(&wanted), 1e-5);
            }
        }
    }
}

pub fn a_shared_weight_is_not_overwritten<B: Backend>() {
    let fresh = |seed| tensor::<B>([37, 21], Layout::Contiguous, seed);
    // One that an update has written, and so owns all of its memory.
    let grow = |weight| {
        let factor = |length| tensor::<B>([2, length], Layout::Contiguous, 5);
        rank_update(weight, Number(0.5), factor(37), factor(21), Number(0.9))
    };
    let weight = grow(fresh(1));
    let before = read(&weight);
    let rows = weight.clone().narrow(0, 3, 5);
    let some = read(&rows);
    let once = grow(weight.clone());
    assert_eq!(read(&weight), before);
    let again = grow(weight);
    assert_eq!(read(&once), read(&again));
    assert!(read(&once) != before);
    assert_eq!(read(&rows), some, "a view that outlives the weight");

    // A factor that is the weight itself.
    let square = |seed| tensor::<B>([9, 9], Layout::Contiguous, seed);
    let update = || {
        let weight = square(1);
        let (none, whole) = (Number(0.0), Number(1.0));
        rank_update(weight.clone(), none, weight.clone(), weight, whole)
    };
    assert_close("squared", &read(&update()), &read(&with_reference(update)), 1e-5);
}

pub fn what_is_not_finite_spreads_as_in_the_reference<B: Backend>() {
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, 1.0];
    let (rows, columns) = (odd.len() * odd.len(), 2 * odd.len() + 33);
    let pick = |i: usize| odd[i % odd.len()];
    // Every odd value meets every other: in a row of the weight, its share, and both factors.
    let weight: Vec<f32> = (0..rows * columns).map(|i| pick(i / columns)).collect();
    let share: Vec<f32> = (0..rows).map(|i| pick(i / odd.len())).collect();
    let right: Vec<f32> = (0..columns).map(pick).collect();
    for k in [1, 3] {
        let left: Vec<f32> = (0..k * rows).map(|i| pick(i / rows + i)).collect();
        let right = right.repeat(k);
        for lost in [Number(0.5), Number(0.0), Coefficient::Tensor(given(&share, [rows, 1]))] {
            for ordinary in [None, Some(values(k * rows, 1))] {
                let left = ordinary.as_ref().unwrap_or(&left);
                let update = || {
                    let weight = given::<B>(&weight, [rows, columns]);
                    let factors = (given(left, [k, rows]), given(&right, [k, columns]));
                    rank_update(weight, lost.clone(), factors.0, factors.1, Number(0.5))
                };
                let (found, wanted) = (read(&update()), read(&with_reference(update)));
                assert!(wanted.iter().any(|value| value.is_nan()));
                assert_close(&format!("{k}, {lost:?}"), &found, &wanted, 1e-5);
            }
        }
    }
}

pub fn all_and_nothing_can_be_kept<B: Backend>() {
    let weight = || tensor::<B>([6, 35], Layout::Contiguous, 1);
    let nothing = |length| given::<B>(&vec![0.0; length], [1, length]);
    let kept = |lost, rate| {
        let (lost, rate) = (Number(lost), Number(rate));
        read(&rank_update(weight(), lost, nothing(6), nothing(35), rate))
    };
    assert_eq!(kept(0.0, 0.3), read(&weight()));
    assert_eq!(kept(0.7, 0.0), read(&weight()));
    assert!(kept(1.0, 1.0).iter().all(|&value| value == 0.0));
    assert!(kept(4.0, 0.25).iter().all(|&value| value == 0.0));
}
