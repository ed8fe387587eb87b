//! No result depends on the number of threads.

use super::reference::stack;
use super::tangent::CaseWithTangents;
use super::{Case, Precision, bodies};

/// Asserts that the bits of what `run` returns are those of any number of threads.
fn assert_same_on_all_threads(run: impl Fn() -> Vec<f32> + Sync) {
    let results = [1, 2, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let all = pool.expect("threads").install(&run);
        all.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
    });
    assert!(results[0] == results[1] && results[0] == results[2]);
}

#[test]
fn threads_do_not_change_a_bit() {
    let case = Case::new(stack([37, 3, 12, 13], &[33, 16], 1, true));
    let low = Case::new(stack([37, 3, 12, 13], &[32, 64], 1, true));
    for case in [case, low.in_precision(Precision::MixedBf16)] {
        assert_same_on_all_threads(|| {
            let (out, gradients) = case.run(bodies()[0]);
            [out.y, out.moments, gradients.dx.unwrap_or_default(), gradients.dparams].concat()
        });
    }
}

#[test]
fn threads_do_not_change_a_bit_of_a_tangent() {
    let case = CaseWithTangents::new(Case::new(stack([37, 3, 12, 13], &[33, 16], 1, true)));
    assert_same_on_all_threads(|| {
        let (y, gradients) = case.run(bodies()[0]);
        [y, gradients.dx.unwrap_or_default(), gradients.dparams].concat()
    });
}
