//! The inner loops of optimizers: parameters, gradients and states side by side, in place.

use super::elementwise::{Update, elementwise};
use super::simd::Simd;

/// `g + l2 * p` for the gradient, `p * keep - rate * direction` for the parameter.
#[derive(Clone, Copy, Debug)]
pub struct SgdStep {
    pub l2: f32,
    pub keep: f32,
    pub rate: f32,
}

/// A velocity `old * v + new * g`, and the direction `v`, or `nesterov * v + g` where that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct MomentumStep {
    pub descent: SgdStep,
    pub old: f32,
    pub new: f32,
    pub nesterov: Option<f32>,
}

/// Exponential averages of both moments: factors of the old moments, and of the gradient and its square.
#[derive(Clone, Copy, Debug)]
pub struct MomentDecay {
    pub old: [f32; 2],
    pub new: [f32; 2],
}

/// The direction `first * m / (root * sqrt(v) + epsilon)`.
#[derive(Clone, Copy, Debug)]
pub struct AdamRatio {
    pub first: f32,
    pub root: f32,
    pub epsilon: f32,
}

/// Moments, and a step against their ratio.
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    pub descent: SgdStep,
    pub averages: MomentDecay,
    pub ratio: AdamRatio,
}

/// Moments, and the direction of their ratio plus `weight_decay * p`.
#[derive(Clone, Copy, Debug)]
pub struct LambStep {
    pub averages: MomentDecay,
    pub ratio: AdamRatio,
    pub weight_decay: f32,
}

impl SgdStep {
    #[inline(always)]
    fn with_l2<S: Simd>(&self, simd: S, g: S::Vector, p: S::Vector) -> S::Vector {
        // Nothing times infinity is not nothing.
        if self.l2 == 0.0 { g } else { simd.mul_add(p, simd.splat(self.l2), g) }
    }

    #[inline(always)]
    fn updated<S: Simd>(&self, simd: S, p: S::Vector, direction: S::Vector) -> S::Vector {
        let kept = simd.mul(p, simd.splat(self.keep));
        simd.mul_add(direction, simd.splat(-self.rate), kept)
    }
}

impl MomentDecay {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, g: S::Vector, [m, v]: [S::Vector; 2]) -> [S::Vector; 2] {
        let m = simd.mul_add(m, simd.splat(self.old[0]), simd.mul(g, simd.splat(self.new[0])));
        let square = simd.mul(simd.mul(g, g), simd.splat(self.new[1]));
        [m, simd.mul_add(v, simd.splat(self.old[1]), square)]
    }
}

impl AdamRatio {
    #[inline(always)]
    fn of<S: Simd>(&self, simd: S, [m, v]: [S::Vector; 2]) -> S::Vector {
        let epsilon = simd.splat(self.epsilon);
        let root = simd.mul_add(simd.sqrt(v), simd.splat(self.root), epsilon);
        simd.div(simd.mul(m, simd.splat(self.first)), root)
    }
}

impl LambStep {
    #[inline(always)]
    fn direction<S: Simd>(&self, simd: S, moments: [S::Vector; 2], p: S::Vector) -> S::Vector {
        let ratio = self.ratio.of(simd, moments);
        if self.weight_decay == 0.0 {
            ratio
        } else {
            simd.mul_add(p, simd.splat(self.weight_decay), ratio)
        }
    }
}

impl<S: Simd> Update<S, 1, 1> for SgdStep {
    #[inline(always)]
    fn apply(&self, simd: S, [g]: [S::Vector; 1], [p]: [S::Vector; 1]) -> [S::Vector; 1] {
        [self.updated(simd, p, self.with_l2(simd, g, p))]
    }
}

impl<S: Simd> Update<S, 1, 2> for MomentumStep {
    #[inline(always)]
    fn apply(&self, simd: S, [g]: [S::Vector; 1], [p, v]: [S::Vector; 2]) -> [S::Vector; 2] {
        let g = self.descent.with_l2(simd, g, p);
        let v = simd.mul_add(v, simd.splat(self.old), simd.mul(g, simd.splat(self.new)));
        let direction = match self.nesterov {
            Some(nesterov) => simd.mul_add(v, simd.splat(nesterov), g),
            None => v,
        };
        [self.descent.updated(simd, p, direction), v]
    }
}

impl<S: Simd> Update<S, 1, 3> for AdamStep {
    #[inline(always)]
    fn apply(&self, simd: S, [g]: [S::Vector; 1], [p, m, v]: [S::Vector; 3]) -> [S::Vector; 3] {
        let [m, v] = self.averages.apply(simd, self.descent.with_l2(simd, g, p), [m, v]);
        [self.descent.updated(simd, p, self.ratio.of(simd, [m, v])), m, v]
    }
}

/// The third slice becomes the direction.
impl<S: Simd> Update<S, 2, 3> for LambStep {
    #[inline(always)]
    fn apply(&self, simd: S, [g, p]: [S::Vector; 2], [m, v, _]: [S::Vector; 3]) -> [S::Vector; 3] {
        let [m, v] = self.averages.apply(simd, g, [m, v]);
        [m, v, self.direction(simd, [m, v], p)]
    }
}

/// A step along the direction.
struct ApplyLamb<'a>(&'a LambStep, f32);

impl<S: Simd> Update<S, 2, 1> for ApplyLamb<'_> {
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

/// SGD: moves `p` against the gradient.
#[inline(always)]
pub fn sgd<S: Simd>(simd: S, by: &SgdStep, g: &[f32], p: &mut [f32]) {
    elementwise(simd, by, [g], [p]);
}

/// SGD with momentum: updates the velocity by `g`, then moves `p` against it.
#[inline(always)]
pub fn momentum<S: Simd>(
    simd: S,
    by: &MomentumStep,
    g: &[f32],
    p: &mut [f32],
    velocity: &mut [f32],
) {
    elementwise(simd, by, [g], [p, velocity]);
}

/// Adam: updates the moments by `g`, then moves `p` against their ratio.
#[inline(always)]
pub fn adam<S: Simd>(simd: S, by: &AdamStep, g: &[f32], p: &mut [f32], [m, v]: [&mut [f32]; 2]) {
    elementwise(simd, by, [g], [p, m, v]);
}

/// First pass of LAMB: updates the moments, given the gradient and the parameter, and writes the sums of
/// the squares of the parameter and of the direction.
#[inline(always)]
pub fn lamb_direction<S: Simd>(
    simd: S,
    by: &LambStep,
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

/// Second pass of LAMB: moves `p` by `step` against the direction that its moments give.
#[inline(always)]
pub fn lamb_apply<S: Simd>(simd: S, by: &LambStep, step: f32, moments: [&[f32]; 2], p: &mut [f32]) {
    elementwise(simd, &ApplyLamb(by, step), moments, [p]);
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
