use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use burn::module::{AutodiffModule, Module, ModuleDisplay};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot_models::BnStatistics;

use crate::episode::{EpisodeBatch, Support};
use crate::learners::{Learner, MetaGradients, MetaLearner};
use crate::precision::LossScale;

/// Another learner, and at which steps it was asked for gradients.
#[derive(Module, Debug)]
pub(super) struct Noted<B: Backend, L> {
    learner: L,
    #[module(skip)]
    step: Option<u64>,
    #[module(skip)]
    steps: Arc<Mutex<Vec<Option<u64>>>>,
    _backend: PhantomData<B>,
}

impl<B: Backend, L> Noted<B, L> {
    pub(super) fn new(learner: L) -> Self {
        Self { learner, step: None, steps: Arc::default(), _backend: PhantomData }
    }

    /// Since it was last asked.
    pub(super) fn steps(&self) -> Vec<Option<u64>> {
        std::mem::take(&mut self.steps.lock().unwrap())
    }
}

impl<B: Backend, L: Learner<B> + ModuleDisplay> Learner<B> for Noted<B, L> {
    type Adapted = L::Adapted;

    fn adapt(&self, support: &Support<B>) -> L::Adapted {
        self.learner.adapt(support)
    }

    fn outputs(&self, batch: &EpisodeBatch<B>, statistics: BnStatistics) -> Tensor<B, 3> {
        self.learner.outputs(batch, statistics)
    }

    fn architecture(&self) -> String {
        self.learner.architecture()
    }
}

impl<B: AutodiffBackend, L> MetaLearner<B> for Noted<B, L>
where
    L: MetaLearner<B> + ModuleDisplay,
    L: AutodiffModule<B, InnerModule: Learner<B::InnerBackend> + ModuleDisplay>,
{
    const DRAWS: bool = L::DRAWS;

    fn meta_gradients(&self, batch: &EpisodeBatch<B>, scale: LossScale) -> MetaGradients<B> {
        self.steps.lock().unwrap().push(self.step);
        self.learner.meta_gradients(batch, scale)
    }

    fn at_step(&mut self, step: u64) {
        self.step = Some(step);
    }
}
