//! Memory of the passes, as it is told and as they take it.

use fewshot_simd::buffers::{kept_floats, release_buffers};
use fewshot_simd::images::Images;

use super::super::backward::{IntermediateGrads, backward};
use super::super::buffer_pool_model::BufferPoolModel;
use super::super::jvp::{SavedTangent, jvp};
use super::super::jvp_of_vjp::jvp_of_vjp;
use super::super::memory::StackPass;
use super::super::norm::Norm;
use super::super::per_batch::PerBatch;
use super::super::plan::SavedParameters;
use super::{BlockShape, Case, InstructionSet, Precision, Saved, StackShape, bodies, parts};

impl Case {
    fn saved(&self, body: &'static dyn InstructionSet) -> Saved {
        self.forward(body).saved.expect("kept, as asked")
    }

    fn intermediate_grads(&self, saved: &Saved) -> IntermediateGrads {
        let mut gradients = vec![0.0; self.params.len()];
        let to = &mut parts(&self.shape, &mut gradients);
        let (_, kept) = backward(saved, &self.dy, (false, true), to);
        kept.expect("kept, as asked")
    }

    fn tangent(&self, saved: &Saved) -> SavedTangent {
        jvp(saved, None, &self.parameters()).1
    }
}

fn floats<'a>(
    maps: impl IntoIterator<Item = &'a Images>,
    norms: &[PerBatch<Norm>],
    n: usize,
) -> usize {
    let maps = maps.into_iter().map(|images| images.group(0..n).len()).sum::<usize>();
    let norm = |n: &Norm| n.mean.len() + n.inv_std.len() + n.scale.len() + n.shift.len();
    maps + norms.iter().flat_map(PerBatch::values).map(norm).sum::<usize>()
}

#[test]
fn floats_are_those_that_the_passes_save() {
    let block = |channels_out, stride, pool| BlockShape { channels_out, stride, pool };
    let cases = [
        (1, vec![block(64, 1, true), block(64, 1, true)]),
        (5, vec![block(20, 2, false), block(5, 1, true)]),
    ];
    for (c, blocks) in cases {
        let count = blocks.len();
        let case = Case::new(StackShape { n: 3, c, h: 14, w: 9, blocks });
        let shape = &case.shape;
        for body in bodies() {
            let of = StackPass::new(body.tile(), (Precision::F32, None), shape, [1, 1]);
            let saved = case.saved(body);
            let maps = saved.inputs.iter().chain(&saved.convs);
            let of_block = |of: &SavedParameters| of.weight.len() + of.gamma.len() + of.beta.len();
            let parameters: usize = saved.parameters.iter().map(of_block).sum();
            assert_eq!(of.saved(), floats(maps, &saved.norms, 3) + parameters, "{shape:?}");
            let found = floats(&case.intermediate_grads(&saved).0, &[], 3);
            assert_eq!(of.intermediate_grads().iter().sum::<usize>(), found, "{shape:?}");
            let tangent = case.tangent(&saved);
            // Of the last, the output, only images at hand are there.
            let maps = tangent.inputs[..count].iter().chain(&tangent.convs);
            let weights: usize = tangent.weights.iter().map(|weight| weight.len()).sum();
            let found = floats(maps, &tangent.norms, 3) + weights;
            assert_eq!(of.saved_tangent(), found, "{shape:?}");
        }
    }
}

/// Floats in the pool as modelled and as measured, after passes of stacks and then after a
/// Hessian-vector product.
fn pool_after_passes(body: &'static dyn InstructionSet, precision: Precision) -> [[usize; 2]; 2] {
    // Tiles of AMX take 32 channels.
    let channels = if precision == Precision::F32 { 20 } else { 32 };
    let block = |pool| BlockShape { channels_out: channels, stride: 1, pool };
    let stack = |(c, side)| {
        Case::new(StackShape {
            n: 10,
            c,
            h: side,
            w: side,
            blocks: [false, true].map(block).into(),
        })
        .in_precision(precision)
    };
    let cases = [(3, 40), (channels, 20), (channels, 10)].map(stack);
    release_buffers();
    let mut model = BufferPoolModel::by(body, precision);
    for case in &cases {
        case.pass(body, false);
        let used = model.forward(&case.shape, 1, false);
        model.release(used);
    }
    for (index, case) in cases.iter().enumerate().rev() {
        let (saved, mut gradients) = (case.saved(body), vec![0.0; case.params.len()]);
        let to = &mut parts(&case.shape, &mut gradients);
        backward(&saved, &case.dy, (index > 0, false), to);
        let saved_buffers = model.forward(&case.shape, 1, true);
        let intermediate_grads = model.backward(&case.shape, 1, index > 0, false);
        [saved_buffers, intermediate_grads].into_iter().for_each(|used| model.release(used));
    }
    let plain = [model.floats(), kept_floats()];

    let case = &cases[1];
    let saved = case.saved(body);
    let intermediate_grads = case.intermediate_grads(&saved);
    let tangent = case.tangent(&saved);
    let mut gradients = vec![0.0; case.params.len()];
    let to = &mut parts(&case.shape, &mut gradients);
    let grads = (&intermediate_grads, Some(&*case.dy));
    jvp_of_vjp(&saved, &tangent, grads, false, to);
    drop((saved, tangent, intermediate_grads));
    let saved_buffers = model.forward(&case.shape, 1, true);
    let intermediate_grads = model.backward(&case.shape, 1, false, true);
    model.hvp(&case.shape, 1);
    [saved_buffers, intermediate_grads].into_iter().for_each(|used| model.release(used));
    [plain, [model.floats(), kept_floats()]]
}

#[test]
fn the_pool_is_as_large_as_modelled() {
    let all = bodies().into_iter();
    for (body, precision) in
        all.flat_map(|body| [Precision::F32, Precision::MixedBf16].map(|how| (body, how)))
    {
        let near =
            |[modelled, found]: [usize; 2]| (modelled as f64 / found as f64 - 1.0).abs() < 0.1;
        let mut last = [[0; 2]; 2];
        // Tests beside this one leave buffers too, and take some.
        let alone = (0..20).any(|_| {
            last = pool_after_passes(body, precision);
            last.into_iter().all(near)
        });
        assert!(alone, "{last:?} modelled and found by {}, {precision:?}", body.name());
    }
    release_buffers();
}
