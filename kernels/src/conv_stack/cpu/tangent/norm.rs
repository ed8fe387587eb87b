//! Batch-norm along a direction.

use super::super::norm::{Deviation, Norm, NormGradient, Sums};
use super::super::parameters::Parameters;

/// The tangent of a [`Norm`].
pub struct NormTangent {
    pub mean: Vec<f32>,
    pub inv_std: Vec<f32>,
    pub scale: Vec<f32>,
    pub shift: Vec<f32>,
}

impl NormTangent {
    /// From the sums of `y'` and of `y' * (y - mean)` over the batch, and the number of pixels the
    /// statistics were taken from, or `None` if they were given.
    pub fn new(
        norm: &Norm,
        parameters: &Parameters<'_>,
        direction: &Parameters<'_>,
        sums: &Sums,
        pixels: Option<usize>,
    ) -> Self {
        let zeros = vec![0.0; norm.mean.len()];
        let mut tangent = Self {
            mean: zeros.clone(),
            inv_std: zeros.clone(),
            scale: zeros.clone(),
            shift: zeros,
        };
        for (c, &gamma) in parameters.gamma.iter().enumerate() {
            let [at, inv_std, scale] =
                [&norm.mean, &norm.inv_std, &norm.scale].map(|all| f64::from(all[c]));
            let (mean, moved) = match pixels {
                Some(pixels) => {
                    let pixels = pixels as f64;
                    (sums.dz[c] / pixels, -inv_std.powi(3) * sums.product[c] / pixels)
                }
                // The bias is in the mean.
                None => (-f64::from(direction.bias[c]), 0.0),
            };
            let turned = f64::from(direction.gamma[c]) * inv_std + f64::from(gamma) * moved;
            let shift = f64::from(direction.beta[c]) - mean * scale - at * turned;
            tangent.mean[c] = mean as f32;
            tangent.inv_std[c] = moved as f32;
            tangent.scale[c] = turned as f32;
            tangent.shift[c] = shift as f32;
        }
        tangent
    }
}

/// Sums over the batch that the gradient of one block along a direction needs.
pub struct TangentSums {
    /// Of `dz` and of `dz * (y - mean)`.
    pub point: Sums,
    /// Of `dz'` and of `dz' * (y - mean)`.
    pub grad: Sums,
    /// Of `dz` and of `dz * (y' - mean')`.
    pub conv: Sums,
}

impl TangentSums {
    /// No pixels yet.
    pub fn empty(padded: usize) -> Self {
        let [point, grad, conv] = [(); 3].map(|()| Sums::empty(padded));
        Self { point, grad, conv }
    }

    /// Adds the sums of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.point.merge(&other.point);
        self.grad.merge(&other.grad);
        self.conv.merge(&other.conv);
    }

    /// The gradient of batch-norm, and its tangent in the same form:
    /// `dy' = gain' * dz + gain * dz' + tilt' * y + tilt * y' + offset'`.
    pub fn gradients(
        &self,
        (norm, along): (&Norm, &NormTangent),
        parameters: &Parameters<'_>,
        pixels: Option<usize>,
    ) -> (NormGradient, NormGradient) {
        let point =
            NormGradient::new(norm, parameters, &self.point, Deviation::Convolution, pixels);
        let padded = norm.mean.len();
        let mut tangent =
            NormGradient { gain: along.scale.clone(), ..NormGradient::identity(padded) };
        for c in 0..parameters.gamma.len() {
            let [mean, inv_std, scale] =
                [&norm.mean, &norm.inv_std, &norm.scale].map(|all| f64::from(all[c]));
            let [moved_mean, moved_inv_std, moved_scale] =
                [&along.mean, &along.inv_std, &along.scale].map(|all| f64::from(all[c]));
            let gamma = inv_std * self.point.product[c];
            let moved_gamma = inv_std * (self.grad.product[c] + self.conv.product[c])
                + moved_inv_std * self.point.product[c];
            let (beta, moved_beta) = (self.point.dz[c], self.grad.dz[c]);
            let moved_bias = moved_scale * beta + scale * moved_beta;
            if let Some(pixels) = pixels {
                let pixels = pixels as f64;
                let tilt = -scale * inv_std * gamma / pixels;
                let moved_tilt = -(moved_scale * inv_std * gamma
                    + scale * moved_inv_std * gamma
                    + scale * inv_std * moved_gamma)
                    / pixels;
                let offset = -moved_bias / pixels - moved_tilt * mean - tilt * moved_mean;
                tangent.tilt[c] = moved_tilt as f32;
                tangent.offset[c] = offset as f32;
            }
            tangent.bias.push(if pixels.is_some() { 0.0 } else { moved_bias as f32 });
            tangent.gamma.push(moved_gamma as f32);
            tangent.beta.push(moved_beta as f32);
        }
        (point, tangent)
    }
}
