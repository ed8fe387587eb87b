use burn::module::AutodiffModule;
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::backend::AutodiffBackend;

use super::LossScale;
use super::measure::TakenGradients;

/// Gradients of a loss, not scaled, all of them finite.
///
/// Only unscaling makes them: [`GradScaler::unscale`](super::GradScaler::unscale) and
/// [`ScaledGrads::unscale`](super::ScaledGrads::unscale).
#[derive(Debug)]
pub struct FiniteGrads {
    pub(super) gradients: GradientsParams,
    pub(super) norm: f64,
}

impl FiniteGrads {
    /// Their joint Euclidean norm, as they are now.
    pub fn norm(&self) -> f64 {
        self.norm
    }

    /// The gradients.
    pub fn gradients(&self) -> &GradientsParams {
        &self.gradients
    }

    /// The gradients, for an optimizer that is stepped by someone else.
    pub fn into_gradients(self) -> GradientsParams {
        self.gradients
    }

    /// Scales them so that their norm is at most `limit`, without reading from the device.
    ///
    /// # Conventions
    /// One norm over all parameters, as `torch.nn.utils.clip_grad_norm_`; Burn's `GradientClipping`
    /// takes the norm of each tensor by itself. The divisor is not padded by 1e-6 as PyTorch's is.
    ///
    /// # Panics
    /// Where the limit is negative or no number.
    #[must_use]
    pub fn clip_norm<B: AutodiffBackend, M: AutodiffModule<B>>(
        self,
        module: &M,
        limit: f64,
    ) -> Self {
        assert!(limit >= 0.0, "gradients cannot be clipped to a norm of {limit}");
        if self.norm <= limit {
            return self;
        }
        let gradients = TakenGradients::<B>::new(self.gradients, module);
        Self { gradients: gradients.restore(limit / self.norm), norm: limit }
    }

    /// A step of `optimizer` along them, at a learning rate of `rate`.
    pub fn step<B: AutodiffBackend, M: AutodiffModule<B>, O: Optimizer<M, B>>(
        self,
        optimizer: &mut O,
        rate: f64,
        module: M,
    ) -> M {
        optimizer.step(rate, module, self.gradients)
    }
}

/// Gradients that were not finite, and are gone: their step is to be skipped.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a gradient is not finite at a loss scale of {scale}; the step is skipped")]
pub struct NonFinite {
    /// Scale of their loss.
    pub scale: LossScale,
}
