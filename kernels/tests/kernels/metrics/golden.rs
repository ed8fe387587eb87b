//! Values of PyTorch, made by `golden/metrics.py`.

use fewshot_kernels::Metric;
use serde::Deserialize;

use super::case::Case;

#[derive(Deserialize)]
pub struct Golden {
    sizes: [usize; 5],
    metric: Metric,
    scale: f64,
    pub support: Vec<f32>,
    pub queries: Vec<f32>,
    /// Loss, weighted sum of scores.
    pub values: Vec<f32>,
    /// Of loss and scores, by support and queries.
    pub gradients: Vec<Vec<f32>>,
    /// Of a weighted sum of the gradients, likewise.
    pub second: Vec<Vec<f32>>,
}

impl Golden {
    pub fn all() -> Vec<Self> {
        serde_json::from_str(include_str!("../../golden/metrics.json")).expect("golden values")
    }

    pub fn case(&self) -> Case {
        Case { scale: self.scale, ..Case::new(self.sizes, self.metric) }
    }
}
