//! What is not finite reaches what it should.

use super::reference::{reference, stack};
use super::{Case, EPSILON, bodies};

#[test]
fn a_nan_pixel_reaches_every_output_through_batch_statistics() {
    let mut case = Case::new(stack([3, 1, 8, 8], &[16, 16], 1, true));
    case.x[5] = f32::NAN;
    for body in bodies() {
        let (out, gradients) = case.run(body);
        assert!(out.y.iter().chain(&out.moments).all(|v| v.is_nan()));
        assert!(gradients.dparams[..9 * 16].iter().all(|v| v.is_nan()));
    }
}

#[test]
fn a_nan_pixel_reaches_its_neighbours_through_given_statistics() {
    for pool in [true, false] {
        let mut case = Case::new(stack([3, 3, 16, 16], &[5, 6], 1, pool)).running();
        case.x[0] = f32::NAN;
        let wanted = reference(
            &case.shape,
            &case.x,
            &case.params,
            case.running.as_deref(),
            EPSILON,
            &case.dy,
        );
        for body in bodies() {
            let (out, gradients) = case.run(body);
            for (got, wanted) in out.y.iter().zip(&wanted.y) {
                assert!(got.is_nan() || !wanted.is_nan(), "a NaN was lost");
            }
            assert!(out.y.last().is_some_and(|v| v.is_finite()), "a far pixel is untouched");
            assert!(gradients.dparams[..9 * 3].iter().any(|v| v.is_nan()));
        }
    }
}

#[test]
fn a_bias_that_is_not_finite_is_not_cancelled() {
    let mut case = Case::new(stack([2, 1, 4, 4], &[3], 1, false));
    case.params[27] = f32::NAN;
    let out = case.forward(bodies()[0]);
    assert!(out.y[..16].iter().all(|v| v.is_nan()) && out.moments[0].is_nan());
    assert!(out.y[16..48].iter().all(|v| v.is_finite()));
}
