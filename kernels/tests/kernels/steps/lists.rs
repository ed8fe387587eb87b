//! Lists longer than a launch takes, of lengths of every kind.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, TensorMetadata};
use fewshot_kernels::{Route, StepRule, StepTensors, grad_stats, optim_step, route};

use super::set::*;

/// So many that some devices need several launches.
const COUNT: usize = 37;

/// Odd and even lengths, more than a cube takes, none, and axes stored in the opposite order.
fn tensor<B: Backend>(place: usize, seed: u64) -> FloatTensor<B> {
    let shapes: [&[usize]; 8] = [&[5], &[0], &[8, 3], &[1], &[64, 68], &[0, 3], &[3, 2, 3], &[16]];
    let layout = if place % 3 == 2 { Layout::Permuted } else { Layout::Contiguous };
    laid_out::<B>(shapes[place % shapes.len()], layout, seed)
}

/// Parameters that have made no step, one or two.
fn at_different_times<B: Backend>(rule: &StepRule) -> Vec<StepTensors<FloatTensor<B>>> {
    let stepped = |place: usize| {
        let seed = 10 * place as u64;
        let start = first(tensor::<B>(place, seed), tensor::<B>(place, seed + 1));
        (0..place % 4 / 2 + place % 2).fold(start, |of, time| {
            let moved = optim_step::<B>(vec![of], rule, 0.1).remove(0);
            next(moved, tensor::<B>(place, seed + 2 + time as u64))
        })
    };
    (0..COUNT).map(stepped).collect()
}

pub fn many_tensors_step_as_each_alone<B: Backend>() {
    for rule in rules() {
        let times = at_different_times::<B>(&rule).into_iter().map(|one| one.state.time);
        let times: Vec<_> = times.collect();
        assert!((0..3).all(|time| times.contains(&time)), "{times:?}");
        let alone = at_different_times::<B>(&rule).into_iter();
        let alone = alone.map(|one| optim_step::<B>(vec![one], &rule, 0.1).remove(0));
        let together = optim_step::<B>(at_different_times::<B>(&rule), &rule, 0.1);
        assert_eq!(together.len(), COUNT);
        for (place, (found, wanted)) in together.iter().zip(alone).enumerate() {
            let what = format!("{rule:?}, tensor {place}");
            assert_eq!(found.state.time, times[place] + 1, "{what}");
            assert_eq!(found.parameter.shape(), wanted.parameter.shape(), "{what}");
            assert_same::<B>(&what, &read_all::<B>(found), &read_all::<B>(&wanted));
        }
    }
}

/// Asserts that all numbers are the same; on an accelerator to within a rounding, for its compiler fuses other sums
/// and products where elements are taken singly than where they are taken in vectors.
fn assert_same<B: Backend>(what: &str, found: &[Vec<f32>], wanted: &[Vec<f32>]) {
    match route::<B>() {
        Route::Device(_) => assert_close(what, &found.concat(), &wanted.concat(), 1e-6),
        _ => assert_eq!(found, wanted, "{what}"),
    }
}

pub fn lists_that_share_memory_keep_what_others_hold<B: Backend>() {
    for rule in rules() {
        let [one, other] = [1, 2].map(|seed| laid_out::<B>(&[6, 7], Layout::Contiguous, seed));
        let list = || {
            // A parameter that is another one's gradient, and one that is there twice.
            let pairs = [(&one, &other), (&other, &one), (&one, &one), (&one, &other)];
            pairs.map(|(p, g)| first(p.clone(), g.clone())).to_vec()
        };
        let before = [&one, &other].map(read::<B>);
        let moved = optim_step::<B>(list(), &rule, 0.1);
        assert!([&one, &other].map(read::<B>) == before, "{rule:?}");
        for (place, (found, of)) in moved.iter().zip(list()).enumerate() {
            let wanted = optim_step::<B>(vec![of], &rule, 0.1).remove(0);
            let what = format!("{rule:?}, tensor {place}");
            assert_eq!(read_all::<B>(found), read_all::<B>(&wanted), "{what}");
            assert!(read::<B>(&found.parameter) != before[place % 2], "{what}");
        }
    }
}

pub fn many_gradients_are_scaled_and_measured<B: Backend>() {
    for factor in [1.0, 0.3] {
        let given: Vec<_> = (0..COUNT).map(|place| tensor::<B>(place, place as u64)).collect();
        // Every other gradient is held by someone else.
        let held: Vec<_> = given.iter().step_by(2).cloned().collect();
        let before: Vec<_> = given.iter().map(read::<B>).collect();
        let scaled = |values: &Vec<f32>| -> Vec<f32> {
            values.iter().map(|value| value * factor as f32).collect()
        };
        let wanted: Vec<_> = before.iter().map(scaled).collect();
        let (found, stats) = grad_stats::<B>(given, factor);
        for (place, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            assert_eq!(found.dtype(), DType::F32);
            assert_close(&format!("gradient {place}"), &read::<B>(found), wanted, 1e-7);
        }
        assert!(
            held.iter().zip(before.iter().step_by(2)).all(|(it, wanted)| read::<B>(it) == *wanted)
        );
        let squares = wanted.iter().flatten().map(|&value| f64::from(value).powi(2));
        let norm = squares.sum::<f64>().sqrt();
        assert!((stats.norm / norm - 1.0).abs() < 1e-6, "{stats:?}, not {norm}");
    }
}
