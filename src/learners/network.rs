use burn::backend::Autodiff;
use burn::module::{HasAutodiffModule, Module, ModuleDisplay};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_models::{BnStatistics, Classifier, Encoder, Mlp};

use crate::episode::{Classification, Regression, TaskKind};
use crate::precision::Precision;

/// A network that gradient-based learners adapt to tasks.
///
/// A [`Classifier`] is one for classification, an [`Mlp`] one for regression.
pub trait Network<B: Backend>: Module<B> + ModuleDisplay {
    /// Kind of the tasks.
    type Kind: TaskKind;

    /// Most tasks that share a network by default, as lanes with the parameters of task
    /// after task along dimension 0 of each: enough that a graph costs little beside its tasks. More
    /// keep an accelerator busy; on a CPU, where networks run on worker pools, they only take
    /// memory. Twice as many where the head alone adapts. A network without lanes has 1.
    fn lanes(&self) -> usize;

    /// True if a forward pass draws random numbers of the backend; see [`Encoder::draws`].
    fn draws(&self) -> bool {
        true
    }

    /// Name of the last layer, its head.
    fn head(&self) -> String;

    /// Length of an output.
    fn output_size(&self) -> usize;

    /// Outputs for several tasks, `[t, n, c, h, w]` to `[t, n, d]`.
    fn forward_lanes(&self, inputs: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3> {
        self.head_lanes(self.features_lanes(inputs, statistics))
    }

    /// Input of the head for several tasks, `[t, n, c, h, w]` to `[t, n, f]`.
    fn features_lanes(&self, inputs: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3>;

    /// The same where all tasks share the parameters of everything before the head.
    fn features_shared(&self, inputs: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3>;

    /// Output of the head for several tasks, `[t, n, f]` to `[t, n, d]`.
    fn head_lanes(&self, features: Tensor<B, 3>) -> Tensor<B, 3>;

    /// Precision of its products.
    fn precision(&self) -> Precision {
        Precision::F32
    }

    /// Description of the network, to tell whether a checkpoint fits.
    fn describe(&self) -> String;
}

/// A network that can be adapted: it is there one level of autodiff up as well.
///
/// Every [`Network`] is one that derives Burn's `Module` and is a network on any backend.
pub trait AdaptableNetwork<B: Backend>:
    Network<B>
    + HasAutodiffModule<
        Autodiff<B>,
        TrainModule: Network<Autodiff<B>, Kind = <Self as Network<B>>::Kind>,
    >
{
}

impl<B: Backend, N> AdaptableNetwork<B> for N where
    N: Network<B>
        + HasAutodiffModule<
            Autodiff<B>,
            TrainModule: Network<Autodiff<B>, Kind = <N as Network<B>>::Kind>,
        >
{
}

/// [`Network::lanes`] of a classifier on this encoder.
pub(crate) fn lanes_of<B: Backend, E: Encoder<B>>(encoder: &E) -> usize {
    if encoder.has_lanes() { 4 } else { 1 }
}

impl<B: Backend, E: Encoder<B>> Network<B> for Classifier<B, E> {
    type Kind = Classification;

    fn lanes(&self) -> usize {
        lanes_of::<B, E>(&self.encoder)
    }

    fn draws(&self) -> bool {
        self.encoder.draws()
    }

    fn head(&self) -> String {
        "head".to_owned()
    }

    fn output_size(&self) -> usize {
        self.ways()
    }

    fn features_lanes(&self, inputs: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3> {
        self.encode_lanes(inputs, statistics)
    }

    fn features_shared(&self, inputs: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3> {
        self.encoder.encode_tasks(inputs, statistics)
    }

    fn head_lanes(&self, features: Tensor<B, 3>) -> Tensor<B, 3> {
        self.head.forward_lanes(features)
    }

    fn precision(&self) -> Precision {
        self.encoder.precision()
    }

    fn describe(&self) -> String {
        self.architecture()
    }
}

impl<B: Backend> Network<B> for Mlp<B> {
    type Kind = Regression;

    fn lanes(&self) -> usize {
        64
    }

    fn draws(&self) -> bool {
        Encoder::draws(self)
    }

    fn head(&self) -> String {
        format!("layers.{}", self.layers() - 1)
    }

    fn output_size(&self) -> usize {
        self.features()
    }

    fn forward_lanes(&self, inputs: Tensor<B, 5>, _: BnStatistics) -> Tensor<B, 3> {
        Mlp::forward_lanes(self, inputs.flatten(2, 4))
    }

    fn features_lanes(&self, inputs: Tensor<B, 5>, _: BnStatistics) -> Tensor<B, 3> {
        self.hidden_lanes(inputs.flatten(2, 4))
    }

    fn features_shared(&self, inputs: Tensor<B, 5>, _: BnStatistics) -> Tensor<B, 3> {
        let [tasks, examples, c, h, w] = inputs.dims();
        let features = self.hidden_lanes(inputs.reshape([1, tasks * examples, c * h * w]));
        let [.., length] = features.dims();
        features.reshape([tasks, examples, length])
    }

    fn head_lanes(&self, features: Tensor<B, 3>) -> Tensor<B, 3> {
        self.last_lanes(features)
    }

    fn precision(&self) -> Precision {
        Encoder::precision(self)
    }

    fn describe(&self) -> String {
        Encoder::architecture(self)
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;
    use fewshot_models::MlpConfig;

    use super::*;

    #[test]
    fn a_network_of_curves_has_as_many_outputs_as_its_last_layer() {
        let mlp: Mlp<Flex> = MlpConfig::new(1).with_layers(vec![4, 3]).init(&Default::default());
        assert_eq!(Network::<Flex>::output_size(&mlp), 3);
        assert_eq!(Network::<Flex>::head(&mlp), "layers.1");
    }
}
