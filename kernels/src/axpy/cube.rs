//! Lists on a device: one launch over all tensors.

use burn::tensor::ops::FloatTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::prelude::*;

use super::AxpyAll;
use crate::cube::{
    Vectors, arrays, empty_all, into_contiguous, launch, load, most_tensors, spot, store,
};
use crate::registry::Runs;

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> Runs<AxpyAll>
    for CubeBackend<R, F, I, BT>
{
    fn run(
        (ys, xs): (Option<Vec<FloatTensor<Self>>>, Vec<FloatTensor<Self>>),
        &AxpyAll { alpha }: &AxpyAll,
    ) -> Vec<FloatTensor<Self>> {
        let contiguous = |of: Vec<_>| of.into_iter().map(into_contiguous).collect::<Vec<_>>();
        let (ys, xs) = (ys.map(contiguous), contiguous(xs));
        let shapes = xs.iter().map(|x| x.meta.shape().clone()).collect();
        let sums = empty_all(&xs[0], shapes, xs[0].dtype);
        let client = &xs[0].client;
        let most = most_tensors(client, if ys.is_some() { 3 } else { 2 }, 0);
        for (place, (x, sum)) in xs.chunks(most).zip(sums.chunks(most)).enumerate() {
            let y = ys.as_ref().map_or(&[][..], |ys| &ys[place * most..][..x.len()]);
            let lengths: Vec<_> = x.iter().map(|x| x.meta.num_elements()).collect();
            let launch = Vectors::of(client, &lengths, size_of::<f32>());
            // SAFETY: arrays of one place have as many vectors, and units stop at the last of all. Nothing
            // else holds the memory that is written to.
            unsafe {
                launch!(axpy_kernel, launch.launch(client), launch.width;;
                    arrays(y), arrays(x), arrays(sum), launch.starts(), launch.total, alpha as f32,
                    ys.is_some());
            }
        }
        sums
    }
}

/// `y + alpha x` where there is a `y`, else `alpha x`.
#[cube(launch_unchecked)]
fn axpy_kernel<N: Size>(
    y: &Sequence<Array<Vector<f32, N>>>,
    x: &Sequence<Array<Vector<f32, N>>>,
    sum: &mut Sequence<Array<Vector<f32, N>>>,
    starts: &Sequence<usize>,
    vectors: usize,
    alpha: f32,
    #[comptime] added: bool,
) {
    let spot = spot(starts, vectors);
    let mut value = load::<Vector<f32, N>>(x, spot.of, spot.at) * Vector::new(alpha);
    if added {
        value = load::<Vector<f32, N>>(y, spot.of, spot.at) + value;
    }
    store(sum, spot.of, spot.at, value);
}
