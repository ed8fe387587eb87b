//! Memory of the passes: formulas against what the passes keep.

use fewshot_simd::buffers::{kept_floats, release_buffers};
use fewshot_simd::images::Images;

use super::super::backward::backward;
use super::super::parameters::SavedParameters;
use super::{BlockShape, Case, StackShape, parts};
use crate::environment::chosen;

fn floats<'a>(maps: impl IntoIterator<Item = &'a Images>, n: usize) -> usize {
    maps.into_iter().map(|images| images.group(0..n).len()).sum()
}

#[test]
fn saved_floats_are_those_that_the_passes_save() {
    let block = |channels_out, stride, pool| BlockShape { channels_out, stride, pool };
    let cases = [
        (1, vec![block(64, 1, true), block(64, 1, true)]),
        (5, vec![block(20, 2, false), block(5, 1, true)]),
    ];
    for (c, blocks) in cases {
        let case = Case::new(StackShape { n: 3, c, h: 14, w: 9, blocks });
        let shape = &case.shape;
        let saved = case.forward(chosen()).saved.expect("the forward pass saves");
        let weight = |of: &SavedParameters| of.weight.len();
        let weights: usize = saved.parameters.iter().map(weight).sum();
        let maps = floats(saved.inputs.iter().chain(&saved.convs), 3);
        assert_eq!(shape.saved_floats(), maps + weights, "{shape:?}");

        let mut gradients = vec![0.0; case.params.len()];
        let to = &mut parts(shape, &mut gradients);
        let (_, intermediate) = backward(&saved, &case.dy, (false, true), to);
        let intermediate = intermediate.expect("the backward pass saves");
        assert_eq!(shape.intermediate_grad_floats(), floats(&intermediate.0, 3), "{shape:?}");
    }
}

#[test]
fn the_pool_holds_saved_maps_and_workspace() {
    let block = |pool| BlockShape { channels_out: 64, stride: 1, pool };
    let blocks = vec![block(true), block(false), block(true)];
    let case = Case::new(StackShape { n: 10, c: 3, h: 40, w: 40, blocks });
    let step = || {
        let saved = case.forward(chosen()).saved.expect("the forward pass saves");
        let mut gradients = vec![0.0; case.params.len()];
        backward(&saved, &case.dy, (false, false), &mut parts(&case.shape, &mut gradients));
    };
    let expected = (case.shape.saved_floats() + case.shape.workspace_floats(1)) as f64;
    // Tests beside this one leave buffers too, and take some: the median of an odd number counts.
    let mut ratios = [(); 5].map(|()| {
        release_buffers();
        step();
        kept_floats() as f64 / expected
    });
    ratios.sort_by(f64::total_cmp);
    assert!((0.7..1.4).contains(&ratios[2]), "{ratios:?} of {expected} floats");
    release_buffers();
}
