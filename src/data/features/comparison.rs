use fewshot_kernels::Metric;

use super::Features;

/// The steps from features to the values that a classifier by nearest class means compares.
///
/// A class mean is the mean of rows that are centred and normalised, and is not normalised again.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Vector that is first subtracted from each row, if there is one.
    pub center: Option<Vec<f32>>,
    /// `true` to divide each row by its Euclidean norm afterwards.
    pub normalize: bool,
    /// Measure of likeness of a row and a class mean.
    pub metric: Metric,
}

/// Lower bound of a norm that rows are divided by, as in PyTorch's `F.normalize`.
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
