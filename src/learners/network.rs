use burn::backend::Autodiff;
use burn::module::{HasAutodiffModule, Module, ModuleDisplay};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_models::{BnStatistics, Classifier, Encoder, Mlp};

use crate::adapt::SecondOrder;
use crate::episode::{Classification, Regression, TaskKind};
use crate::precision::Precision;

/// A network that gradient-based learners adapt to tasks.
///
/// A [`Classifier`] is one for classification, an [`Mlp`] one for regression.
pub trait Network<B: Backend>: Module<B> + ModuleDisplay {
    /// What it is for.
    type Kind: TaskKind;

    /// Most tasks that share a network by default, as lanes with the parameters of task
    /// after task along dimension 0 of each: enough that a graph costs little beside its tasks. More
    /// keep an accelerator busy; on a CPU, where networks run on worker pools, they only take
    /// memory. A network without lanes has 1.
    const LANES: usize;

    /// The way to the exact derivative by default: the graph of the whole loop is faster
    /// where it is small.
    const SECOND_ORDER: SecondOrder = SecondOrder::Chain;

    /// Whether a forward pass draws random numbers of the backend; see [`Encoder::DRAWS`].
    const DRAWS: bool = true;

    /// Name of the last layer, its head.
    fn head(&self) -> String;

    /// Length of an output.
    fn output_size(&self) -> usize;

    /// Outputs for several tasks, `[t, n, c, h, w]` to `[t, n, d]`.
    fn forward_lanes(&self, inputs: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3>;

    /// What the head gets, for several tasks, `[t, n, c, h, w]` to `[t, n, d]`.
    fn features_lanes(&self, inputs: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3>;

    /// What its products are computed in.
    fn precision(&self) -> Precision {
        Precision::F32
    }

    /// What the network is, to tell whether a checkpoint fits.
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

impl<B: Backend, E: Encoder<B>> Network<B> for Classifier<B, E> {
    type Kind = Classification;

    const LANES: usize = if E::LANES { 4 } else { 1 };

    const DRAWS: bool = E::DRAWS;

    fn head(&self) -> String {
        "head".to_owned()
    }

    fn output_size(&self) -> usize {
        self.ways()
    }

    fn forward_lanes(&self, inputs: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3> {
        Classifier::forward_lanes(self, inputs, statistics)
    }

    fn features_lanes(&self, inputs: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3> {
        self.encode_lanes(inputs, statistics)
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

    const LANES: usize = 64;

    const SECOND_ORDER: SecondOrder = SecondOrder::Unrolled;

    const DRAWS: bool = <Self as Encoder<B>>::DRAWS;

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

    fn precision(&self) -> Precision {
        Encoder::precision(self)
    }

    fn describe(&self) -> String {
        Encoder::architecture(self)
    }
}
