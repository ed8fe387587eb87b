/// Plasticity that cannot be had. Layers are counted from 1.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum PlasticityError {
    /// A number that makes no sense.
    #[error("the {name} must be {expected}, found {actual}")]
    Setting { name: &'static str, expected: &'static str, actual: f64 },
    /// A hierarchy without a layer. The size of the input is among those `found`.
    #[error("a hierarchy needs an input and at least one layer, found {actual} sizes")]
    NoLayers { actual: usize },
    /// Not one period for each layer.
    #[error("{layers} layers need {layers} periods, found {actual}")]
    Periods { layers: usize, actual: usize },
    /// A period that is no multiple of the one below.
    #[error("period {actual} of layer {layer} is no multiple of {below}, the period below it")]
    Period { layer: usize, below: usize, actual: usize },
    /// A layer that does not take what the one below it gives.
    #[error("layer {layer} takes {actual} values, what is below it gives {expected}")]
    Chain { layer: usize, expected: usize, actual: usize },
    /// An input of another length.
    #[error("the input has {actual} values, the first layer takes {expected}")]
    Inputs { expected: usize, actual: usize },
    /// Another number of sequences than before.
    #[error("{actual} sequences cannot go on where {expected} began")]
    Sequences { expected: usize, actual: usize },
    /// A first layer that does not take a whole number of inputs at once.
    #[error(
        "layer 1 takes {actual} values, no multiple of the {period} inputs that it sees at once"
    )]
    Window { period: usize, actual: usize },
    /// A batch without a sequence.
    #[error("a batch needs at least one sequence")]
    NoSequences,
    /// Nothing to go through.
    #[error("a sequence needs at least one step")]
    NoSteps,
    /// An input that is not finite.
    #[error("an input from tick {tick} on is not finite")]
    NotFinite { tick: usize },
    /// Feedback into something that is no single output.
    #[error("top-down gain needs parents that see outputs one by one, not concatenated")]
    FeedbackIntoWindow,
}

/// `value`, if it is a number from `least` on.
pub(super) fn at_least(
    name: &'static str,
    least: f64,
    expected: &'static str,
    value: f64,
) -> Result<f64, PlasticityError> {
    match value.is_finite() && value >= least {
        true => Ok(value),
        false => Err(PlasticityError::Setting { name, expected, actual: value }),
    }
}
