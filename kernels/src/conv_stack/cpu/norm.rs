//! Batch-norm as an affine map, its gradient, and the tangents of both.

use std::ops::Range;

use fewshot_simd::activate_vjp::Coefficients;

use super::parameters::{Parameters, SavedParameters};

/// The statistics and the affine map of one block, padded to whole tiles.
pub struct Norm {
    /// Mean of the convolution without its bias.
    pub mean: Vec<f32>,
    pub inv_std: Vec<f32>,
    /// `gamma * inv_std`
    pub scale: Vec<f32>,
    /// `beta - mean * scale`
    pub shift: Vec<f32>,
}

impl Norm {
    pub fn zeros(padded: usize) -> Self {
        let [mean, inv_std, scale, shift] = [(); 4].map(|()| vec![0.0; padded]);
        Self { mean, inv_std, scale, shift }
    }

    /// From the mean (without the convolution's bias) and the variance of every channel.
    pub fn new(
        parameters: &Parameters<'_>,
        epsilon: f32,
        padded: usize,
        moments: impl Fn(usize) -> (f64, f64),
    ) -> Self {
        let mut norm = Self::zeros(padded);
        for c in 0..parameters.gamma.len() {
            let (mean, variance) = moments(c);
            let inv_std = 1.0 / (variance + f64::from(epsilon)).sqrt();
            let scale = f64::from(parameters.gamma[c]) * inv_std;
            // The bias cancels, unless it is not finite.
            let bias = 0.0 * f64::from(parameters.bias[c]);
            norm.mean[c] = mean as f32;
            norm.inv_std[c] = inv_std as f32;
            norm.scale[c] = scale as f32;
            norm.shift[c] = (f64::from(parameters.beta[c]) - mean * scale + bias) as f32;
        }
        norm
    }

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

/// Sums over the batch that the gradient of one block needs, for every channel.
#[derive(Clone)]
pub struct Sums {
    /// Sums of `dz`, the gradient of the normalised value.
    pub dz: Vec<f64>,
    /// Sums of `dz` times the deviation that it is correlated with.
    pub product: Vec<f64>,
}

impl Sums {
    /// No pixels yet.
    pub fn empty(padded: usize) -> Self {
        Self { dz: vec![0.0; padded], product: vec![0.0; padded] }
    }

    /// Adds the sums `[2, tile]` of the channels from `first` on.
    pub fn add_tile(&mut self, first: usize, sums: &[f32]) {
        let (dz, product) = sums.split_at(sums.len() / 2);
        let add = |to: &mut [f64], from: &[f32]| {
            to[first..].iter_mut().zip(from).for_each(|(to, &from)| *to += f64::from(from));
        };
        add(&mut self.dz, dz);
        add(&mut self.product, product);
    }

    /// Adds the sums of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.dz.iter_mut().zip(&other.dz).for_each(|(to, from)| *to += from);
        self.product.iter_mut().zip(&other.product).for_each(|(to, from)| *to += from);
    }
}

/// The values whose deviations are those in [`Sums::product`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Deviation {
    /// The block's output from beta: `gamma` times the normalised value.
    Output,
    /// The convolution from its mean: the normalised value divided by `inv_std`.
    Convolution,
}

impl Deviation {
    /// Reading the normalised value off the output takes one small map instead of a large one, but
    /// a small gamma leaves it no digits.
    pub fn readable(parameters: &SavedParameters) -> Self {
        let mut pairs = parameters.gamma.iter().zip(&parameters.beta);
        let keeps_digits =
            |(gamma, beta): (&f32, &f32)| gamma.abs() > 1e-20 && gamma.abs() * 16.0 >= beta.abs();
        if pairs.all(keeps_digits) { Self::Output } else { Self::Convolution }
    }
}

/// Gradient of batch-norm: `dy = gain * dz + slope * y + offset`, and of its parameters.
pub struct NormGradient {
    pub gain: Vec<f32>,
    pub slope: Vec<f32>,
    pub offset: Vec<f32>,
    pub bias: Vec<f32>,
    pub gamma: Vec<f32>,
    pub beta: Vec<f32>,
}

impl NormGradient {
    /// `dy = gain * dz`, and nothing of the parameters.
    pub fn from_gain(gain: Vec<f32>) -> Self {
        let (zeros, [bias, gamma, beta]) = (vec![0.0; gain.len()], [(); 3].map(|()| Vec::new()));
        Self { gain, slope: zeros.clone(), offset: zeros, bias, gamma, beta }
    }

    /// The coefficients of some channels.
    pub fn coefficients(&self, channels: Range<usize>) -> Coefficients<'_> {
        let [gain, slope, offset] =
            [&self.gain, &self.slope, &self.offset].map(|all| &all[channels.clone()]);
        Coefficients { gain, slope, offset }
    }

    /// From the sums over the batch. `pixels` is the number of pixels the statistics were taken
    /// from, or `None` if they were given.
    pub fn new(
        norm: &Norm,
        parameters: &SavedParameters,
        sums: &Sums,
        deviation: Deviation,
        pixels: Option<usize>,
    ) -> Self {
        let mut gradient = Self::from_gain(norm.scale.clone());
        for (c, &gamma) in parameters.gamma.iter().enumerate() {
            let (scale, inv_std) = (f64::from(norm.scale[c]), f64::from(norm.inv_std[c]));
            let beta = sums.dz[c];
            let gamma = match deviation {
                Deviation::Output => sums.product[c] / f64::from(gamma),
                Deviation::Convolution => sums.product[c] * inv_std,
            };
            if let Some(pixels) = pixels {
                let slope = -scale * inv_std * gamma / pixels as f64;
                let offset = -scale * beta / pixels as f64 - slope * f64::from(norm.mean[c]);
                gradient.slope[c] = slope as f32;
                gradient.offset[c] = offset as f32;
            }
            gradient.bias.push(if pixels.is_some() { 0.0 } else { (scale * beta) as f32 });
            gradient.gamma.push(gamma as f32);
            gradient.beta.push(beta as f32);
        }
        gradient
    }
}

/// Sums over the batch that the tangent of the gradient of one block needs.
pub struct TangentSums {
    /// Sums of `dz` and of `dz * (y - mean)`.
    pub primal: Sums,
    /// Sums of `dz'` and of `dz' * (y - mean)`.
    pub grad: Sums,
    /// Sums of `dz` and of `dz * (y' - mean')`.
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
    /// `dy' = gain' * dz + gain * dz' + slope' * y + slope * y' + offset'`.
    pub fn gradients(
        &self,
        (norm, norm_tangent): (&Norm, &Norm),
        parameters: &SavedParameters,
        pixels: Option<usize>,
    ) -> (NormGradient, NormGradient) {
        let primal =
            NormGradient::new(norm, parameters, &self.primal, Deviation::Convolution, pixels);
        let mut tangent = NormGradient::from_gain(norm_tangent.scale.clone());
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
                let slope = -scale * inv_std * gamma / pixels;
                let slope_tangent = -(scale_tangent * inv_std * gamma
                    + scale * inv_std_tangent * gamma
                    + scale * inv_std * gamma_tangent)
                    / pixels;
                let offset = -bias_tangent / pixels - slope_tangent * mean - slope * mean_tangent;
                tangent.slope[c] = slope_tangent as f32;
                tangent.offset[c] = offset as f32;
            }
            tangent.bias.push(if pixels.is_some() { 0.0 } else { bias_tangent as f32 });
            tangent.gamma.push(gamma_tangent as f32);
            tangent.beta.push(beta_tangent as f32);
        }
        (primal, tangent)
    }
}
