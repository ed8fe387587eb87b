use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::PlasticityError;
use super::error::at_least;

/// A layer that reacts to change: it gives how far an input is from what it came to expect.
///
/// Each value has a running mean `m` and a running variance `v`,
///
/// ```text
/// d = x - m,   m <- m + d / tau,   v <- v + (d^2 - v) / tau,
/// ```
///
/// so a constant input fades away within about `tau` ticks, and with `tau = 1` the layer gives the
/// difference from the tick before. The surprise is the mean over values of `d^2 / (v' + epsilon)`
/// with the variance `v'` before the tick: about 1 for inputs that vary as they always did. There is
/// no weight to learn; every sequence of a batch has expectations of its own.
///
/// # Conventions
/// The first input is expected and surprises nobody. After `k` deviations the variance is corrected
/// for its start at zero, `v_k = v / (1 - (1 - 1 / tau)^k)`, and the present deviation counts as one
/// of `k + 1`, `v' = v_k + (d^2 - v_k) / (k + 1)`: who has seen little is not surprised by more than
/// `k + 1`, and while inputs vary alike the expected surprise is 1 from the second tick on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reactive {
    tau: f64,
    epsilon: f64,
}

/// Expectation of a [`Reactive`] layer.
#[derive(Clone, Debug)]
pub struct Expectation<B: Backend> {
    mean: Tensor<B, 2>,
    variance: Tensor<B, 2>,
    /// Deviations that the variance was made of.
    deviations: i32,
}

/// Response of a [`Reactive`] layer to an input.
#[derive(Clone, Debug)]
pub struct Reaction<B: Backend> {
    /// Distance from the expectation, `[b, d]`.
    pub deviation: Tensor<B, 2>,
    /// Mean squared deviation in units of the variance, `[b, 1]`.
    pub surprise: Tensor<B, 2>,
    /// For the next input.
    pub expectation: Expectation<B>,
}

impl Reactive {
    /// A layer that gets used to an input within about `tau` ticks.
    ///
    /// # Errors
    /// Unless it is a number from one on.
    pub fn new(tau: f64) -> Result<Self, PlasticityError> {
        Ok(Self { tau: at_least("tau", 1.0, "a number from 1 on", tau)?, epsilon: 1e-5 })
    }

    /// Reacts to `x`, `[b, d]`, with the expectation that the input before left, if there was one.
    pub fn forward<B: Backend>(
        &self,
        x: Tensor<B, 2>,
        expectation: Option<Expectation<B>>,
    ) -> Reaction<B> {
        let Some(Expectation { mean, variance, deviations }) = expectation else {
            return Self::first(x);
        };
        let deviation = x - mean.clone();
        let square = deviation.clone() * deviation.clone();
        let usual = match deviations {
            0 => square.clone(),
            seen => {
                let corrected = variance.clone() / (1.0 - (1.0 - 1.0 / self.tau).powi(seen));
                corrected.clone() + (square.clone() - corrected) / (f64::from(seen) + 1.0)
            }
        };
        let surprise = (square.clone() / (usual + self.epsilon)).mean_dim(1);
        let expectation = Expectation {
            mean: mean + deviation.clone() / self.tau,
            variance: variance.clone() + (square - variance) / self.tau,
            deviations: deviations.saturating_add(1),
        };
        Reaction { deviation, surprise, expectation }
    }

    fn first<B: Backend>(x: Tensor<B, 2>) -> Reaction<B> {
        let deviation = x.zeros_like();
        let surprise = deviation.clone().narrow(1, 0, 1);
        let expectation = Expectation { mean: x, variance: deviation.clone(), deviations: 0 };
        Reaction { deviation, surprise, expectation }
    }
}
