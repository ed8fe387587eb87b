use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::local_learning::Aggregate;

/// What a layer sees at each of its firings, of the outputs `[b, k, d]` below it.
pub(super) fn windows<B: Backend>(
    aggregate: Aggregate,
    below: Tensor<B, 3>,
    ratio: usize,
) -> Tensor<B, 3> {
    if ratio == 1 {
        return below;
    }
    let [batch, outputs, length] = below.dims();
    let firings = outputs.div_ceil(ratio);
    let before = below.clone().narrow(1, 0, 1).expand([batch, ratio - 1, length]);
    let seen = below.narrow(1, 0, (firings - 1) * ratio + 1);
    let seen = Tensor::cat(vec![before, seen], 1);
    match aggregate {
        Aggregate::Concat => seen.reshape([batch, firings, ratio * length]),
        Aggregate::Mean => seen
            .reshape([batch, firings, ratio, length])
            .mean_dim(2)
            .reshape([batch, firings, length]),
        Aggregate::Last => seen
            .reshape([batch, firings, ratio, length])
            .narrow(2, ratio - 1, 1)
            .reshape([batch, firings, length]),
    }
}

/// The outputs below a layer since it fired last, one after the other.
#[derive(Clone, Debug)]
pub(super) enum Window<B: Backend> {
    /// Nothing came yet.
    Empty,
    /// The last one.
    Last(Tensor<B, 2>),
    /// Their sum, and how many they are.
    Sum(Tensor<B, 2>, usize),
    /// All, from the oldest to the newest.
    All(Vec<Tensor<B, 2>>),
}

impl<B: Backend> Window<B> {
    pub(super) fn push(self, aggregate: Aggregate, output: Tensor<B, 2>) -> Self {
        match (aggregate, self) {
            (Aggregate::Last, _) => Self::Last(output),
            (Aggregate::Mean, Self::Sum(sum, count)) => Self::Sum(sum + output, count + 1),
            (Aggregate::Mean, _) => Self::Sum(output, 1),
            (Aggregate::Concat, Self::All(mut all)) => {
                all.push(output);
                Self::All(all)
            }
            (Aggregate::Concat, _) => Self::All(vec![output]),
        }
    }

    /// Without the graphs that its outputs came from.
    pub(super) fn detach(self) -> Self {
        match self {
            Self::Empty => Self::Empty,
            Self::Last(output) => Self::Last(output.detach()),
            Self::Sum(sum, count) => Self::Sum(sum.detach(), count),
            Self::All(all) => Self::All(all.into_iter().map(Tensor::detach).collect()),
        }
    }

    /// What the layer sees, of `ratio` outputs at most; a window is filled with its first output.
    pub(super) fn seen(self, ratio: usize) -> Option<Tensor<B, 2>> {
        match self {
            Self::Empty => None,
            Self::Last(output) | Self::Sum(output, 1) => Some(output),
            Self::Sum(sum, count) => Some(sum / count as f64),
            Self::All(mut all) => {
                let missing = ratio - all.len();
                let first = all.first()?.clone();
                all.splice(0..0, std::iter::repeat_n(first, missing));
                Some(Tensor::cat(all, 1))
            }
        }
    }
}
