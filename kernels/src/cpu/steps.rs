//! The inner loops of optimizers: parameters, gradients and states side by side, in place.

use super::elementwise::{Update, elementwise};
use super::simd::Simd;

/// The loops over parameters for one set of vector instructions.
pub trait Steps {
    /// See [`descend`].
    fn descend(&self, by: &Descent, g: &[f32], p: &mut [f32]);

    /// See [`follow`].
    fn follow(&self, by: &Following, g: &[f32], p: &mut [f32], velocity: &mut [f32]);

    /// See [`adapt`].
    fn adapt(&self, by: &Adapting, g: &[f32], p: &mut [f32], moments: [&mut [f32]; 2]);

    /// See [`turn`].
    fn turn(&self, by: &Turning, of: [&[f32]; 2], moments: [&mut [f32]; 2], squares: &mut [f64; 2]);

    /// See [`advance`].
    fn advance(&self, by: &Turning, step: f32, moments: [&[f32]; 2], p: &mut [f32]);

    /// See [`scale`].
    fn scale(&self, factor: f32, x: &mut [f32]);

    /// See [`square_sum`].
    fn square_sum(&self, x: &[f32], out: &mut f64);
}

/// `g + l2 * p` for the gradient, `p * keep - rate * direction` for the parameter.
#[derive(Clone, Copy, Debug)]
pub struct Descent {
    pub l2: f32,
    pub keep: f32,
    pub rate: f32,
}

/// A velocity `old * v + new * g`, and the direction `v`, or `ahead * v + g` where that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Following {
    pub descent: Descent,
    pub old: f32,
    pub new: f32,
    pub ahead: Option<f32>,
}

/// The shares of moments that stay, and those of the gradient and its square.
#[derive(Clone, Copy, Debug)]
pub struct Averages {
    pub old: [f32; 2],
    pub new: [f32; 2],
}

/// The direction `first * m / (root * sqrt(v) + epsilon)`.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    pub first: f32,
    pub root: f32,
    pub epsilon: f32,
}

/// Averages, and a descent along their ratio.
#[derive(Clone, Copy, Debug)]
pub struct Adapting {
    pub descent: Descent,
    pub averages: Averages,
    pub ratio: Ratio,
}

/// Averages, and the direction of their ratio plus `pull * p`.
#[derive(Clone, Copy, Debug)]
pub struct Turning {
    pub averages: Averages,
    pub ratio: Ratio,
    pub pull: f32,
}

impl Descent {
    #[inline(always)]
    fn pulled<S: Simd>(&self, simd: S, g: S::Vector, p: S::Vector) -> S::Vector {
        // Nothing times infinity is not nothing.
        if self.l2 == 0.0 { g } else { simd.mul_add(p, simd.splat(self.l2), g) }
    }

    #[inline(always)]
    fn moved<S: Simd>(&self, simd: S, p: S::Vector, direction: S::Vector) -> S::Vector {
        let kept = simd.mul(p, simd.splat(self.keep));
        simd.mul_add(direction, simd.splat(-self.rate), kept)
    }
}

impl Averages {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, g: S::Vector, [m, v]: [S::Vector; 2]) -> [S::Vector; 2] {
        let m = simd.mul_add(m, simd.splat(self.old[0]), simd.mul(g, simd.splat(self.new[0])));
        let square = simd.mul(simd.mul(g, g), simd.splat(self.new[1]));
        [m, simd.mul_add(v, simd.splat(self.old[1]), square)]
    }
}

impl Ratio {
    #[inline(always)]
    fn of<S: Simd>(&self, simd: S, [m, v]: [S::Vector; 2]) -> S::Vector {
        let epsilon = simd.splat(self.epsilon);
        let root = simd.mul_add(simd.sqrt(v), simd.splat(self.root), epsilon);
        simd.div(simd.mul(m, simd.splat(self.first)), root)
    }
}

impl Turning {
    #[inline(always)]
    fn direction<S: Simd>(&self, simd: S, moments: [S::Vector; 2], p: S::Vector) -> S::Vector {
        let ratio = self.ratio.of(simd, moments);
        if self.pull == 0.0 { ratio } else { simd.mul_add(p, simd.splat(self.pull), ratio) }
    }
}

impl<S: Simd> Update<S, 1, 1> for Descent {
    #[inline(always)]
    fn apply(&self, simd: S, [g]: [S::Vector; 1], [p]: [S::Vector; 1]) -> [S::Vector; 1] {
        [self.moved(simd, p, self.pulled(simd, g, p))]
    }
}

impl<S: Simd> Update<S, 1, 2> for Following {
    #[inline(always)]
    fn apply(&self, simd: S, [g]: [S::Vector; 1], [p, v]: [S::Vector; 2]) -> [S::Vector; 2] {
        let g = self.descent.pulled(simd, g, p);
        let v = simd.mul_add(v, simd.splat(self.old), simd.mul(g, simd.splat(self.new)));
        let direction = match self.ahead {
            Some(ahead) => simd.mul_add(v, simd.splat(ahead), g),
            None => v,
        };
        [self.descent.moved(simd, p, direction), v]
    }
}

impl<S: Simd> Update<S, 1, 3> for Adapting {
    #[inline(always)]
    fn apply(&self, simd: S, [g]: [S::Vector; 1], [p, m, v]: [S::Vector; 3]) -> [S::Vector; 3] {
        let [m, v] = self.averages.apply(simd, self.descent.pulled(simd, g, p), [m, v]);
        [self.descent.moved(simd, p, self.ratio.of(simd, [m, v])), m, v]
    }
}

/// The third slice becomes the direction.
impl<S: Simd> Update<S, 2, 3> for Turning {
    #[inline(always)]
    fn apply(&self, simd: S, [g, p]: [S::Vector; 2], [m, v, _]: [S::Vector; 3]) -> [S::Vector; 3] {
        let [m, v] = self.averages.apply(simd, g, [m, v]);
        [m, v, self.direction(simd, [m, v], p)]
    }
}

/// A step along the direction.
struct Advance<'a>(&'a Turning, f32);

impl<S: Simd> Update<S, 2, 1> for Advance<'_> {
    #[inline(always)]
    fn apply(&self, simd: S, moments: [S::Vector; 2], [p]: [S::Vector; 1]) -> [S::Vector; 1] {
        [simd.mul_add(self.0.direction(simd, moments, p), simd.splat(-self.1), p)]
    }
}

struct Scale(f32);

impl<S: Simd> Update<S, 0, 1> for Scale {
    #[inline(always)]
    fn apply(&self, simd: S, []: [S::Vector; 0], [x]: [S::Vector; 1]) -> [S::Vector; 1] {
        [simd.mul(x, simd.splat(self.0))]
    }
}

/// Moves `p` against the gradient.
#[inline(always)]
pub fn descend<S: Simd>(simd: S, by: &Descent, g: &[f32], p: &mut [f32]) {
    elementwise(simd, by, [g], [p]);
}

/// Moves `p` against its velocity, which `g` changes first.
#[inline(always)]
pub fn follow<S: Simd>(simd: S, by: &Following, g: &[f32], p: &mut [f32], velocity: &mut [f32]) {
    elementwise(simd, by, [g], [p, velocity]);
}

/// Moves `p` against the ratio of its moments, which `g` changes first.
#[inline(always)]
pub fn adapt<S: Simd>(simd: S, by: &Adapting, g: &[f32], p: &mut [f32], [m, v]: [&mut [f32]; 2]) {
    elementwise(simd, by, [g], [p, m, v]);
}

/// Changes the moments, given the gradient and the parameter, and writes the sums of the squares of
/// the parameter and of the direction.
#[inline(always)]
pub fn turn<S: Simd>(
    simd: S,
    by: &Turning,
    [g, p]: [&[f32]; 2],
    [m, v]: [&mut [f32]; 2],
    squares: &mut [f64; 2],
) {
    const BLOCK: usize = 256;
    *squares = [0.0; 2];
    let mut direction = [0.0; BLOCK];
    let given = g.chunks(BLOCK).zip(p.chunks(BLOCK));
    let moments = m.chunks_mut(BLOCK).zip(v.chunks_mut(BLOCK));
    for ((g, p), (m, v)) in given.zip(moments) {
        let direction = &mut direction[..g.len()];
        elementwise(simd, by, [g, p], [m, v, direction]);
        let mut sums = [0.0; 2];
        square_sum(simd, p, &mut sums[0]);
        square_sum(simd, direction, &mut sums[1]);
        *squares = [squares[0] + sums[0], squares[1] + sums[1]];
    }
}

/// Moves `p` by `step` against the direction that its moments give.
#[inline(always)]
pub fn advance<S: Simd>(simd: S, by: &Turning, step: f32, moments: [&[f32]; 2], p: &mut [f32]) {
    elementwise(simd, &Advance(by, step), moments, [p]);
}

/// Multiplies `x`.
#[inline(always)]
pub fn scale<S: Simd>(simd: S, factor: f32, x: &mut [f32]) {
    elementwise(simd, &Scale(factor), [], [x]);
}

/// Writes the sum of the squares in double precision, where none of them overflows or is rounded.
///
/// The order is the same for all instructions.
#[inline(always)]
pub fn square_sum<S: Simd>(_: S, x: &[f32], out: &mut f64) {
    let mut lanes = [0.0; 16];
    let tiles = x.chunks_exact(lanes.len());
    let rest = tiles.remainder();
    for tile in tiles {
        for (lane, &x) in lanes.iter_mut().zip(tile) {
            *lane += f64::from(x) * f64::from(x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += f64::from(x) * f64::from(x);
    }
    *out = lanes.iter().sum();
}

/// Implements [`Steps`] for a [`Simd`], as
/// [`implement_body`](super::instruction_set::implement_body) does its loops.
macro_rules! implement_steps {
    ($simd:ty, ($(#[$feature:meta])?)) => {
        const _: () = {
            use super::instruction_set::compile_loop;
            use super::steps::{Adapting, Descent, Following, Steps, Turning};
            use super::steps::{adapt, advance, descend, follow, scale, square_sum, turn};

            impl Steps for $simd {
                compile_loop!($simd, ($(#[$feature])?),
                    fn descend(by: &Descent, g: &[f32], p: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn follow(by: &Following, g: &[f32], p: &mut [f32], velocity: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn adapt(by: &Adapting, g: &[f32], p: &mut [f32], moments: [&mut [f32]; 2]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn turn(
                        by: &Turning,
                        of: [&[f32]; 2],
                        moments: [&mut [f32]; 2],
                        squares: &mut [f64; 2]
                    ));
                compile_loop!($simd, ($(#[$feature])?),
                    fn advance(by: &Turning, step: f32, moments: [&[f32]; 2], p: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?), fn scale(factor: f32, x: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?), fn square_sum(x: &[f32], out: &mut f64));
            }
        };
    };
}
pub(super) use implement_steps;
