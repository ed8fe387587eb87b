//! Gradient descent, with or without a velocity.

use burn_cubecl::CubeRuntime;
use cubecl::prelude::*;

use super::Group;
use crate::cube::{load, spot, store, wide};
use crate::optim_step::factors::{Decay, Velocity};

/// What is known when the kernel is compiled, so that a factor that changes nothing cannot turn
/// an infinite parameter into no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Parts {
    l2: bool,
    ahead: bool,
    fresh: bool,
}

#[cube]
fn moved<N: Size>(
    p: Vector<f32, N>,
    direction: Vector<f32, N>,
    keep: f32,
    rate: f32,
) -> Vector<f32, N> {
    p * Vector::new(keep) - direction * Vector::new(rate)
}

#[cube(launch_unchecked)]
fn plain_kernel<F: Float, N: Size>(
    p: &mut Sequence<Array<Vector<F, N>>>,
    g: &Sequence<Array<Vector<F, N>>>,
    starts: &Sequence<usize>,
    vectors: usize,
    l2: f32,
    keep: f32,
    rate: f32,
    #[comptime] parts: Parts,
    #[define(F)] _dtype: StorageType,
) {
    if ABSOLUTE_POS >= vectors {
        terminate!();
    }
    let spot = spot(starts);
    let old = wide(load::<Vector<F, N>>(p, spot.of, spot.at));
    let mut pulled = wide(load::<Vector<F, N>>(g, spot.of, spot.at));
    if comptime!(parts.l2) {
        pulled = pulled + old * Vector::new(l2);
    }
    store(p, spot.of, spot.at, Vector::cast_from(moved(old, pulled, keep, rate)));
}

#[cube(launch_unchecked)]
fn velocity_kernel<F: Float, N: Size>(
    p: &mut Sequence<Array<Vector<F, N>>>,
    g: &Sequence<Array<Vector<F, N>>>,
    v: &mut Sequence<Array<Vector<f32, N>>>,
    starts: &Sequence<usize>,
    vectors: usize,
    l2: f32,
    keep: f32,
    rate: f32,
    old_share: f32,
    new_share: f32,
    ahead: f32,
    #[comptime] parts: Parts,
    #[define(F)] _dtype: StorageType,
) {
    if ABSOLUTE_POS >= vectors {
        terminate!();
    }
    let spot = spot(starts);
    let old = wide(load::<Vector<F, N>>(p, spot.of, spot.at));
    let mut pulled = wide(load::<Vector<F, N>>(g, spot.of, spot.at));
    if comptime!(parts.l2) {
        pulled = pulled + old * Vector::new(l2);
    }
    let mut velocity = pulled * Vector::new(new_share);
    if comptime!(!parts.fresh) {
        let old = load::<Vector<f32, N>>(v, spot.of, spot.at);
        velocity = velocity + old * Vector::new(old_share);
    }
    store(v, spot.of, spot.at, velocity);
    let mut direction = velocity;
    if comptime!(parts.ahead) {
        direction = velocity * Vector::new(ahead) + pulled;
    }
    store(p, spot.of, spot.at, Vector::cast_from(moved(old, direction, keep, rate)));
}

pub fn step<R: CubeRuntime>(
    of: &Group<'_, R>,
    decay: &Decay,
    velocity: Option<Velocity>,
    rate: f64,
) {
    let [l2, keep, rate] = [decay.l2, decay.keep, rate].map(|factor| factor as f32);
    let ahead = velocity.is_some_and(|by| by.now != 0.0);
    let arrays = if velocity.is_some() { 3 } else { 2 };
    for of in of.batches(arrays, 0) {
        let parts = Parts { l2: decay.l2 != 0.0, ahead, fresh: of.fresh() };
        let (client, launch) = (of.client(), of.vectors());
        let (count, dim, width) = (launch.count(client), launch.dim(), launch.width);
        // SAFETY: every array has the vectors of its parameter, and units stop at the last of all.
        // Nothing else holds the memory of the parameters and of the state.
        unsafe {
            match velocity {
                None => plain_kernel::launch_unchecked::<R>(
                    client,
                    count,
                    dim,
                    width,
                    of.parameters(),
                    of.gradients(),
                    launch.starts(),
                    launch.total,
                    l2,
                    keep,
                    rate,
                    parts,
                    of.dtype(),
                ),
                Some(by) => velocity_kernel::launch_unchecked::<R>(
                    client,
                    count,
                    dim,
                    width,
                    of.parameters(),
                    of.gradients(),
                    of.state(0),
                    launch.starts(),
                    launch.total,
                    l2,
                    keep,
                    rate,
                    by.old as f32,
                    by.new as f32,
                    by.ahead as f32,
                    parts,
                    of.dtype(),
                ),
            }
        }
    }
}
