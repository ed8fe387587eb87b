//! Tangents of batch-norm and of its gradient.

use super::super::norm::{Deviation, Norm, NormGradient, Sums};
use super::super::parameters::{Parameters, SavedParameters};

impl Norm {
    /// Its tangent, from the sums of `y'` and of `y' * (y - mean)` over the batch, and the number of pixels the
    /// statistics were taken from, or `None` if they were given.
    pub fn tangent(
        &self,
        parameters: &SavedParameters,
        parameter_tangents: &Parameters<'_>,
        sums: &Sums,
        pixels: Option<usize>,
    ) -> Self {
        let mut tangent = Self::zeros(self.mean.len());
        for (c, &gamma) in parameters.gamma.iter().enumerate() {
            let [at, inv_std, scale] =
                [&self.mean, &self.inv_std, &self.scale].map(|all| f64::from(all[c]));
            let (mean, inv_std_tangent) = match pixels {
                Some(pixels) => {
                    let pixels = pixels as f64;
                    (sums.dz[c] / pixels, -inv_std.powi(3) * sums.product[c] / pixels)
                }
                // The bias is in the mean.
                None => (-f64::from(parameter_tangents.bias[c]), 0.0),
            };
            let scale_tangent = f64::from(parameter_tangents.gamma[c]) * inv_std
                + f64::from(gamma) * inv_std_tangent;
            let shift = f64::from(parameter_tangents.beta[c]) - mean * scale - at * scale_tangent;
            tangent.mean[c] = mean as f32;
            tangent.inv_std[c] = inv_std_tangent as f32;
            tangent.scale[c] = scale_tangent as f32;
            tangent.shift[c] = shift as f32;
        }
        tangent
    }
}

/// Sums over the batch that the tangent of the gradient of one block needs.
pub struct TangentSums {
    /// Of `dz` and of `dz * (y - mean)`.
    pub primal: Sums,
    /// Of `dz'` and of `dz' * (y - mean)`.
    pub grad: Sums,
    /// Of `dz` and of `dz * (y' - mean')`.
    pub conv: Sums,
}

impl TangentSums {
    /// No pixels yet.
    pub fn empty(padded: usize) -> Self {
        let [primal, grad, conv] = [(); 3].map(|()| Sums::empty(padded));
        Self { primal, grad, conv }
    }

    /// Adds the sums of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.primal.merge(&other.primal);
        self.grad.merge(&other.grad);
        self.conv.merge(&other.conv);
    }

    /// The gradient of batch-norm, and its tangent in the same form:
    /// `dy' = gain' * dz + gain * dz' + tilt' * y + tilt * y' + offset'`.
    pub fn gradients(
        &self,
        (norm, norm_tangent): (&Norm, &Norm),
        parameters: &SavedParameters,
        pixels: Option<usize>,
    ) -> (NormGradient, NormGradient) {
        let primal =
            NormGradient::new(norm, parameters, &self.primal, Deviation::Convolution, pixels);
        let padded = norm.mean.len();
        let mut tangent =
            NormGradient { gain: norm_tangent.scale.clone(), ..NormGradient::identity(padded) };
        for c in 0..parameters.gamma.len() {
            let [mean, inv_std, scale] =
                [&norm.mean, &norm.inv_std, &norm.scale].map(|all| f64::from(all[c]));
            let [mean_tangent, inv_std_tangent, scale_tangent] =
                [&norm_tangent.mean, &norm_tangent.inv_std, &norm_tangent.scale]
                    .map(|all| f64::from(all[c]));
            let gamma = inv_std * self.primal.product[c];
            let gamma_tangent = inv_std * (self.grad.product[c] + self.conv.product[c])
                + inv_std_tangent * self.primal.product[c];
            let (beta, beta_tangent) = (self.primal.dz[c], self.grad.dz[c]);
            let bias_tangent = scale_tangent * beta + scale * beta_tangent;
            if let Some(pixels) = pixels {
                let pixels = pixels as f64;
                let tilt = -scale * inv_std * gamma / pixels;
                let tilt_tangent = -(scale_tangent * inv_std * gamma
                    + scale * inv_std_tangent * gamma
                    + scale * inv_std * gamma_tangent)
                    / pixels;
                let offset = -bias_tangent / pixels - tilt_tangent * mean - tilt * mean_tangent;
                tangent.tilt[c] = tilt_tangent as f32;
                tangent.offset[c] = offset as f32;
            }
            tangent.bias.push(if pixels.is_some() { 0.0 } else { bias_tangent as f32 });
            tangent.gamma.push(gamma_tangent as f32);
            tangent.beta.push(beta_tangent as f32);
        }
        (primal, tangent)
    }
}
