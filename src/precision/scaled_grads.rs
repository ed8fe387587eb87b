use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;
use fewshot_kernels::{DeviceGradStats, grad_stats, grad_stats_on_device};

use super::measure::TakenGradients;
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

    /// Scale of their loss.
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

    /// The gradients of a loss that was not scaled, and statistics that show later if they are finite: nothing
    /// is read from the device.
    ///
    /// # Panics
    /// Where [`unscale`](Self::unscale) panics, and for a loss that was scaled: the value read from the device decides its scale.
    pub(crate) fn on_device<B: AutodiffBackend, M: AutodiffModule<B>>(
        self,
        module: &M,
    ) -> (GradientsParams, DeviceGradStats<B::InnerBackend>) {
        assert_eq!(self.scale, LossScale::ONE, "a loss that is not scaled");
        let taken = TakenGradients::<B>::new(self.gradients, module);
        taken.check().unwrap_or_else(|error| panic!("{error}"));
        let stats = grad_stats_on_device::<B::InnerBackend>(taken.tensors.clone());
        (taken.restore(1.0), stats)
    }

    /// [`unscale`](Self::unscale), with an error for gradients in half precision.
    pub(super) fn checked<B: AutodiffBackend, M: AutodiffModule<B>>(
        self,
        module: &M,
    ) -> Result<Result<FiniteGrads, NonFinite>, ScaleError> {
        let Self { gradients, scale } = self;
        let mut taken = TakenGradients::<B>::new(gradients, module);
        taken.check()?;
        let (tensors, stats) = grad_stats::<B::InnerBackend>(taken.tensors, scale.inverse());
        if !stats.norm.is_finite() {
            return Ok(Err(NonFinite { scale }));
        }
        taken.tensors = tensors;
        Ok(Ok(FiniteGrads { gradients: taken.restore(1.0), norm: stats.norm }))
    }
}
