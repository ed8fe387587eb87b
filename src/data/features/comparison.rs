use fewshot_kernels::Metric;

use super::Features;

/// How features become what a classifier by nearest class means compares.
///
/// A class mean is the mean of rows that are centred and normalised, and is not normalised again.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What is first taken away from each row, if anything is.
    pub center: Option<Vec<f32>>,
    /// Whether rows are then divided by their Euclidean norms.
    pub normalize: bool,
    /// How near a row is to a class mean.
    pub metric: Metric,
}

/// What a norm is at least taken for, as PyTorch's `F.normalize` does.
const LEAST_NORM: f32 = 1e-12;

impl Comparison {
    /// Rows as they are.
    pub fn plain(metric: Metric) -> Self {
        Self { center: None, normalize: false, metric }
    }

    /// All rows as they are compared, one after the other.
    ///
    /// # Panics
    /// When the centre has another length than the rows.
    pub fn rows(&self, features: &Features) -> Vec<f32> {
        let mut values = match &self.center {
            Some(center) => features.centred(center).values,
            None => features.values.clone(),
        };
        if self.normalize {
            values.chunks_exact_mut(features.length).for_each(normalize);
        }
        values
    }
}

fn normalize(row: &mut [f32]) {
    let norm = row.iter().map(|value| value * value).sum::<f32>().sqrt().max(LEAST_NORM);
    row.iter_mut().for_each(|value| *value /= norm);
}
