/// An inner loop that cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum AdaptError {
    /// A mask that leaves nothing to adapt, of the `names` of all parameters that are not frozen.
    #[error("the mask {mask} selects no parameter that can move; the module has {}", names.join(", "))]
    NothingMoves { mask: String, names: Vec<String> },
    /// A number that makes no sense.
    #[error("the inner loop's {name} must be {wanted}, found {found}")]
    Setting { name: &'static str, wanted: &'static str, found: f64 },
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
    #[error("a classifier of {found} ways cannot learn {wanted}-way tasks")]
    Ways { wanted: usize, found: usize },
    /// Classical training on episodes with a class `found` that its classifier does not have, or,
    /// if that is `None`, with classes that are not known.
    #[error(
        "a classifier of {wanted} base classes cannot be trained on episodes {}",
        match found {
            Some(class) => format!("that show class {class}"),
            None => "whose classes are not known".to_owned(),
        }
    )]
    BaseClasses { wanted: usize, found: Option<usize> },
    /// A network whose outputs have another length than the targets.
    #[error("a network with outputs of {found} values cannot learn targets of {wanted}")]
    Outputs { wanted: usize, found: usize },
}

/// Checks that `found`, a number called `name`, is `wanted`, which `fits` tells.
pub(crate) fn setting(
    name: &'static str,
    wanted: &'static str,
    found: f64,
    fits: bool,
) -> Result<(), AdaptError> {
    if fits { Ok(()) } else { Err(AdaptError::Setting { name, wanted, found }) }
}

fn among(places: &[String]) -> String {
    match places {
        [] => String::new(),
        [place] => format!("; it is {place}"),
        places => format!("; it is among {}", places.join(", ")),
    }
}
