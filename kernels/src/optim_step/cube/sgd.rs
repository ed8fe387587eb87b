//! Gradient descent, with or without a velocity.

use burn_cubecl::CubeRuntime;
use cubecl::prelude::*;

use super::Moving;
use crate::cube::wide;
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
    p: &mut Array<Vector<F, N>>,
    g: &Array<Vector<F, N>>,
    vectors: usize,
    l2: f32,
    keep: f32,
    rate: f32,
    #[comptime] parts: Parts,
    #[define(F)] _dtype: StorageType,
) {
    let at = ABSOLUTE_POS;
    if at >= vectors {
        terminate!();
    }
    let old = wide(p[at]);
    let mut pulled = wide(g[at]);
    if comptime!(parts.l2) {
        pulled = pulled + old * Vector::new(l2);
    }
    p[at] = Vector::cast_from(moved(old, pulled, keep, rate));
}

#[cube(launch_unchecked)]
fn velocity_kernel<F: Float, N: Size>(
    p: &mut Array<Vector<F, N>>,
    g: &Array<Vector<F, N>>,
    v: &mut Array<Vector<f32, N>>,
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
    let at = ABSOLUTE_POS;
    if at >= vectors {
        terminate!();
    }
    let old = wide(p[at]);
    let mut pulled = wide(g[at]);
    if comptime!(parts.l2) {
        pulled = pulled + old * Vector::new(l2);
    }
    let mut velocity = pulled * Vector::new(new_share);
    if comptime!(!parts.fresh) {
        velocity = velocity + v[at] * Vector::new(old_share);
    }
    v[at] = velocity;
    let mut direction = velocity;
    if comptime!(parts.ahead) {
        direction = velocity * Vector::new(ahead) + pulled;
    }
    p[at] = Vector::cast_from(moved(old, direction, keep, rate));
}

pub fn step<R: CubeRuntime>(of: &Moving<R>, decay: &Decay, velocity: Option<Velocity>, rate: f64) {
    let [vectors, width] = of.vectors();
    let (count, dim) = of.elementwise(vectors);
    let [l2, keep, rate] = [decay.l2, decay.keep, rate].map(|factor| factor as f32);
    let parts = Parts {
        l2: decay.l2 != 0.0,
        ahead: velocity.is_some_and(|by| by.now != 0.0),
        fresh: of.fresh,
    };
    let (client, p, g) = (&of.p.client, of.p.clone(), of.g.clone());
    // SAFETY: all arrays have `vectors` vectors, and units stop there. Nothing else holds the memory
    // of `p` and of the state.
    unsafe {
        match velocity {
            None => plain_kernel::launch_unchecked::<R>(
                client,
                count,
                dim,
                width,
                p.into_array_arg(),
                g.into_array_arg(),
                vectors,
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
                p.into_array_arg(),
                g.into_array_arg(),
                of.state(0),
                vectors,
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
