use burn::module::AutodiffModule;
use burn::tensor::backend::{AutodiffBackend, Backend};
use clap::ValueEnum;
use fewshot::adapt::{AdaptError, InnerLoop, InnerRule, Order, Proximal, SecondOrder};
use fewshot::data::{ImageShape, Split};
use fewshot::episode::Protocol;
use fewshot::hardware::Checkpointing;
use fewshot::learners::heads::{AnyHead, HEAD_NAMES, TRANSDUCTIVE_HEAD_NAMES};
use fewshot::learners::{
    AdaptableNetwork, Annealing, BaseClassifierConfig, BaseLogits, Inductive, Maml, MetaLearner,
    Plastic, ProtoNet, QueryNorm,
};
use fewshot::metric::Metric;
use fewshot::models::{BnStatistics, Classifier, Conv4, Conv4Config, Downsampling, Readout};
use fewshot::plasticity::TraceRule;
use fewshot::precision::Precision;
use fewshot::train::{Checkpoint, TrainError};
use serde::{Deserialize, Serialize};

use super::args::{
    BaseLogitsName, BatchNormRule, ClassicalArgs, InnerArgs, Method, OrderName, RouteName, TrainOn,
};
use super::data_spec::{FolderOptions, ImageSpec};
use super::defaults::{Benchmark, Defaults};
use super::error::CliError;

/// What a run was told that its resumption must repeat and its test can look up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recipe {
    pub(crate) method: Method,
    pub(crate) data: ImageSpec,
    pub(crate) split: Split,
    pub(crate) folder: FolderOptions,
    pub(crate) image: ImageShape,
    pub(crate) test: Protocol,
    pub(crate) metric: Metric,
    pub(crate) inner: Option<InnerRecipe>,
    /// The classifier of all training classes, where there is classical training.
    #[serde(default)]
    pub(crate) classical: Option<BaseClassifierConfig>,
    pub(crate) learning_rate: f64,
    /// Never, where there is none.
    pub(crate) halve_every: Option<usize>,
    /// What the network's products compute in.
    #[serde(default)]
    pub(crate) precision: Precision,
    pub(crate) seed: u64,
}

/// The inner loop of a method that has one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct InnerRecipe {
    pub(crate) rate: f64,
    pub(crate) steps: usize,
    pub(crate) eval_steps: usize,
    pub(crate) order: Order,
    /// The network's own, where there is none.
    pub(crate) second_order_route: Option<SecondOrder>,
    /// Of imaml alone.
    pub(crate) proximal: Option<Proximal>,
    /// Examples of an inner step in training and in the test, of reptile alone.
    pub(crate) batch: Option<[usize; 2]>,
    #[serde(default)]
    pub(crate) query_norm: QueryNorm,
    /// Of maml++ alone.
    pub(crate) annealing: Option<Annealing>,
    /// The network's own number, where there is none.
    pub(crate) lanes: Option<usize>,
}

/// Work on a learner, whichever it is.
pub(crate) trait LearnerJob<B: AutodiffBackend> {
    type Output;

    fn run<L: MetaLearner<B>>(self, learner: L) -> Result<Self::Output, CliError>;
}

/// Heads with networks that compare at random before episodes have trained them.
pub(crate) const TRAINED_ON_EPISODES: [&str; 3] = ["relation", "feat", "leo"];

/// Cosines span only -1 to 1.
const COSINE_SCALE: f64 = 10.0;

impl Recipe {
    /// Runs `job` with the learner, its parameters freshly drawn.
    pub(crate) fn with_learner<B: AutodiffBackend, J: LearnerJob<B>>(
        &self,
        device: &B::Device,
        checkpointing: Checkpointing,
        job: J,
    ) -> Result<J::Output, CliError> {
        let (config, encoder) = self.drawn::<B>(device)?;
        if self.method == Method::Plastic {
            let ways = self.test.ways;
            let rule = TraceRule::default();
            return job.run(Plastic::new(encoder, config.features(), ways, rule, device));
        }
        if let Some(learner) = self.inductive(encoder.clone(), &config, device) {
            return job.run(learner);
        }
        let Some(inner) = self.inner else {
            return job.run(self.proto_net(encoder).with_checkpointing(checkpointing));
        };
        let classifier = Classifier::new(encoder, config.features(), self.test.ways, device);
        match self.method {
            Method::ProtoMaml => {
                job.run(inner.set(Maml::prototypical(classifier, inner.inner_loop()))?)
            }
            method => job.run(inner.learner(method, classifier)?),
        }
    }

    /// The network, its parameters freshly drawn.
    fn drawn<B: Backend>(&self, device: &B::Device) -> Result<(Conv4Config, Conv4<B>), CliError> {
        let config = self.network()?;
        self.precision.check::<B>(device).map_err(TrainError::from)?;
        B::seed(device, self.seed);
        let encoder = config.init(device);
        Ok((config, encoder))
    }

    fn proto_net<B: Backend>(&self, encoder: Conv4<B>) -> ProtoNet<B, Conv4<B>> {
        let learner = ProtoNet::new(encoder);
        match self.metric {
            Metric::SquaredEuclidean => learner,
            Metric::Cosine => learner.with_metric(Metric::Cosine, COSINE_SCALE),
        }
    }

    /// The learner of a method that is a head on embeddings.
    fn inductive<B: Backend>(
        &self,
        encoder: Conv4<B>,
        config: &Conv4Config,
        device: &B::Device,
    ) -> Option<Inductive<B, Conv4<B>, AnyHead<B>>> {
        let head = AnyHead::with_name(&self.method.to_string(), config.maps(), device)?;
        let learner = Inductive::new(encoder, head);
        Some(match &self.classical {
            Some(classes) => learner.with_base_classifier(classes.init(device)),
            None => learner,
        })
    }

    /// The encoder that was trained, to put another head on.
    ///
    /// # Errors
    /// When the method trains encoders for its own use, or the checkpoint is not of this recipe.
    pub(crate) fn encoder<B: AutodiffBackend>(
        &self,
        checkpoint: &Checkpoint,
        device: &B::Device,
    ) -> Result<Conv4<B::InnerBackend>, CliError> {
        let (config, encoder) = self.drawn::<B>(device)?;
        if let Some(learner) = self.inductive(encoder.clone(), &config, device) {
            return Ok(checkpoint.load::<B, _, _>(learner, device)?.encoder().valid());
        }
        if self.method == Method::Protonet {
            let learner = self.proto_net(encoder);
            return Ok(checkpoint.load::<B, _, _>(learner, device)?.encoder().valid());
        }
        Err(CliError::Usage(format!(
            "the encoder of {} was trained to adapt: no other method can be put on it",
            self.method
        )))
    }

    /// Whether outputs are classes of their own, so that all tasks have one number of them.
    pub(crate) fn has_outputs(&self) -> bool {
        self.inner.is_some() || self.method == Method::Plastic
    }

    /// The network.
    ///
    /// # Errors
    /// When nothing of an image is left behind its last block.
    pub(crate) fn network(&self) -> Result<Conv4Config, CliError> {
        let ImageShape { channels, height, width } = self.image;
        let config = Conv4Config::new([channels, height, width])
            .with_precision(self.precision)
            .with_context(if self.method == Method::Cavia { 100 } else { 0 });
        let config = match (self.inner, Benchmark::of(self.image)) {
            (None, _) => config,
            (Some(_), Benchmark::Omniglot) => {
                config.with_downsampling(Downsampling::Stride).with_readout(Readout::Average)
            }
            (Some(_), _) => config.with_channels(32),
        };
        match (config.fits(), config.blocks) {
            (true, _) => Ok(config),
            (false, blocks) => Err(CliError::Failed(format!(
                "images of {} are too small for {blocks} blocks",
                self.image
            ))),
        }
    }

    /// What batch-norm normalises with in the test.
    ///
    /// # Errors
    /// When the method gathers no running averages and was told to use them.
    pub(crate) fn statistics(
        &self,
        asked: Option<BatchNormRule>,
    ) -> Result<BnStatistics, CliError> {
        match (self.inner, asked) {
            (Some(_), Some(BatchNormRule::Running)) => Err(CliError::Usage(format!(
                "{} gathers no running averages, so --batch-norm running is not for it",
                self.method
            ))),
            (None, Some(BatchNormRule::Support)) => Err(CliError::Usage(format!(
                "--batch-norm support is for maml and its relatives, not for {}",
                self.method
            ))),
            (Some(_), _) | (None, Some(BatchNormRule::Batch)) => Ok(BnStatistics::Batch),
            (None, None | Some(BatchNormRule::Running)) => Ok(BnStatistics::Running),
        }
    }
}

impl InnerRecipe {
    /// The inner loop of `method`; `None` for a method without one.
    ///
    /// # Errors
    /// When an option is given that the method has no use for, or makes no sense.
    pub(crate) fn new(
        method: Method,
        args: &InnerArgs,
        benchmark: Benchmark,
    ) -> Result<Option<Self>, CliError> {
        let usage = |text: String| Err(CliError::Usage(text));
        if !method.adapts() {
            return match args.given() {
                Some(option) => {
                    usage(format!("{option} is not for {method}, which has no inner loop"))
                }
                None => Ok(None),
            };
        }
        let Defaults { rate, steps, eval_steps, .. } = benchmark.defaults(method);
        let steps = args.inner_steps.unwrap_or(steps);
        let proximal = match (method, args.proximal, args.cg_steps) {
            (Method::Imaml, strength, iterations) => Some(Proximal {
                strength: strength.unwrap_or(2.0),
                iterations: iterations.unwrap_or(5),
            }),
            (_, None, None) => None,
            _ => {
                return usage(format!("--proximal and --cg-steps are for imaml, not for {method}"));
            }
        };
        let batch = match (method, args.inner_batch, args.eval_inner_batch) {
            (Method::Reptile, training, test) => Some([training.unwrap_or(10), test.unwrap_or(5)]),
            (_, None, None) => None,
            _ => return usage(format!("mini-batches are for reptile, not for {method}")),
        };
        let annealing = match (method, args.multi_step_loss, args.first_order_steps) {
            (Method::MamlPlusPlus, multi_step, first_order) => Some(Annealing {
                multi_step: multi_step.unwrap_or(benchmark.multi_step_loss()),
                first_order: first_order.unwrap_or(0),
            }),
            (_, None, None) => None,
            _ => {
                let options = "--multi-step-loss and --first-order-steps are";
                return usage(format!("{options} for maml++, not for {method}"));
            }
        };
        let order = match (method, args.order) {
            (Method::Fomaml, Some(OrderName::Second)) => {
                return usage("fomaml is of first order; --order second is maml".to_owned());
            }
            (Method::Imaml, Some(_)) => {
                return usage("imaml does not differentiate its steps: no --order".to_owned());
            }
            (Method::Reptile, Some(_)) => {
                return usage("reptile does not differentiate its steps: no --order".to_owned());
            }
            (Method::Fomaml | Method::Reptile, _) | (_, Some(OrderName::First)) => Order::First,
            (_, Some(OrderName::Second) | None) => Order::Second,
        };
        if order == Order::First && args.first_order_steps.is_some() {
            return usage(
                "--first-order-steps is before second order: no --order first".to_owned(),
            );
        }
        let steps_are_differentiated = order == Order::Second && method != Method::Imaml;
        if args.second_order_route.is_some() && !steps_are_differentiated {
            return usage(
                "--second-order-route is for exact derivatives of inner steps".to_owned(),
            );
        }
        let rate = args.inner_lr.unwrap_or(rate);
        if !(rate.is_finite() && rate >= 0.0) {
            return usage("--inner-lr must be a number from 0 on".to_owned());
        }
        Ok(Some(Self {
            rate,
            steps,
            eval_steps: args.eval_inner_steps.or(eval_steps).unwrap_or(steps),
            order,
            second_order_route: args.second_order_route.map(|route| match route {
                RouteName::Unrolled => SecondOrder::Unrolled,
                RouteName::Chain => SecondOrder::Chain,
            }),
            proximal,
            batch,
            query_norm: QueryNorm::Together,
            annealing,
            lanes: args.lanes,
        }))
    }

    /// With queries normalised as a test was told.
    pub(crate) fn with_batch_norm(self, asked: Option<BatchNormRule>) -> Self {
        let query_norm = match asked {
            Some(BatchNormRule::Support) => QueryNorm::Alone,
            Some(BatchNormRule::Batch) => QueryNorm::Together,
            Some(BatchNormRule::Running) | None => self.query_norm,
        };
        Self { query_norm, ..self }
    }

    /// The learner of a method that serves any network.
    pub(crate) fn learner<B: AutodiffBackend, N: AdaptableNetwork<B>>(
        &self,
        method: Method,
        network: N,
    ) -> Result<Maml<B, N>, CliError> {
        let inner = self.inner_loop();
        self.set(match method {
            Method::Fomaml => Maml::first_order(network, inner),
            Method::Anil => Maml::anil(network, inner),
            Method::Boil => Maml::boil(network, inner),
            Method::MetaSgd => Maml::meta_sgd(network, inner),
            Method::Imaml => {
                let proximal = self.proximal.ok_or_else(|| incomplete(method))?;
                Maml::implicit(network, inner, proximal)
            }
            Method::MetaCurvature => Maml::meta_curvature(network, inner),
            Method::MamlPlusPlus => {
                Maml::plus_plus(network, inner, self.annealing.unwrap_or_default())
            }
            Method::Cavia => Maml::cavia(network, inner),
            Method::Reptile => {
                let [batch, test] = self.batch.ok_or_else(|| incomplete(method))?;
                Maml::reptile(network, inner.with_rule(InnerRule::reptile()), batch)
                    .map(|learner| learner.with_test_batch(test))
            }
            Method::Maml => Maml::new(network, inner),
            _ => return Err(CliError::Usage(format!("{method} is for classes alone"))),
        })
    }

    fn inner_loop(&self) -> InnerLoop {
        InnerLoop::new(self.steps, self.rate).with_order(self.order)
    }

    fn set<B: AutodiffBackend, N: AdaptableNetwork<B>>(
        &self,
        learner: Result<Maml<B, N>, AdaptError>,
    ) -> Result<Maml<B, N>, CliError> {
        let learner = learner
            .map_err(|error| CliError::Usage(error.to_string()))?
            .with_test_steps(self.eval_steps)
            .with_query_norm(self.query_norm);
        let learner = match self.second_order_route {
            Some(route) => learner.with_second_order(route),
            None => learner,
        };
        Ok(match self.lanes {
            Some(lanes) => learner.with_lanes(lanes),
            None => learner,
        })
    }
}

/// A recipe read from a file may be anything.
fn incomplete(method: Method) -> CliError {
    CliError::Failed(format!("the settings of {method} are not complete"))
}

impl Method {
    /// Whether it is maml or one of its relatives, with an inner loop.
    pub(crate) fn adapts(self) -> bool {
        !matches!(self, Self::Protonet | Self::Plastic) && !self.on_embeddings()
    }

    /// Its name among the heads, if it is one of them.
    pub(crate) fn head_name(self) -> String {
        match self {
            Self::Protonet => "prototypes".to_owned(),
            method => method.to_string(),
        }
    }

    /// Whether it is a head on embeddings.
    pub(crate) fn on_embeddings(self) -> bool {
        let name = self.to_string();
        let inductive = HEAD_NAMES.contains(&name.as_str());
        inductive || self.transductive()
    }

    /// Whether it is a head that sees all queries.
    pub(crate) fn transductive(self) -> bool {
        TRANSDUCTIVE_HEAD_NAMES.contains(&self.to_string().as_str())
    }

    /// Whether it is one of those [`TRAINED_ON_EPISODES`].
    pub(crate) fn needs_episodes(self) -> bool {
        TRAINED_ON_EPISODES.contains(&self.head_name().as_str())
    }

    /// Whether episodes train something of it, or the encoder through it.
    fn trains_on_episodes(self) -> bool {
        match self {
            Self::Simpleshot
            | Self::Matching
            | Self::Relation
            | Self::MetaBaseline
            | Self::SimpleCnaps
            | Self::Feat
            | Self::Dn4
            | Self::DeepEmd
            | Self::Leo
            | Self::R2d2
            | Self::MetaOptNet => true,
            _ => !self.on_embeddings(),
        }
    }
}

impl ClassicalArgs {
    /// The classifier of `classes` training classes on embeddings of so many `features`; `None` where
    /// training is on episodes.
    ///
    /// # Errors
    /// When the method is not trained as it is told, or a number makes no sense.
    pub(crate) fn classifier(
        &self,
        method: Method,
        features: usize,
        classes: usize,
    ) -> Result<Option<BaseClassifierConfig>, CliError> {
        let usage = |text: String| Err(CliError::Usage(text));
        if method.transductive() {
            return usage(format!(
                "{method} has nothing to train: train an encoder, as by --method simpleshot, and \
                 test it by `fewshot eval RUN --method {method}`"
            ));
        }
        let classically = method.on_embeddings()
            && (!method.trains_on_episodes() || method == Method::Simpleshot);
        let classify = match self.train_on {
            None => classically,
            Some(TrainOn::Classify) if method.needs_episodes() => {
                return usage(format!("{method} has weights of its own, which episodes train"));
            }
            Some(TrainOn::Classify) if method.on_embeddings() => true,
            Some(TrainOn::Classify) => {
                return usage(format!(
                    "--train classify is for heads on embeddings, not for {method}"
                ));
            }
            Some(TrainOn::Episodes) if method.trains_on_episodes() => false,
            Some(TrainOn::Episodes) => {
                return usage(format!("episodes train nothing of {method}: --train classify"));
            }
        };
        let given = [
            ("--base-logits", self.base_logits.is_some()),
            ("--label-smoothing", self.label_smoothing.is_some()),
            ("--rotation-loss", self.rotation_loss.is_some()),
        ];
        if let Some((option, _)) = given.into_iter().find(|(_, given)| *given && !classify) {
            return usage(format!("{option} is for --train classify"));
        }
        let smoothing = self.label_smoothing.unwrap_or(0.0);
        if !(0.0..1.0).contains(&smoothing) {
            return usage("--label-smoothing must be from 0 to below 1".to_owned());
        }
        let rotation = self.rotation_loss.unwrap_or(0.0);
        if !(rotation.is_finite() && rotation >= 0.0) {
            return usage("--rotation-loss must be a number from 0 on".to_owned());
        }
        let logits = match self.base_logits {
            Some(BaseLogitsName::Cosine) => BaseLogits::Cosine { scale: COSINE_SCALE },
            Some(BaseLogitsName::Linear) | None => BaseLogits::Linear,
        };
        let config = BaseClassifierConfig::new(features, classes)
            .with_logits(logits)
            .with_label_smoothing(smoothing)
            .with_rotation(rotation);
        Ok(classify.then_some(config))
    }
}

impl InnerArgs {
    /// The first option that was given.
    fn given(&self) -> Option<&'static str> {
        let options = [
            ("--inner-lr", self.inner_lr.is_some()),
            ("--inner-steps", self.inner_steps.is_some()),
            ("--eval-inner-steps", self.eval_inner_steps.is_some()),
            ("--order", self.order.is_some()),
            ("--second-order-route", self.second_order_route.is_some()),
            ("--proximal", self.proximal.is_some()),
            ("--cg-steps", self.cg_steps.is_some()),
            ("--multi-step-loss", self.multi_step_loss.is_some()),
            ("--first-order-steps", self.first_order_steps.is_some()),
            ("--inner-batch", self.inner_batch.is_some()),
            ("--eval-inner-batch", self.eval_inner_batch.is_some()),
            ("--lanes", self.lanes.is_some()),
        ];
        options.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
