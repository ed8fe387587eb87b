//! Adam and AdamW.

use burn_cubecl::CubeRuntime;
use cubecl::prelude::*;

use super::Moving;
use crate::cube::wide;
use crate::optim_step::factors::{Decay, Moments};

/// A moment that takes in `g`.
#[cube]
pub fn moment<N: Size>(
    m: &Array<Vector<f32, N>>,
    at: usize,
    g: Vector<f32, N>,
    old: f32,
    new: f32,
    #[comptime] fresh: bool,
) -> Vector<f32, N> {
    let mut new_moment = g * Vector::new(new);
    if !fresh {
        new_moment = new_moment + m[at] * Vector::new(old);
    }
    new_moment
}

/// `first * m / (root * sqrt(v) + epsilon)`
#[cube]
pub fn ratio<N: Size>(
    m: Vector<f32, N>,
    v: Vector<f32, N>,
    first: f32,
    root: f32,
    epsilon: f32,
) -> Vector<f32, N> {
    m * Vector::new(first) / (Vector::sqrt(v) * Vector::new(root) + Vector::new(epsilon))
}

#[cube(launch_unchecked)]
fn adam_kernel<F: Float, N: Size>(
    p: &mut Array<Vector<F, N>>,
    g: &Array<Vector<F, N>>,
    m: &mut Array<Vector<f32, N>>,
    v: &mut Array<Vector<f32, N>>,
    vectors: usize,
    l2: f32,
    keep: f32,
    rate: f32,
    beta_1: f32,
    rest_1: f32,
    beta_2: f32,
    rest_2: f32,
    first: f32,
    root: f32,
    epsilon: f32,
    #[comptime] pulled: bool,
    #[comptime] fresh: bool,
    #[define(F)] _dtype: StorageType,
) {
    let at = ABSOLUTE_POS;
    if at >= vectors {
        terminate!();
    }
    let old = wide(p[at]);
    let mut g = wide(g[at]);
    if pulled {
        g = g + old * Vector::new(l2);
    }
    let new_m = moment(m, at, g, beta_1, rest_1, fresh);
    let new_v = moment(v, at, g * g, beta_2, rest_2, fresh);
    m[at] = new_m;
    v[at] = new_v;
    let ratio = ratio(new_m, new_v, first, root, epsilon);
    p[at] = Vector::cast_from(old * Vector::new(keep) - ratio * Vector::new(rate));
}

pub fn step<R: CubeRuntime>(of: &Moving<R>, decay: &Decay, by: &Moments, rate: f64) {
    let [vectors, width] = of.vectors();
    let (count, dim) = of.elementwise(vectors);
    // SAFETY: all arrays have `vectors` vectors, and units stop there. Nothing else holds the memory
    // of `p` and of the moments.
    unsafe {
        adam_kernel::launch_unchecked::<R>(
            &of.p.client,
            count,
            dim,
            width,
            of.p.clone().into_array_arg(),
            of.g.clone().into_array_arg(),
            of.state(0),
            of.state(1),
            vectors,
            decay.l2 as f32,
            decay.keep as f32,
            rate as f32,
            by.beta_1 as f32,
            (1.0 - by.beta_1) as f32,
            by.beta_2 as f32,
            (1.0 - by.beta_2) as f32,
            by.first as f32,
            by.root as f32,
            by.epsilon as f32,
            decay.l2 != 0.0,
            of.fresh,
            of.dtype(),
        );
    }
}
