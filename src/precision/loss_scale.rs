use std::fmt;

use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;

use super::ScaledGrads;

/// The factor applied to a loss before its backward pass: positive and finite.
///
/// Made by a [`GradScaler`](super::GradScaler), or [`ONE`](Self::ONE).
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct LossScale(pub(super) f32);

impl LossScale {
    /// The scale that changes nothing.
    pub const ONE: Self = Self(1.0);

    /// The factor.
    pub fn value(self) -> f32 {
        self.0
    }

    /// The loss times this scale; the loss itself where that is 1.
    ///
    /// The product is taken in the loss's own data type, which is to be `f32`.
    pub fn scale<B: AutodiffBackend>(self, loss: Tensor<B, 1>) -> ScaledLoss<B> {
        let loss = if self == Self::ONE { loss } else { loss * self.0 };
        ScaledLoss { loss, scale: self }
    }

    /// The factor that removes the scale from gradients.
    ///
    /// # Conventions
    /// Divided in `f64` and rounded to `f32`, as PyTorch does.
    pub(super) fn inverse(self) -> f64 {
        f64::from((1.0 / f64::from(self.0)) as f32)
    }
}

impl fmt::Display for LossScale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A loss `[1]` times a [`LossScale`].
#[derive(Clone, Debug)]
pub struct ScaledLoss<B: AutodiffBackend> {
    loss: Tensor<B, 1>,
    scale: LossScale,
}

impl<B: AutodiffBackend> ScaledLoss<B> {
    /// The gradients of the scaled loss at the parameters of `module`.
    pub fn backward<M: AutodiffModule<B>>(self, module: &M) -> ScaledGrads {
        ScaledGrads::new(GradientsParams::from_grads(self.loss.backward(), module), self.scale)
    }

    /// The scaled loss, for gradients that are made by a chain of passes.
    ///
    /// [`ScaledGrads::new`] takes these gradients.
    pub fn into_inner(self) -> Tensor<B, 1> {
        self.loss
    }
}
