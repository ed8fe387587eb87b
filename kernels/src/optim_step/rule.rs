/// The update rule of an optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum StepRule {
    /// `p - lr * d` with `d = g`, or with what [`Momentum`] makes of `g`.
    Sgd { momentum: Option<Momentum>, weight_decay: WeightDecay },
    /// `p - lr * m' / (sqrt(v') + epsilon)` with the moments `m = beta_1 * m + (1 - beta_1) * g` and
    /// `v = beta_2 * v + (1 - beta_2) * g^2`, which start at zero, and
    /// `m' = m / (1 - beta_1^t)`, `v' = v / (1 - beta_2^t)`. Weight decay is L2 for Adam, decoupled for
    /// AdamW.
    Adam { beta_1: f64, beta_2: f64, epsilon: f64, weight_decay: WeightDecay },
    /// `p - lr * |p| / |u| * u` with `u = m' / (sqrt(v') + epsilon) + weight_decay * p`, the moments
    /// of Adam, and Euclidean norms over the whole tensor; the ratio is 1 where either norm is 0.
    Lamb { beta_1: f64, beta_2: f64, epsilon: f64, weight_decay: f64 },
}

/// A velocity `v = factor * v + (1 - dampening) * g` in place of the gradient; `v = g` at the first
/// step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Momentum {
    /// Share of the velocity that stays.
    pub factor: f64,
    /// Share of the gradient that is left out.
    pub dampening: f64,
    /// Nesterov's momentum: the direction is `g + factor * v`.
    pub nesterov: bool,
}

/// A pull towards zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WeightDecay {
    /// `g + strength * p` takes the place of `g`.
    L2(f64),
    /// `p * (1 - lr * strength)` takes the place of `p`, and the gradient stays as it is.
    Decoupled(f64),
}

impl WeightDecay {
    /// No pull.
    pub const NONE: Self = Self::L2(0.0);
}

impl StepRule {
    /// Tensors that the rule remembers of every parameter.
    pub fn remembers(&self) -> usize {
        match self {
            Self::Sgd { momentum, .. } => usize::from(momentum.is_some()),
            Self::Adam { .. } | Self::Lamb { .. } => 2,
        }
    }
}
