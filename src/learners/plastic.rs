use burn::module::{AutodiffModule, Module};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot_models::nn::drawn;
use fewshot_models::{BnStatistics, Encoder};

use super::{Adapted, Learner, MetaLearner};
use crate::adapt::AdaptError;
use crate::episode::{Classification, EpisodeBatch, Support, TaskKind};
use crate::plasticity::{PlasticConnections, TraceRule};

/// Differentiable plasticity: an encoder with plastic connections to the outputs.
///
/// The examples of the support are shown one after the other while their labels clamp the outputs,
/// so that the trace of the connections binds features to classes; queries are answered through
/// fixed and plastic parts, `f(x) (w + alpha * H)`, and the trace is held. Everything is trained
/// through the traces by the loss of the queries.
///
/// # Conventions
/// By the rule of Oja, as in the paper's experiment on Omniglot. Outputs are clamped to exactly one
/// and zeros, which the authors reach by adding 1000 before the softmax. The loss is cross-entropy
/// (the authors' is binary), and all queries of an episode are answered by one trace. With
/// [`TraceRule::Hebb`] examples that were shown early are forgotten more, so that their order matters.
///
/// # Source
/// Miconi, Clune and Stanley, "Differentiable plasticity: training plastic neural networks with
/// backpropagation", ICML 2018, section 4.3.
#[derive(Module, Debug)]
pub struct Plastic<B: Backend, E> {
    encoder: E,
    connections: PlasticConnections<B>,
}

/// The rate that traces begin with; a support is shown but once here.
const ETA: f64 = 0.1;

impl<B: Backend, E: Encoder<B>> Plastic<B, E> {
    /// Plastic connections from the `features` of `encoder` to `ways` outputs.
    pub fn new(
        encoder: E,
        features: usize,
        ways: usize,
        rule: TraceRule,
        device: &B::Device,
    ) -> Self {
        let connections = PlasticConnections::new([features, ways], rule, ETA, device);
        drawn(Self { encoder, connections })
    }

    /// The connections to the outputs.
    pub fn connections(&self) -> &PlasticConnections<B> {
        &self.connections
    }

    /// `[t, n, c, h, w]` to `[t, n, d]`, all in one batch.
    fn embed(&self, images: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3> {
        let [tasks, examples, ..] = images.dims();
        let embeddings = self.encoder.encode(images.flatten(0, 1), statistics);
        let features = embeddings.dims()[1];
        embeddings.reshape([tasks, examples, features])
    }

    /// The connections after the support, of features `[t, n, d]`, was shown.
    fn shown(&self, features: Tensor<B, 3>, support: &Support<B>) -> Tensor<B, 3> {
        if let Err(error) = self.check_ways(support.ways) {
            panic!("{error}");
        }
        let [tasks, examples, _] = features.dims();
        let labels = Classification::learned(support, 0..tasks).targets;
        let trace = (0..examples).fold(self.connections.blank(tasks), |trace, example| {
            let [x, y] = [&features, &labels].map(|all| all.clone().narrow(1, example, 1));
            self.connections.remember(trace, x, y)
        });
        self.connections.effective(trace)
    }

    fn check_ways(&self, wanted: usize) -> Result<(), AdaptError> {
        match self.connections.weight.dims()[1] {
            found if found == wanted => Ok(()),
            found => Err(AdaptError::Ways { wanted, found }),
        }
    }
}

impl<B: Backend, E: Encoder<B>> Learner<B> for Plastic<B, E> {
    type Adapted = AdaptedPlastic<B, E>;

    fn adapt(&self, support: &Support<B>) -> AdaptedPlastic<B, E> {
        let features = self.embed(support.images.clone(), BnStatistics::Running);
        let connections = self.shown(features, support);
        AdaptedPlastic { learner: self.clone(), connections }
    }

    /// Support and queries of an episode are normalised together.
    fn outputs(&self, batch: &EpisodeBatch<B>, statistics: BnStatistics) -> Tensor<B, 3> {
        if statistics == BnStatistics::Running {
            return self.adapt(&batch.support).predict(batch.queries.clone());
        }
        let shots = batch.support.images.dims()[1];
        let images = Tensor::cat(vec![batch.support.images.clone(), batch.queries.clone()], 1);
        let tasks = images.split(1, 0).into_iter().map(|task| self.embed(task, statistics));
        let features = Tensor::cat(tasks.collect(), 0);
        let queries = features.dims()[1] - shots;
        let connections = self.shown(features.clone().narrow(1, 0, shots), &batch.support);
        features.narrow(1, shots, queries).matmul(connections)
    }

    fn architecture(&self) -> String {
        let [_, ways] = self.connections.weight.dims();
        let (rule, encoder) = (self.connections.rule(), self.encoder.architecture());
        format!("plastic({rule:?}, {ways} ways, {encoder})")
    }
}

impl<B, E> MetaLearner<B> for Plastic<B, E>
where
    B: AutodiffBackend,
    E: Encoder<B> + AutodiffModule<B, InnerModule: Encoder<B::InnerBackend>>,
{
    fn check(&self, batch: &EpisodeBatch<B>) -> Result<(), AdaptError> {
        self.check_ways(batch.ways())
    }
}

/// A [`Plastic`] learner with the connections that its tasks left.
#[derive(Clone, Debug)]
pub struct AdaptedPlastic<B: Backend, E: Encoder<B>> {
    learner: Plastic<B, E>,
    connections: Tensor<B, 3>,
}

impl<B: Backend, E: Encoder<B>> AdaptedPlastic<B, E> {
    /// Fixed and plastic parts together, `[t, features, ways]`.
    pub fn connections(&self) -> Tensor<B, 3> {
        self.connections.clone()
    }
}

impl<B: Backend, E: Encoder<B>> Adapted<B> for AdaptedPlastic<B, E> {
    fn predict(&self, queries: Tensor<B, 5>) -> Tensor<B, 3> {
        let features = self.learner.embed(queries, BnStatistics::Running);
        features.matmul(self.connections.clone())
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::{Autodiff, Flex};
    use burn::module::Param;
    use burn::optim::Optimizer;
    use burn::tensor::Int;
    use fewshot_models::{Mlp, MlpConfig};

    use super::*;
    use crate::data::{Glyphs, GlyphsConfig};
    use crate::episode::{EpisodeSampler, Protocol, SampleEpisodes, TaskSource};
    use crate::learners::accuracies;
    use crate::optim::Adam;

    type A = Autodiff<Flex>;

    fn learner<B: Backend>(rule: TraceRule) -> Plastic<B, Mlp<B>> {
        let device = Default::default();
        B::seed(&device, 1);
        let encoder = MlpConfig::new(784).with_layers(vec![64]).init(&device);
        Plastic::new(encoder, 64, 5, rule, &device)
    }

    fn glyphs(train: bool, protocol: Protocol) -> EpisodeSampler {
        let glyphs = Glyphs::generate(&GlyphsConfig::default());
        let classes = if train { glyphs.train } else { glyphs.test };
        classes.sampler(protocol, 1).unwrap()
    }

    fn batch<B: Backend>(protocol: Protocol) -> EpisodeBatch<B> {
        glyphs(true, protocol).tasks(0..2, &Default::default())
    }

    fn read<const D: usize>(tensor: Tensor<Flex, D>) -> Vec<f32> {
        tensor.into_data().to_vec().unwrap()
    }

    fn assert_close(found: &[f32], expected: &[f32], tolerance: f32) {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < tolerance, "{found} is not {expected}");
        }
    }

    /// One shot binds `eta` times the features of a class to its output.
    #[test]
    fn a_shown_class_is_bound_to_its_output() {
        let learner = learner::<Flex>(TraceRule::Oja);
        let batch = batch::<Flex>(Protocol::new(5, 1));
        let features = learner.embed(batch.support.images.clone(), BnStatistics::Running);
        let bound = features.swap_dims(1, 2) * ETA;
        let expected = learner.connections.effective(bound);
        let found = learner.adapt(&batch.support).connections();
        assert_close(&read(found), &read(expected), 1e-6);
    }

    #[test]
    fn the_order_of_classes_changes_nothing_by_ojas_rule() {
        let reversed = |support: &Support<Flex>| Support {
            images: support.images.clone().flip([1]),
            labels: support.labels.clone().flip([1]),
            ways: support.ways,
        };
        let batch = batch::<Flex>(Protocol::new(5, 1));
        let turned = |rule| {
            let learner = learner::<Flex>(rule);
            let [first, second] = [batch.support.clone(), reversed(&batch.support)]
                .map(|support| read(learner.adapt(&support).connections()));
            first.iter().zip(&second).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
        };
        assert!(turned(TraceRule::Oja) < 1e-7);
        assert!(turned(TraceRule::Hebb) > 1e-5);
    }

    #[test]
    fn the_gradient_of_the_rate_agrees_with_a_difference() {
        let protocol = Protocol::new(5, 3);
        for rule in [TraceRule::Oja, TraceRule::Hebb] {
            let plastic = |eta: f32| {
                let mut learner = learner::<A>(rule);
                let alpha = learner.connections.alpha.val().inner().mul_scalar(20.0);
                learner.connections.alpha = Param::from_tensor(Tensor::from_inner(alpha));
                let eta = Tensor::from_floats([eta], &Default::default());
                learner.connections.eta = Param::from_tensor(eta);
                learner
            };
            let learner = plastic(0.2);
            let found = learner.meta_gradients(&batch::<A>(protocol));
            let id = learner.connections.eta.id;
            let eta = read(found.gradients.get::<Flex, 1>(id).unwrap())[0];
            let loss = |eta| read(plastic(eta).meta_gradients(&batch::<A>(protocol)).loss)[0];
            let difference = (loss(0.21) - loss(0.19)) / 0.02;
            assert!((eta / difference - 1.0).abs() < 0.02, "{eta} is not {difference}");
        }
    }

    #[test]
    fn another_number_of_ways_is_refused() {
        let learner = learner::<A>(TraceRule::Oja);
        let error = learner.check(&batch(Protocol::new(3, 1))).unwrap_err();
        assert_eq!(error, AdaptError::Ways { wanted: 3, found: 5 });
    }

    fn accuracy(learner: &Plastic<Flex, Mlp<Flex>>) -> f32 {
        let batch: EpisodeBatch<Flex> =
            glyphs(false, Protocol::new(5, 1)).tasks(0..100, &Default::default());
        let labels: Tensor<Flex, 2, Int> = batch.query_labels.clone();
        read(accuracies(learner.outputs(&batch, BnStatistics::Running), labels).mean())[0]
    }

    #[test]
    fn training_on_glyphs_teaches_to_bind_new_glyphs() {
        let mut learner = learner::<A>(TraceRule::Oja);
        let mut optimizer = Adam::new().init();
        let tasks = glyphs(true, Protocol::new(5, 1).with_queries(3));
        for step in 0..150 {
            let batch = tasks.tasks(step * 8..(step + 1) * 8, &Default::default());
            let gradients = learner.meta_gradients(&batch).gradients;
            learner = optimizer.step(3e-3, learner, gradients);
        }
        let trained = learner.valid();
        let found = accuracy(&trained);
        let mut forgetful = trained;
        forgetful.connections.eta = Param::from_tensor(Tensor::zeros([1], &Default::default()));
        let without = accuracy(&forgetful);
        assert!(found > 0.5, "{found}");
        assert!((without - 0.2).abs() < 0.05, "without a trace {without} is not chance");
    }
}
