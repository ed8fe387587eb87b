use burn::module::AutodiffModule;
use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;
use fewshot_models::{Classifier, Encoder};

use super::noise::noise;
use super::{BackboneConfig, Estimate, Method};
use crate::adapt::{AdaptError, InnerLoop, InnerRule, SecondOrder};
use crate::episode::{Classification, EpisodeSampler};
use crate::hardware::{MemoryFit, OptimizerKind};
use crate::learners::{AdaptableNetwork, Maml, MetaLearner, ProtoNet};
use crate::optim::{Adam, AdamW, Lamb, Sgd};
use crate::train::{TrainError, fit_meta_batch};

impl Estimate {
    /// Memory of steps by their number of tasks. Steps run at the first two of `sizes`, and at the third to
    /// see how far off the line through them is. The images are noise.
    ///
    /// Burn's `BalancedCheckpointing`, if [it is chosen](Self::with_checkpointing), recomputes activations
    /// only where `B` has it.
    ///
    /// # Errors
    /// Errors of [`fit_meta_batch`], and one for an inner loop without a step.
    ///
    /// # Panics
    /// Where one of `sizes` is beyond the tasks that share a network, and for tasks without a class, a
    /// shot or a query.
    pub fn measure<B: AutodiffBackend>(
        &self,
        sizes: [usize; 3],
        device: &B::Device,
    ) -> Result<MemoryFit, TrainError> {
        let backbone = &self.backbone;
        let tasks = noise(backbone.image, self.protocol);
        let lanes = self.lanes();
        assert!(sizes[2] <= lanes, "{sizes:?} tasks do not share a network of {lanes} lanes");
        let steps = Steps::<B> { estimate: self, tasks, sizes, device };
        let features = backbone.features();
        match &backbone.config {
            BackboneConfig::Conv4(config) => steps.of(config.init(device), features),
            BackboneConfig::Mlp(config) => steps.of(config.init(device), features),
        }
    }
}

/// Steps to be measured.
struct Steps<'a, B: AutodiffBackend> {
    estimate: &'a Estimate,
    tasks: EpisodeSampler,
    sizes: [usize; 3],
    device: &'a B::Device,
}

impl<B: AutodiffBackend> Steps<'_, B> {
    fn of<E>(&self, encoder: E, features: usize) -> Result<MemoryFit, TrainError>
    where
        E: Encoder<B> + AutodiffModule<B, InnerModule: Encoder<B::InnerBackend>>,
        Classifier<B, E>: AdaptableNetwork<B, Kind = Classification>
            + AutodiffModule<B, InnerModule: AdaptableNetwork<B::InnerBackend, Kind = Classification>>,
    {
        let method = self.estimate.planner.method;
        if method == Method::ProtoNet {
            let checkpointing = self.estimate.planner.activations.checkpointing;
            return self.by(&ProtoNet::<B, E>::new(encoder).with_checkpointing(checkpointing));
        }
        let ways = self.estimate.protocol.ways;
        let network = Classifier::new(encoder, features, ways, self.device);
        let learner = learner(method, network)?;
        self.by(&learner.with_lanes(self.estimate.lanes()))
    }

    fn by<L: MetaLearner<B>>(&self, learner: &L) -> Result<MemoryFit, TrainError> {
        match self.estimate.planner.optimizer {
            OptimizerKind::Sgd => self.with(learner, Sgd::new().init()),
            OptimizerKind::Momentum => self.with(learner, Sgd::new().with_momentum(0.9).init()),
            OptimizerKind::Adam => self.with(learner, Adam::new().init()),
            OptimizerKind::AdamW => self.with(learner, AdamW::new().init()),
            OptimizerKind::Lamb => self.with(learner, Lamb::new().init()),
        }
    }

    fn with<L, O>(&self, learner: &L, optimizer: O) -> Result<MemoryFit, TrainError>
    where
        L: MetaLearner<B>,
        O: Optimizer<L, B>,
    {
        fit_meta_batch::<B, L, _, O>(learner, &optimizer, &self.tasks, self.device, self.sizes)
    }
}

/// Memory does not depend on the rate.
fn learner<B, N>(method: Method, network: N) -> Result<Maml<B, N>, AdaptError>
where
    B: AutodiffBackend,
    N: AdaptableNetwork<B>,
{
    let inner = |steps| InnerLoop::new(steps, 0.01);
    match method {
        Method::ProtoNet => unreachable!("it has no inner loop"),
        Method::Maml { steps } => Maml::new(network, inner(steps)),
        Method::MamlChain { steps } => {
            Maml::new(network, inner(steps)).map(|all| all.with_second_order(SecondOrder::Chain))
        }
        Method::FirstOrder { steps } => Maml::first_order(network, inner(steps)),
        Method::Reptile { steps, batch } => {
            Maml::reptile(network, inner(steps).with_rule(InnerRule::reptile()), batch)
        }
        Method::Anil { steps } => Maml::anil(network, inner(steps)),
    }
}
