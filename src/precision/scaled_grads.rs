use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;

use super::measure::{Kinds, kinds, measured};
use super::{FiniteGrads, LossScale, NonFinite, ScaleError};

/// Gradients of a scaled loss, finite or not.
///
/// No optimizer takes them; [`GradScaler::unscale`](super::GradScaler::unscale) turns them into
/// [`FiniteGrads`].
#[derive(Debug)]
pub struct ScaledGrads {
    gradients: GradientsParams,
    scale: LossScale,
}

impl ScaledGrads {
    /// Gradients made by formula from a loss that was scaled by `scale`.
    pub fn new(gradients: GradientsParams, scale: LossScale) -> Self {
        Self { gradients, scale }
    }

    /// What their loss was scaled by.
    pub fn scale(&self) -> LossScale {
        self.scale
    }

    /// The gradients as they are, scaled.
    pub fn gradients(&self) -> &GradientsParams {
        &self.gradients
    }

    /// The gradients as they are, and their scale.
    ///
    /// For sums over several losses of one scale, which go on as [`new`](Self::new).
    pub fn into_parts(self) -> (GradientsParams, LossScale) {
        (self.gradients, self.scale)
    }

    /// The gradients divided by their scale, if all of them are finite.
    ///
    /// The device is read from once. With a scale of 1, they are only read.
    ///
    /// # Conventions
    /// `torch.amp.GradScaler.unscale_`, which looks at the gradients before the division. With a
    /// scale from 1 on that is the same; below 1, a quotient too large for its format is refused
    /// here too, as it could not be stepped along. What exceeds `f32` counts as not finite in `f64`
    /// as well.
    ///
    /// # Errors
    /// Where one is not finite.
    ///
    /// # Panics
    /// Where a gradient is `f16` or `bf16`, or belongs to no parameter of `module`.
    pub fn unscale<B: AutodiffBackend, M: AutodiffModule<B>>(
        self,
        module: &M,
    ) -> Result<FiniteGrads, NonFinite> {
        self.checked::<B, M>(module).unwrap_or_else(|error| panic!("{error}"))
    }

    /// [`unscale`](Self::unscale), with an error for gradients in half precision.
    pub(super) fn checked<B: AutodiffBackend, M: AutodiffModule<B>>(
        self,
        module: &M,
    ) -> Result<Result<FiniteGrads, NonFinite>, ScaleError> {
        let Self { gradients, scale } = self;
        let Kinds { known, half } = kinds::<B, M>(&gradients, module);
        // They would stay scaled.
        let all = gradients.len();
        assert_eq!(known, all, "only {known} of {all} gradients are of the module's parameters");
        if let Some(found) = half {
            return Err(ScaleError::HalfGradient { found });
        }
        let (gradients, norm) = measured::<B, M>(gradients, module, scale.inverse());
        Ok(match norm.is_finite() {
            true => Ok(FiniteGrads::new(gradients, norm)),
            false => Err(NonFinite { scale }),
        })
    }
}
