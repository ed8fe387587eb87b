//! Tiles and sums over lanes on a device: one launch over all tensors.

use burn::tensor::DType;
use burn::tensor::ops::FloatTensor;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::prelude::*;

use super::{LaneCall, OverLanes};
use crate::cube::{
    Vectors, arrays, empty_all, into_contiguous, launch, load, most_tensors, pick, spot, store,
};
use crate::registry::Runs;

/// A unit for each vector of what a tensor has in one lane, which it writes to all of them, or adds up
/// over them.
#[cube(launch_unchecked)]
fn lanes_kernel<N: Size>(
    x: &Sequence<Array<Vector<f32, N>>>,
    out: &mut Sequence<Array<Vector<f32, N>>>,
    starts: &Sequence<usize>,
    lengths: &Sequence<usize>,
    vectors: usize,
    lanes: usize,
    #[comptime] sums: bool,
) {
    let spot = spot(starts, vectors);
    let length = pick(lengths, spot.of);
    if comptime!(sums) {
        let mut sum = Vector::<f32, N>::new(0.0f32);
        for lane in 0..lanes {
            sum += load::<Vector<f32, N>>(x, spot.of, lane * length + spot.at);
        }
        store(out, spot.of, spot.at, sum);
    } else {
        let value = load::<Vector<f32, N>>(x, spot.of, spot.at);
        for lane in 0..lanes {
            store(out, spot.of, lane * length + spot.at, value);
        }
    }
}

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> Runs<LaneCall>
    for CubeBackend<R, F, I, BT>
{
    fn run(
        xs: Vec<FloatTensor<Self>>,
        &LaneCall { lanes, over }: &LaneCall,
    ) -> Vec<FloatTensor<Self>> {
        let sums = over == OverLanes::Summed;
        let xs: Vec<_> = xs.into_iter().map(into_contiguous).collect();
        // Of one lane.
        let length = |x: &CubeTensor<R>| x.meta.num_elements() / if sums { lanes } else { 1 };
        let copies = if sums { 1 } else { lanes };
        let shapes = xs.iter().map(|x| [copies * length(x)].into()).collect();
        let results = empty_all(&xs[0], shapes, DType::F32);
        let client = &xs[0].client;
        let most = most_tensors(client, 2, 0);
        for (x, to) in xs.chunks(most).zip(results.chunks(most)) {
            let lengths: Vec<_> = x.iter().map(length).collect();
            let launch = Vectors::of(client, &lengths, size_of::<f32>());
            // SAFETY: the longer array of a place has `lanes` times the vectors of the other, and units stop
            // at the last of all. Nothing else holds the memory that is written to.
            unsafe {
                launch!(lanes_kernel, launch.launch(client), launch.width;;
                    arrays(x), arrays(to), launch.starts(),
                    lengths.iter().map(|length| length / launch.width).collect(), launch.total, lanes,
                    sums);
            }
        }
        results
    }
}
