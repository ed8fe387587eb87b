//! Tiles and sums over lanes on a device: one launch over all tensors.

use burn::tensor::DType;
use burn::tensor::ops::FloatTensor;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::prelude::*;

use super::{LaneCall, OverLanes};
use crate::cube::{
    Vectors, arrays, empty_all, into_contiguous, launch, load, most_tensors, pick, row_of_cubes,
    spot_of, store,
};
use crate::registry::Runs;

/// Units of a cube.
const UNITS: usize = 256;

/// Units that share the lanes of a vector at most, a power of two.
const MOST_SHARES: usize = 8;

/// So many units for each vector of a tensor in one lane, which they write to all lanes, or add up over them: if there are
/// eight, each takes every eighth lane.
#[cube(launch_unchecked)]
fn lanes_kernel<N: Size>(
    x: &Sequence<Array<Vector<f32, N>>>,
    out: &mut Sequence<Array<Vector<f32, N>>>,
    starts: &Sequence<usize>,
    lengths: &Sequence<usize>,
    vectors: usize,
    lanes: usize,
    #[comptime] sums: bool,
    #[comptime] shares: usize,
) {
    let in_cube = comptime!(UNITS / shares);
    let unit = UNIT_POS as usize;
    let (place, share) = (unit % in_cube, unit / in_cube);
    // Units behind the last vector take that, for all of a cube wait for each other; they write nothing.
    let vector = CUBE_POS * in_cube + place;
    let spot = spot_of(starts, min(vector, vectors - 1));
    let length = pick(lengths, spot.of);
    if comptime!(sums) {
        let mut shared = SharedMemory::<Vector<f32, N>>::new(UNITS);
        let mut sum = Vector::<f32, N>::new(0.0f32);
        let mut lane = share;
        while lane < lanes {
            sum += load::<Vector<f32, N>>(x, spot.of, lane * length + spot.at);
            lane += shares;
        }
        shared[unit] = sum;
        sync_cube();
        if share == 0 && vector < vectors {
            #[unroll]
            for other in 1..shares {
                sum += shared[comptime!(other * in_cube) + place];
            }
            store(out, spot.of, spot.at, sum);
        }
    } else if vector < vectors {
        let value = load::<Vector<f32, N>>(x, spot.of, spot.at);
        let mut lane = share;
        while lane < lanes {
            store(out, spot.of, lane * length + spot.at, value);
            lane += shares;
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
        let shares = lanes.next_power_of_two().min(MOST_SHARES);
        for (x, to) in xs.chunks(most).zip(results.chunks(most)) {
            let lengths: Vec<_> = x.iter().map(length).collect();
            let launch = Vectors::of(client, &lengths, size_of::<f32>());
            let cubes = launch.total.div_ceil(UNITS / shares);
            // SAFETY: the longer array of a place has `lanes` times the vectors of the other; units behind the last of
            // all read that and write nothing. Nothing else holds the memory that is written to.
            unsafe {
                launch!(lanes_kernel, row_of_cubes(client, cubes, UNITS as u32), launch.width;;
                    arrays(x), arrays(to), launch.starts(),
                    lengths.iter().map(|length| length / launch.width).collect(), launch.total, lanes,
                    sums, shares);
            }
        }
        results
    }
}
