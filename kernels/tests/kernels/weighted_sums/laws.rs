//! What holds on every backend.

use burn::tensor::backend::Backend;
use fewshot_kernels::{weighted_sums, with_reference};

use crate::rank_update::laws::{given, read, tensor};
use crate::steps::set::{Layout, assert_close, values};

pub fn sums_equal_the_reference<B: Backend>() {
    use Layout::*;
    // The last two are work for more than one thread, and the very last for more than one block.
    let sizes = [[1, 1], [31, 33], [33, 31], [64, 16], [5, 100], [401, 203]];
    let examples = [1, 2, 15, 16, 17, 31, 33, 64, 257];
    for ([inputs, neurons], examples) in
        sizes.into_iter().flat_map(|size| examples.map(|examples| (size, examples)))
    {
        for layout in [Contiguous, Permuted, Expanded, Sliced] {
            let sums = || {
                let x = tensor::<B>([examples, inputs], layout, 1);
                weighted_sums(x, tensor([neurons, inputs], layout, 2))
            };
            let (found, wanted) = (sums(), with_reference(sums));
            assert_eq!(found.dims(), [examples, neurons]);
            let what = format!("{examples} of {inputs} to {neurons}, {layout:?}");
            assert_close(&what, &read(&found), &read(&wanted), 1e-5);
        }
    }
}

pub fn what_is_not_finite_spreads_as_in_the_reference<B: Backend>() {
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, 1.0];
    let (examples, neurons, inputs) = (18, 7, 3);
    // Every odd value of an example meets every one of a neuron, beside ordinary ones.
    let with_odd = |rows: usize, seed| {
        let mut all = values(rows * inputs, seed);
        all.chunks_exact_mut(inputs).enumerate().for_each(|(row, of)| of[1] = odd[row % odd.len()]);
        all
    };
    let (x, weight) = (with_odd(examples, 1), with_odd(neurons, 2));
    let sums =
        || weighted_sums::<B>(given(&x, [examples, inputs]), given(&weight, [neurons, inputs]));
    let (found, wanted) = (read(&sums()), read(&with_reference(sums)));
    assert!(wanted.iter().any(|sum| sum.is_nan()) && wanted.iter().any(|sum| sum.is_infinite()));
    assert!(wanted.iter().any(|sum| sum.is_finite()));
    assert_close("sums", &found, &wanted, 1e-5);
}
