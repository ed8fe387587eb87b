//! Adam and AdamW.

use burn_cubecl::CubeRuntime;
use cubecl::prelude::*;

use super::Group;
use crate::cube::{launch, load, spot, store, wide};
use crate::optim_step::factors::{Decay, Moments};

/// The moment at place `at` of tensor `of`, once it has taken in `g`.
#[cube]
pub fn moment<N: Size>(
    m: &Sequence<Array<Vector<f32, N>>>,
    of: usize,
    at: usize,
    g: Vector<f32, N>,
    old: f32,
    new: f32,
    #[comptime] fresh: bool,
) -> Vector<f32, N> {
    let mut new_moment = g * Vector::new(new);
    if !fresh {
        new_moment = new_moment + load::<Vector<f32, N>>(m, of, at) * Vector::new(old);
    }
    new_moment
}

/// [`Moments`] in f32, and what is left of one beside each share.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct MomentFactors {
    pub beta_1: f32,
    pub rest_1: f32,
    pub beta_2: f32,
    pub rest_2: f32,
    pub first: f32,
    pub root: f32,
    pub epsilon: f32,
}

/// The factors of a launch.
pub fn moment_factors<R: CubeRuntime>(of: &Moments) -> MomentFactorsLaunch<R> {
    MomentFactorsLaunch::new(
        of.beta_1 as f32,
        (1.0 - of.beta_1) as f32,
        of.beta_2 as f32,
        (1.0 - of.beta_2) as f32,
        of.first as f32,
        of.root as f32,
        of.epsilon as f32,
    )
}

/// `first * m / (root * sqrt(v) + epsilon)`
#[cube]
pub fn ratio<N: Size>(m: Vector<f32, N>, v: Vector<f32, N>, by: &MomentFactors) -> Vector<f32, N> {
    let root = Vector::sqrt(v) * Vector::new(by.root) + Vector::new(by.epsilon);
    m * Vector::new(by.first) / root
}

#[cube(launch_unchecked)]
fn adam_kernel<F: Float, N: Size>(
    p: &mut Sequence<Array<Vector<F, N>>>,
    g: &Sequence<Array<Vector<F, N>>>,
    m: &mut Sequence<Array<Vector<f32, N>>>,
    v: &mut Sequence<Array<Vector<f32, N>>>,
    starts: &Sequence<usize>,
    vectors: usize,
    l2: f32,
    keep: f32,
    rate: f32,
    by: &MomentFactors,
    #[comptime] pulled: bool,
    #[comptime] fresh: bool,
    #[define(F)] _dtype: StorageType,
) {
    let spot = spot(starts, vectors);
    let old = wide(load::<Vector<F, N>>(p, spot.of, spot.at));
    let mut g = wide(load::<Vector<F, N>>(g, spot.of, spot.at));
    if pulled {
        g = g + old * Vector::new(l2);
    }
    let new_m = moment(m, spot.of, spot.at, g, by.beta_1, by.rest_1, fresh);
    let new_v = moment(v, spot.of, spot.at, g * g, by.beta_2, by.rest_2, fresh);
    store(m, spot.of, spot.at, new_m);
    store(v, spot.of, spot.at, new_v);
    let ratio = ratio(new_m, new_v, by);
    let new = old * Vector::new(keep) - ratio * Vector::new(rate);
    store(p, spot.of, spot.at, Vector::cast_from(new));
}

pub fn step<R: CubeRuntime>(of: &Group<'_, R>, decay: &Decay, by: &Moments, rate: f64) {
    for of in of.batches(4, 0) {
        let launch = of.vectors();
        // SAFETY: every array has the vectors of its parameter, and units stop at the last of all.
        // Nothing else holds the memory of the parameters and of the moments.
        unsafe {
            launch!(adam_kernel, launch.launch(of.client()), launch.width;;
                of.parameters(), of.gradients(), of.state(0), of.state(1), launch.starts(),
                launch.total, decay.l2 as f32, decay.keep as f32, rate as f32, moment_factors(by),
                decay.l2 != 0.0, of.fresh(), of.dtype());
        }
    }
}
