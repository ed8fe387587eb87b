//! Gradient descent, with or without a velocity.

use burn_cubecl::CubeRuntime;
use cubecl::prelude::*;

use super::Group;
use crate::cube::{launch, load, spot, store, wide};
use crate::optim_step::factors::{Decay, Velocity};

/// The settings that are known when the kernel is compiled, so that a factor that changes nothing cannot turn
/// an infinite parameter into no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Parts {
    l2: bool,
    velocity: bool,
    ahead: bool,
    fresh: bool,
}

#[cube(launch_unchecked)]
fn sgd_kernel<F: Float, N: Size>(
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
    let spot = spot(starts, vectors);
    let old = wide(load::<Vector<F, N>>(p, spot.of, spot.at));
    let mut pulled = wide(load::<Vector<F, N>>(g, spot.of, spot.at));
    if comptime!(parts.l2) {
        pulled = pulled + old * Vector::new(l2);
    }
    let mut direction = pulled;
    if comptime!(parts.velocity) {
        let mut velocity = pulled * Vector::new(new_share);
        if comptime!(!parts.fresh) {
            let old = load::<Vector<f32, N>>(v, spot.of, spot.at);
            velocity = velocity + old * Vector::new(old_share);
        }
        store(v, spot.of, spot.at, velocity);
        direction = velocity;
        if comptime!(parts.ahead) {
            direction = velocity * Vector::new(ahead) + pulled;
        }
    }
    let new = old * Vector::new(keep) - direction * Vector::new(rate);
    store(p, spot.of, spot.at, Vector::cast_from(new));
}

pub fn step<R: CubeRuntime>(
    of: &Group<'_, R>,
    decay: &Decay,
    velocity: Option<Velocity>,
    rate: f64,
) {
    let ahead = velocity.is_some_and(|by| by.now != 0.0);
    let arrays = if velocity.is_some() { 3 } else { 2 };
    let [old, new, forward] = velocity.map_or([0.0; 3], |by| [by.old, by.new, by.ahead]);
    let [l2, keep, rate, old, new, forward] =
        [decay.l2, decay.keep, rate, old, new, forward].map(|factor| factor as f32);
    for of in of.batches(arrays, 0) {
        let (l2_wanted, velocity, fresh) = (decay.l2 != 0.0, velocity.is_some(), of.fresh());
        let parts = Parts { l2: l2_wanted, velocity, ahead, fresh };
        let launch = of.vectors();
        let v = if velocity { of.state(0) } else { SequenceArg::new() };
        // SAFETY: every array has the vectors of its parameter, and units stop at the last of all.
        // Nothing else holds the memory of the parameters and of the state.
        unsafe {
            launch!(sgd_kernel, launch.launch(of.client()), launch.width;;
                of.parameters(), of.gradients(), v, launch.starts(), launch.total, l2, keep, rate,
                old, new, forward, parts, of.dtype());
        }
    }
}
