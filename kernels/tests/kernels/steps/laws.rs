//! What holds on every backend.

pub use super::lists::*;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, FloatDType, TensorMetadata};
use fewshot_kernels::{
    StepRule, StepTensors, grad_stats, grad_stats_on_device, optim_step, optim_step as step,
    with_reference,
};

use super::golden::{Golden, rule};
use super::set::*;

const ROUNDING: f32 = 2e-6;

pub fn steps_are_those_of_pytorch<B: Backend>() {
    let golden = Golden::read();
    for (name, wanted) in &golden.after {
        let rule = rule(name);
        let tensor = |values: &Vec<f32>, i: usize| shaped::<B>(values, &golden.shapes[i]);
        let starts = golden.start.iter().enumerate();
        let mut sets: Vec<StepTensors<FloatTensor<B>>> =
            starts.map(|(i, start)| first(tensor(start, i), tensor(start, i))).collect();
        for (step, wanted) in wanted.iter().enumerate() {
            let moving = (0..sets.len()).filter(|&i| Golden::moves(step, i));
            let of = moving.clone().map(|i| {
                let gradient = tensor(&golden.gradients[step][i], i);
                StepTensors { gradient, ..sets[i].clone() }
            });
            let moved = optim_step::<B>(of.collect(), &rule, golden.learning_rate);
            for (i, moved) in moving.zip(moved) {
                let gradient = sets[i].gradient.clone();
                sets[i] = next(moved, gradient);
            }
            for (i, set) in sets.iter().enumerate() {
                let what = format!("{name}, step {step}, parameter {i}");
                assert_close(&what, &read::<B>(&set.parameter), &wanted[i], 5e-6);
            }
        }
    }
}

pub fn f16_moves_in_single_precision<B: Backend>() {
    moves_in_single_precision::<B>(FloatDType::F16, 1e-3, 2e-3);
}

/// A parameter of this type ends within `tolerance` of what it would in f32, and moves by more than
/// `step`; what is remembered of it is f32, and so are the squares of a norm.
pub fn moves_in_single_precision<B: Backend>(dtype: FloatDType, step: f32, tolerance: f32) {
    let half = |shape: &[usize], seed| {
        B::float_cast(laid_out::<B>(shape, Layout::Contiguous, seed), dtype)
    };
    let single = |tensor| B::float_cast(tensor, FloatDType::F32);
    for rule in rules() {
        for shape in [[9, 7], [8, 8]] {
            let (p, g) = (half(&shape, 1), half(&shape, 2));
            let mut low = first(p.clone(), g.clone());
            let mut full = first(single(p.clone()), single(g.clone()));
            for number in 0..2 {
                let moved = optim_step::<B>(vec![low], &rule, 0.1).remove(0);
                assert_eq!(moved.parameter.dtype(), DType::from(dtype));
                let state = moved.state.tensors.iter().flatten();
                assert!(state.clone().all(|one| one.dtype() == DType::F32));
                let wanted = optim_step::<B>(vec![full], &rule, 0.1).remove(0);
                let (found, before) = (read::<B>(&moved.parameter), read::<B>(&p));
                assert_close("low", &found, &read::<B>(&wanted.parameter), tolerance);
                assert!(found.iter().zip(before).any(|(a, b)| (a - b).abs() > step));
                if number == 0 {
                    // Sums that are not rounded.
                    for (found, wanted) in state.zip(wanted.state.tensors.iter().flatten()) {
                        assert_close("state", &read::<B>(found), &read::<B>(wanted), 1e-6);
                    }
                }
                (low, full) = (next(moved, g.clone()), next(wanted, single(g.clone())));
            }
        }
    }
    let small = B::float_cast(vector::<B>(&[3e-3, -4e-3]), dtype);
    let (_, stats) = grad_stats::<B>(vec![small], 1.0);
    assert!((stats.norm / 5e-3 - 1.0).abs() < 1e-2, "{stats:?}");
    // Squares that f16 has not, next to f32, written where nothing else holds the gradient.
    let large = B::float_cast(vector::<B>(&[3072.0, -4096.0, 0.0, 0.0]), dtype);
    let set = vec![large, vector::<B>(&[1.5e4, 0.0, 2e4])];
    let (scaled, stats) = grad_stats::<B>(set, 0.25);
    assert_eq!(scaled[0].dtype(), DType::from(dtype));
    assert_close("scaled", &read::<B>(&scaled[0]), &[768.0, -1024.0, 0.0, 0.0], 1e-6);
    let wanted = (1280f64.powi(2) + 6250f64.powi(2)).sqrt();
    assert!((stats.norm / wanted - 1.0).abs() < 1e-5, "{stats:?}");
}

/// Three steps, with the elements after each.
fn steps<B: Backend>(rule: &StepRule, set: &[(&[usize], Layout)]) -> Vec<Vec<Vec<Vec<f32>>>> {
    let gradients = |step: u64| {
        let one = move |(i, (shape, layout)): (usize, &(&[usize], Layout))| {
            laid_out::<B>(shape, *layout, 100 * step + i as u64)
        };
        set.iter().enumerate().map(one).collect::<Vec<_>>()
    };
    let starts = gradients(0).into_iter().zip(gradients(1));
    let mut of: Vec<_> = starts.map(|(parameter, gradient)| first(parameter, gradient)).collect();
    let mut after = Vec::new();
    for number in 2..5 {
        let moved = step::<B>(of, rule, 0.01);
        assert!(moved.iter().all(|one| one.state.time == number as usize - 1));
        after.push(moved.iter().map(read_all::<B>).collect());
        of = moved.into_iter().zip(gradients(number)).map(|(one, g)| next(one, g)).collect();
    }
    after
}

pub fn steps_equal_the_reference<B: Backend>() {
    use Layout::*;
    let sets: [&[(&[usize], Layout)]; 2] = [
        &[
            (&[1], Contiguous),
            (&[31], Contiguous),
            (&[33], Sliced),
            (&[5, 7], Permuted),
            (&[4, 9], Expanded),
            (&[2, 3, 1, 5], Permuted),
            (&[64], Contiguous),
        ],
        // Several chunks, and more than one thread takes.
        &[(&[130, 127], Contiguous), (&[521, 517], Permuted), (&[17, 3], Sliced)],
    ];
    for set in sets {
        for rule in rules() {
            let found = steps::<B>(&rule, set);
            let wanted = with_reference(|| steps::<B>(&rule, set));
            for (i, (found, wanted)) in
                found.iter().flatten().zip(wanted.iter().flatten()).enumerate()
            {
                assert_eq!(found.len(), 1 + rule.remembers());
                for (found, wanted) in found.iter().zip(wanted) {
                    let (step, parameter) = (i / set.len(), i % set.len());
                    let what = format!("{rule:?}, step {step}, {:?}", set[parameter]);
                    assert_close(&what, found, wanted, 1e-5);
                }
            }
        }
    }
}

pub fn shared_tensors_are_not_overwritten<B: Backend>() {
    for rule in rules() {
        let tensor = |seed| laid_out::<B>(&[37, 5], Layout::Contiguous, seed);
        let moved = step::<B>(vec![first(tensor(1), tensor(2))], &rule, 0.1).remove(0);
        let of = next(moved, tensor(3));
        let tensors = |of: &StepTensors<FloatTensor<B>>| {
            let state = of.state.tensors.iter().flatten();
            let all = [&of.parameter, &of.gradient].into_iter().chain(state);
            all.map(read::<B>).collect::<Vec<_>>()
        };
        let before = tensors(&of);
        let once = step::<B>(vec![of.clone()], &rule, 0.1).remove(0);
        assert!(tensors(&of) == before, "{rule:?}");
        let again = step::<B>(vec![of], &rule, 0.1).remove(0);
        assert!(read_all::<B>(&once) == read_all::<B>(&again), "{rule:?}");
        assert!(read::<B>(&once.parameter) != before[0], "{rule:?}");
    }
}

pub fn what_is_not_finite_spreads_as_in_the_reference<B: Backend>() {
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, f32::MAX, 1e-40];
    // Every odd gradient meets every odd parameter, and an ordinary one.
    let count = (odd.len() + 1) * (odd.len() + 1);
    let pick = |i: usize, seed: u64| odd.get(i).copied().unwrap_or(values(count, seed)[i]);
    let side = odd.len() + 1;
    let p: Vec<f32> = (0..count).map(|i| pick(i / side, 1)).collect();
    let g: Vec<f32> = (0..count).map(|i| pick(i % side, 2)).collect();
    for rule in rules() {
        let two = || {
            let moved = step::<B>(vec![first(vector::<B>(&p), vector::<B>(&g))], &rule, 0.1);
            let moved = moved.into_iter().map(|one| next(one, vector::<B>(&values(count, 3))));
            read_all::<B>(&step::<B>(moved.collect(), &rule, 0.1)[0])
        };
        let (found, wanted) = (two(), with_reference(two));
        for (found, wanted) in found.iter().zip(&wanted) {
            assert_close(&format!("{rule:?}"), found, wanted, 1e-5);
        }
    }
}

/// The norm, in double precision.
fn norm(gradients: &[Vec<f32>]) -> f64 {
    let squares = gradients.iter().flatten().map(|&value| f64::from(value).powi(2));
    squares.sum::<f64>().sqrt()
}

pub fn gradients_are_scaled_and_measured<B: Backend>() {
    use Layout::*;
    let shapes: [(&[usize], Layout); 7] = [
        (&[64, 68], Contiguous),
        (&[1], Contiguous),
        (&[33], Sliced),
        (&[5, 7], Permuted),
        (&[4, 9], Expanded),
        (&[2, 3, 5], Contiguous),
        (&[521, 517], Contiguous),
    ];
    for factor in [1.0, 1.0 / 65536.0, 3.0] {
        let seeds = shapes.iter().zip(5..);
        let given: Vec<_> =
            seeds.map(|((shape, layout), i)| laid_out::<B>(shape, *layout, i)).collect();
        let read_set = |set: &[FloatTensor<B>]| set.iter().map(read::<B>).collect::<Vec<_>>();
        let before = read_set(&given);
        let wanted: Vec<Vec<f32>> =
            before.iter().map(|g| g.iter().map(|g| g * factor as f32).collect()).collect();
        let (found, stats) = grad_stats::<B>(given.clone(), factor);
        assert!(read_set(&given) == before, "held by someone else");
        for (found, wanted) in read_set(&found).iter().zip(&wanted) {
            assert_close("scaled", found, wanted, ROUNDING * factor as f32);
        }
        let (_, plain) = with_reference(|| grad_stats::<B>(given, factor));
        // Plain operations add up a quarter of a million squares in f32, on some backends in a row.
        for (stats, bound) in [(stats, 1e-5), (plain, 1e-3)] {
            assert!(stats.is_finite());
            assert!((stats.norm / norm(&wanted) - 1.0).abs() < bound, "{stats:?}");
        }
    }
}

pub fn gradients_that_are_not_finite_are_found<B: Backend>() {
    let (nan, infinity) = (f32::NAN, f32::INFINITY);
    for (odd, wanted) in [
        (&[nan][..], f64::NAN),
        (&[infinity], f64::INFINITY),
        (&[-infinity], f64::INFINITY),
        (&[infinity, nan], f64::NAN),
    ] {
        for place in [0, 30, 32, 40_000] {
            let mut large = values(40_010, 1);
            large[place..place + odd.len()].copy_from_slice(odd);
            let set = || vec![vector::<B>(&values(33, 2)), vector::<B>(&large)];
            let (found, plain) =
                (grad_stats::<B>(set(), 1.0).1, with_reference(|| grad_stats::<B>(set(), 1.0).1));
            for stats in [found, plain] {
                assert!(!stats.is_finite());
                let same = stats.norm == wanted || stats.norm.is_nan() && wanted.is_nan();
                assert!(same, "{odd:?} at {place}: {stats:?}");
            }
        }
    }
}

pub fn statistics_that_are_read_later_are_the_same<B: Backend>() {
    let values = |odd: &[f32]| [&values(40_010, 1), odd].concat();
    for large in [&[][..], &[f32::MAX], &[f32::NAN], &[f32::NEG_INFINITY]].map(values) {
        let set = || vec![vector::<B>(&[]), vector::<B>(&values(&[3.0])), vector::<B>(&large)];
        for gradients in [set(), Vec::new(), vec![vector::<B>(&[0.0; 7])]] {
            let wanted = grad_stats::<B>(gradients.clone(), 1.0).1.norm;
            let unread = grad_stats_on_device::<B>(gradients);
            let read: Vec<_> = unread.tensors().map(|part| part.into_data()).collect();
            let found = unread.read(read).norm;
            let same = found == wanted || found.is_nan() && wanted.is_nan();
            assert!(same || (found / wanted - 1.0).abs() < 1e-5, "{found}, not {wanted}");
        }
    }
}

pub fn squares_do_not_overflow<B: Backend>() {
    for value in [f32::MAX, 1e-30, -3e25] {
        let set = || vec![vector::<B>(&[value; 100]), vector::<B>(&[value / 2.0; 44])];
        let wanted = f64::from(value.abs()) * 111f64.sqrt();
        let found = grad_stats::<B>(set(), 1.0).1.norm;
        let plain = with_reference(|| grad_stats::<B>(set(), 1.0).1.norm);
        for found in [found, plain] {
            assert!((found / wanted - 1.0).abs() < 1e-5, "{found}, not {wanted}");
        }
    }
}

pub fn nothing_is_a_set_of_norm_zero<B: Backend>() {
    for set in [vec![], vec![vector::<B>(&[])], vec![vector::<B>(&[0.0; 5]), vector::<B>(&[])]] {
        for factor in [1.0, 2.0] {
            let (same, stats) = grad_stats::<B>(set.clone(), factor);
            assert_eq!((same.len(), stats.norm), (set.len(), 0.0));
        }
    }
    for rule in rules() {
        assert!(step::<B>(vec![], &rule, 0.1).is_empty());
        let mut of = vec![first(vector::<B>(&[]), vector::<B>(&[]))];
        for time in 1..3 {
            let moved = step::<B>(of, &rule, 0.1).remove(0);
            assert_eq!(moved.state.time, time);
            assert_eq!(read_all::<B>(&moved), vec![Vec::<f32>::new(); 1 + rule.remembers()]);
            of = vec![next(moved, vector::<B>(&[]))];
        }
    }
}
