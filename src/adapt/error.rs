/// An inner loop that cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum AdaptError {
    /// A mask that leaves nothing to adapt, of the `names` of all parameters that are not frozen.
    #[error("the mask {mask} selects no parameter that can move; the module has {}", names.join(", "))]
    NothingMoves { mask: String, names: Vec<String> },
    /// A number that makes no sense.
    #[error("the inner loop's {name} must be {expected}, found {value}")]
    Setting { name: &'static str, expected: &'static str, value: f64 },
    /// No inner steps, for a method that learns by them.
    #[error("{method} needs at least one inner step")]
    NoSteps { method: &'static str },
    /// An operation whose gradient Burn cannot differentiate. `places` are where the module has
    /// parameters of layers whose type has that name, layers of this library included.
    #[error(
        "Burn cannot differentiate the gradient of {layer} ({operation}){}; the layers of \
         fewshot_models::nn can be",
        among(places)
    )]
    NotTwice { layer: &'static str, operation: String, places: Vec<String> },
    /// A backward pass by segments of a network that has only one, and so no point between segments
    /// to recompute from.
    #[error(
        "{architecture} has one segment; a backward pass by segments needs two, which an encoder \
         tells by `segments` and `forward_segment`"
    )]
    OneSegment { architecture: String },
    /// A classifier that has another number of classes than the tasks.
    #[error("a classifier of {outputs} ways cannot learn {ways}-way tasks")]
    Ways { ways: usize, outputs: usize },
    /// Classical training on episodes with a `class` that its classifier does not have, or,
    /// if the class is `None`, with classes that are not known.
    #[error(
        "a classifier of {classes} base classes cannot be trained on episodes {}",
        match class {
            Some(class) => format!("that show class {class}"),
            None => "whose classes are not known".to_owned(),
        }
    )]
    BaseClasses { classes: usize, class: Option<usize> },
    /// Tasks without queries, of which a loss on episodes is.
    #[error(
        "training on episodes needs queries, and these tasks have none: mini-batches of images are for classical training"
    )]
    NoQueries,
    /// A network whose outputs have another length than the targets.
    #[error("a network with outputs of {outputs} values cannot learn targets of {targets}")]
    Outputs { targets: usize, outputs: usize },
}

/// Checks that `value`, a number called `name`, is as `expected`, which `fits` tells.
pub(crate) fn setting(
    name: &'static str,
    expected: &'static str,
    value: f64,
    fits: bool,
) -> Result<(), AdaptError> {
    if fits { Ok(()) } else { Err(AdaptError::Setting { name, expected, value }) }
}

fn among(places: &[String]) -> String {
    match places {
        [] => String::new(),
        [place] => format!("; it is {place}"),
        places => format!("; it is among {}", places.join(", ")),
    }
}
