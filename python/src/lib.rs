//! The Python package `fewshot`: what its own modules in `python/fewshot/` are made of.

mod arrays;
mod backbone;
mod compute;
mod errors;
mod evaluation;
mod features;
mod head;
mod labels;
mod model;
mod pictures;
mod prediction;
mod sampler;
mod settings;

use burn::backend::Flex;
use pyo3::prelude::*;

/// The backend that the package computes on.
type B = Flex;

#[pymodule]
mod _fewshot {
    #[pymodule_export]
    use super::backbone::{Backbone, embed};
    #[pymodule_export]
    use super::evaluation::{Evaluation, evaluate};
    #[pymodule_export]
    use super::features::Features;
    #[pymodule_export]
    use super::head::Head;
    #[pymodule_export]
    use super::model::AdaptedModel;
    #[pymodule_export]
    use super::prediction::Prediction;
    #[pymodule_export]
    use super::sampler::Sampler;

    use super::*;

    #[pymodule_init]
    fn start(module: &Bound<'_, PyModule>) -> PyResult<()> {
        compute::silence_panics();
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("METHODS", settings::methods())
    }
}
