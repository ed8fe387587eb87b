use std::fmt;
use std::str::FromStr;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

/// How close a query is to a prototype.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Minus the squared Euclidean distance, as in the paper on prototypical networks.
    ///
    /// The PyTorch equivalent is `-torch.cdist(q, p) ** 2`.
    #[default]
    SquaredEuclidean,
    /// Cosine of the angle, from -1 to 1; zero for a vector of zeros.
    ///
    /// The PyTorch equivalent is `F.normalize(q) @ F.normalize(p).T`.
    Cosine,
}

impl Metric {
    /// Similarity of every query to every prototype; larger is closer.
    ///
    /// # Shapes
    /// - `queries`: `[t, q, d]`
    /// - `prototypes`: `[t, ways, d]`
    /// - returns `[t, q, ways]`
    pub fn score<B: Backend>(
        self,
        queries: Tensor<B, 3>,
        prototypes: Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        match self {
            Self::SquaredEuclidean => {
                let of_queries = squared_length(queries.clone());
                let of_prototypes = squared_length(prototypes.clone()).swap_dims(1, 2);
                let products = queries.matmul(prototypes.swap_dims(1, 2));
                products * 2.0 - of_queries - of_prototypes
            }
            Self::Cosine => unit(queries).matmul(unit(prototypes).swap_dims(1, 2)),
        }
    }
}

/// `[t, n, d]` to `[t, n, 1]`.
fn squared_length<B: Backend>(x: Tensor<B, 3>) -> Tensor<B, 3> {
    (x.clone() * x).sum_dim(2)
}

fn unit<B: Backend>(x: Tensor<B, 3>) -> Tensor<B, 3> {
    // Clamped before the root, whose derivative at zero is infinite.
    let length = squared_length(x.clone()).clamp_min(1e-24).sqrt();
    x / length
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SquaredEuclidean => "squared-euclidean",
            Self::Cosine => "cosine",
        })
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "squared-euclidean" | "euclidean" => Ok(Self::SquaredEuclidean),
            "cosine" => Ok(Self::Cosine),
            _ => Err(format!("unknown metric {text}, there are squared-euclidean and cosine")),
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;
    use burn::tensor::{TensorData, Tolerance};

    use super::*;

    fn score(metric: Metric, queries: [[f32; 2]; 2], prototypes: [[f32; 2]; 2]) -> TensorData {
        let device = Default::default();
        let queries = Tensor::<Flex, 2>::from_floats(queries, &device).unsqueeze();
        let prototypes = Tensor::<Flex, 2>::from_floats(prototypes, &device).unsqueeze();
        metric.score(queries, prototypes).into_data()
    }

    #[test]
    fn euclidean_scores_are_minus_squared_distances() {
        let found =
            score(Metric::SquaredEuclidean, [[1.0, 2.0], [0.0, 0.0]], [[1.0, 2.0], [4.0, 6.0]]);
        let expected = TensorData::from([[[0.0f32, -25.0], [-5.0, -52.0]]]);
        found.assert_approx_eq::<f32>(&expected, Tolerance::default());
    }

    #[test]
    fn cosine_scores_do_not_depend_on_length() {
        let found = score(Metric::Cosine, [[2.0, 0.0], [0.0, 0.0]], [[7.0, 0.0], [0.0, 0.5]]);
        let expected = TensorData::from([[[1.0f32, 0.0], [0.0, 0.0]]]);
        found.assert_approx_eq::<f32>(&expected, Tolerance::default());
    }

    #[test]
    fn metrics_are_read_as_they_are_written() {
        for metric in [Metric::SquaredEuclidean, Metric::Cosine] {
            assert_eq!(metric.to_string().parse(), Ok(metric));
        }
        assert!("manhattan".parse::<Metric>().is_err());
    }
}
