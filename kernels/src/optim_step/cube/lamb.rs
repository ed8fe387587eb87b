//! LAMB: the moments and the norms, then the step.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use cubecl::prelude::*;

use super::adam::{MomentFactors, moment, moment_factors, ratio};
use super::{Group, Moving};
use crate::cube::{
    ShareList, Shares, array, cube_sum, empty, lane_sum, launch, load, share, store, store_sums,
    vector_size, wide,
};
use crate::lists::grouped;
use crate::optim_step::factors::Moments;

/// `u = r + pull * p`, where `pull` is not zero.
#[cube]
fn direction<N: Size>(
    p: Vector<f32, N>,
    ratio: Vector<f32, N>,
    pull: f32,
    #[comptime] pulled: bool,
) -> Vector<f32, N> {
    let mut u = ratio;
    if pulled {
        u = u + p * Vector::new(pull);
    }
    u
}

/// Takes gradients into the moments, and adds up the squares of `p` and of `u`: two sums a cube.
#[cube(launch_unchecked)]
fn moments_kernel<F: Float, N: Size>(
    p: &Sequence<Array<Vector<F, N>>>,
    g: &Sequence<Array<Vector<F, N>>>,
    m: &mut Sequence<Array<Vector<f32, N>>>,
    v: &mut Sequence<Array<Vector<f32, N>>>,
    sums: &mut Array<f32>,
    shares: &ShareList,
    pull: f32,
    by: &MomentFactors,
    #[comptime] pulled: bool,
    #[comptime] fresh: bool,
    #[comptime] units: u32,
    #[define(F)] _dtype: StorageType,
) {
    let share = share(shares, units);
    let mut at = share.start;
    let mut of_p = 0.0f32;
    let mut of_u = 0.0f32;
    while at < share.vectors {
        let p = wide(load::<Vector<F, N>>(p, share.of, at));
        let g = wide(load::<Vector<F, N>>(g, share.of, at));
        let new_m = moment(m, share.of, at, g, by.beta_1, by.rest_1, fresh);
        let new_v = moment(v, share.of, at, g * g, by.beta_2, by.rest_2, fresh);
        store(m, share.of, at, new_m);
        store(v, share.of, at, new_v);
        let u = direction(p, ratio(new_m, new_v, by), pull, pulled);
        of_p += lane_sum(p * p);
        of_u += lane_sum(u * u);
        at += share.step;
    }
    store_sums(sums, of_p, of_u, units);
}

/// `|p| / |u|` of a tensor, from the sums of its cubes.
#[cube]
fn trust(sums: &Array<f32>, first: usize, cubes: usize, #[comptime] units: u32) -> f32 {
    let mut at = UNIT_POS as usize;
    let mut of_p = 0.0f32;
    let mut of_u = 0.0f32;
    while at < cubes {
        of_p += sums[(first + at) * 2];
        of_u += sums[(first + at) * 2 + 1];
        at += comptime!(units as usize);
    }
    let of_p = f32::sqrt(cube_sum(of_p, units));
    let of_u = f32::sqrt(cube_sum(of_u, units));
    let mut trust = 1.0f32;
    if of_p > 0.0f32 && of_u > 0.0f32 {
        trust = of_p / of_u;
    }
    trust
}

/// Moves parameters by the rate times what every cube finds of its tensor's trust.
#[cube(launch_unchecked)]
fn step_kernel<F: Float, N: Size>(
    p: &mut Sequence<Array<Vector<F, N>>>,
    m: &Sequence<Array<Vector<f32, N>>>,
    v: &Sequence<Array<Vector<f32, N>>>,
    sums: &Array<f32>,
    shares: &ShareList,
    pull: f32,
    by: &MomentFactors,
    rate: f32,
    #[comptime] pulled: bool,
    #[comptime] units: u32,
    #[define(F)] _dtype: StorageType,
) {
    let share = share(shares, units);
    let trusted = rate * trust(sums, share.first, share.cubes, units);
    let mut at = share.start;
    while at < share.vectors {
        let old = wide(load::<Vector<F, N>>(p, share.of, at));
        let m = load::<Vector<f32, N>>(m, share.of, at);
        let v = load::<Vector<f32, N>>(v, share.of, at);
        let u = direction(old, ratio(m, v, by), pull, pulled);
        store(p, share.of, at, Vector::cast_from(old - u * Vector::new(trusted)));
        at += share.step;
    }
}

pub fn step<R: CubeRuntime>(of: &Group<'_, R>, pull: f64, by: &Moments, rate: f64) {
    // Each by its own width, so that its norms are the same whatever else moves.
    let width = |one: &&Moving<R>| vector_size(&one.p.client, one.length(), size_of::<f32>());
    for (width, of) in grouped(of.0.iter().copied(), width) {
        Group(&of).batches(4, 1).for_each(|of| launch_of_width(&of, width, pull, by, rate));
    }
}

fn launch_of_width<R: CubeRuntime>(
    of: &Group<'_, R>,
    width: usize,
    pull: f64,
    by: &Moments,
    rate: f64,
) {
    let client = of.client();
    let shares = Shares::of(client, of.0.iter().map(|one| one.length() / width));
    let sums = empty(&of.0[0].p, [shares.total * 2], DType::F32);
    let pulled = pull != 0.0;
    // SAFETY: every array has the vectors of its parameter, where its cubes stop, and `sums` has two
    // floats a cube. Nothing else holds the memory of the parameters and of the moments.
    unsafe {
        launch!(moments_kernel, shares.launch(client), width;;
            of.parameters(), of.gradients(), of.state(0), of.state(1),
            array(&sums), shares.arg(), pull as f32, moment_factors(by), pulled, of.fresh(),
            shares.units, of.dtype());
        launch!(step_kernel, shares.launch(client), width;;
            of.parameters(), of.state(0), of.state(1), array(&sums), shares.arg(),
            pull as f32, moment_factors(by), rate as f32, pulled, shares.units, of.dtype());
    }
}
