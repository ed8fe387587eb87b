use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::preprocessing::Preprocessing;

/// The mean and deviation of each colour, by which values from 0 to 1 become those that a pretrained network takes:
/// `(x - mean) / deviation`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Normalization {
    /// Means of red, green and blue.
    pub mean: [f32; 3],
    /// Deviations of red, green and blue.
    pub deviation: [f32; 3],
}

impl From<Preprocessing> for Normalization {
    fn from(Preprocessing { mean, deviation, .. }: Preprocessing) -> Self {
        Self { mean, deviation }
    }
}

impl Normalization {
    /// Normalised images: `[.., 3, h, w]` to the same shape.
    ///
    /// # Panics
    /// When images have no three channels.
    pub fn apply<B: Backend, const D: usize>(&self, images: Tensor<B, D>) -> Tensor<B, D> {
        let device = images.device();
        let each = |values: [f32; 3]| {
            let mut shape = [1; D];
            shape[D - 3] = 3;
            Tensor::<B, D>::from_data(TensorData::new(values.to_vec(), shape), &device)
        };
        (images - each(self.mean)) / each(self.deviation)
    }
}
