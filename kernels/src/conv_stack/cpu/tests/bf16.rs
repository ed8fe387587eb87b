//! The stack in bf16: the same from every body.

use super::tangent::CaseWithTangents;
use super::{Case, Precision, bodies, distance, stack};

/// That all bodies agree but for sums that round to neighbours. Under given statistics: those of the
/// batch spread one such over all pixels.
fn check(case: Case) {
    let case = CaseWithTangents::new(case.running().in_precision(Precision::MixedBf16));
    let outcome = |body| {
        let (out, first) = case.case.run(body);
        let (tangent, second) = case.run(body);
        let gradients = [first, second].map(|all| [all.dx.expect("asked for"), all.dparams]);
        [vec![out.y, tangent], gradients.concat()].concat()
    };
    let wanted = outcome(*bodies().last().expect("one at least"));
    for body in bodies() {
        for (index, (found, wanted)) in outcome(body).iter().zip(&wanted).enumerate() {
            let wanted: Vec<_> = wanted.iter().map(|&value| f64::from(value)).collect();
            let error = distance(found, &wanted);
            let (name, shape) = (body.name(), &case.case.shape);
            assert!(error < 2e-3, "{name}, {index}: {error:e} for {shape:?}");
        }
    }
}

#[test]
fn bodies_agree_in_bf16() {
    for (n, side) in [(3, 1), (3, 3), (3, 7), (1, 14)] {
        check(Case::new(stack([n, 32, side, side], &[64, 32], 1, false)));
    }
    check(Case::new(stack([1, 32, 28, 28], &[32], 1, false)));
    for n in [1, 19] {
        check(Case::new(stack([n, 1, 13, 9], &[32, 64, 32], 1, true)));
    }
    check(Case::new(stack([5, 32, 9, 11], &[32, 40, 64], 1, true)));
    check(Case::new(stack([5, 32, 9, 11], &[32, 64], 2, false)));
}

#[test]
fn a_nan_pixel_reaches_every_output_in_bf16() {
    let case = Case::new(stack([3, 1, 8, 8], &[32, 32, 32], 1, true));
    let mut case = case.in_precision(Precision::MixedBf16);
    case.x[5] = f32::NAN;
    for body in bodies() {
        let (out, gradients) = case.run(body);
        assert!(out.y.iter().chain(&out.moments).all(|v| v.is_nan()), "{}", body.name());
        assert!(gradients.dparams[..9 * 32].iter().all(|v| v.is_nan()), "{}", body.name());
    }
}
