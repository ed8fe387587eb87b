//! LAMB: the moments and the norms, then the step.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use cubecl::prelude::*;

use super::Moving;
use super::adam::{moment, ratio};
use crate::cube::{cube_sum, cubes, empty, lane_sum, units, wide};
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

/// Takes the gradient into the moments, and adds up the squares of `p` and of `u`.
#[cube(launch_unchecked)]
fn moments_kernel<F: Float, N: Size>(
    p: &Array<Vector<F, N>>,
    g: &Array<Vector<F, N>>,
    m: &mut Array<Vector<f32, N>>,
    v: &mut Array<Vector<f32, N>>,
    sums: &mut Array<f32>,
    vectors: usize,
    pull: f32,
    beta_1: f32,
    rest_1: f32,
    beta_2: f32,
    rest_2: f32,
    first: f32,
    root: f32,
    epsilon: f32,
    cubes: usize,
    #[comptime] pulled: bool,
    #[comptime] fresh: bool,
    #[comptime] units: u32,
    #[define(F)] _dtype: StorageType,
) {
    let mut at = CUBE_POS * comptime!(units as usize) + UNIT_POS as usize;
    let mut of_p = 0.0f32;
    let mut of_u = 0.0f32;
    while at < vectors {
        let p = wide(p[at]);
        let g = wide(g[at]);
        let new_m = moment(m, at, g, beta_1, rest_1, fresh);
        let new_v = moment(v, at, g * g, beta_2, rest_2, fresh);
        m[at] = new_m;
        v[at] = new_v;
        let u = direction(p, ratio(new_m, new_v, first, root, epsilon), pull, pulled);
        of_p += lane_sum(p * p);
        of_u += lane_sum(u * u);
        at += cubes * comptime!(units as usize);
    }
    let of_p = cube_sum(of_p, units);
    let of_u = cube_sum(of_u, units);
    if UNIT_POS == 0 {
        sums[CUBE_POS * 2] = of_p;
        sums[CUBE_POS * 2 + 1] = of_u;
    }
}

/// The rate times `|p| / |u|`, from the sums of `cubes` cubes.
#[cube(launch_unchecked)]
fn trust_kernel(
    sums: &Array<f32>,
    trusted: &mut Array<f32>,
    rate: f32,
    cubes: usize,
    #[comptime] units: u32,
) {
    let mut at = UNIT_POS as usize;
    let mut of_p = 0.0f32;
    let mut of_u = 0.0f32;
    while at < cubes {
        of_p += sums[at * 2];
        of_u += sums[at * 2 + 1];
        at += comptime!(units as usize);
    }
    let of_p = f32::sqrt(cube_sum(of_p, units));
    let of_u = f32::sqrt(cube_sum(of_u, units));
    if UNIT_POS == 0 {
        let mut trust = 1.0f32;
        if of_p > 0.0f32 && of_u > 0.0f32 {
            trust = of_p / of_u;
        }
        trusted[0] = rate * trust;
    }
}

#[cube(launch_unchecked)]
fn step_kernel<F: Float, N: Size>(
    p: &mut Array<Vector<F, N>>,
    m: &Array<Vector<f32, N>>,
    v: &Array<Vector<f32, N>>,
    trusted: &Array<f32>,
    vectors: usize,
    pull: f32,
    first: f32,
    root: f32,
    epsilon: f32,
    #[comptime] pulled: bool,
    #[define(F)] _dtype: StorageType,
) {
    let at = ABSOLUTE_POS;
    if at >= vectors {
        terminate!();
    }
    let old = wide(p[at]);
    let u = direction(old, ratio(m[at], v[at], first, root, epsilon), pull, pulled);
    p[at] = Vector::cast_from(old - u * Vector::new(trusted[0]));
}

pub fn step<R: CubeRuntime>(of: &Moving<R>, pull: f64, by: &Moments, rate: f64) {
    let [vectors, width] = of.vectors();
    let client = &of.p.client;
    let units = units(client);
    let cubes = cubes(vectors, units);
    let sums = empty(&of.p, [cubes * 2], DType::F32);
    let trusted = empty(&of.p, [1], DType::F32);
    let pulled = pull != 0.0;
    let [first, root, epsilon] = [by.first, by.root, by.epsilon].map(|factor| factor as f32);
    let (count, dim) = of.elementwise(vectors);
    // SAFETY: `p`, `g` and the moments have `vectors` vectors, `sums` two floats a cube, and units
    // stop there. Nothing else holds the memory of `p` and of the moments.
    unsafe {
        moments_kernel::launch_unchecked::<R>(
            client,
            CubeCount::Static(cubes as u32, 1, 1),
            CubeDim::new_1d(units),
            width,
            of.p.clone().into_array_arg(),
            of.g.clone().into_array_arg(),
            of.state(0),
            of.state(1),
            sums.clone().into_array_arg(),
            vectors,
            pull as f32,
            by.beta_1 as f32,
            (1.0 - by.beta_1) as f32,
            by.beta_2 as f32,
            (1.0 - by.beta_2) as f32,
            first,
            root,
            epsilon,
            cubes,
            pulled,
            of.fresh,
            units,
            of.dtype(),
        );
        trust_kernel::launch_unchecked::<R>(
            client,
            CubeCount::Static(1, 1, 1),
            CubeDim::new_1d(units),
            sums.into_array_arg(),
            trusted.clone().into_array_arg(),
            rate as f32,
            cubes,
            units,
        );
        step_kernel::launch_unchecked::<R>(
            client,
            count,
            dim,
            width,
            of.p.clone().into_array_arg(),
            of.state(0),
            of.state(1),
            trusted.into_array_arg(),
            vectors,
            pull as f32,
            first,
            root,
            epsilon,
            pulled,
            of.dtype(),
        );
    }
}
