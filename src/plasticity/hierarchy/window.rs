use std::mem;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::local_learning::Aggregate;

/// Inputs of a layer at each of its firings, from the outputs `[b, k, d]` below it.
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
    let seen = Tensor::cat(vec![before, seen], 1).reshape([batch, firings, ratio, length]);
    let seen = match aggregate {
        Aggregate::Concat => seen,
        Aggregate::Mean => seen.mean_dim(2),
        Aggregate::Last => seen.narrow(2, ratio - 1, 1),
    };
    seen.flatten(2, 3)
}

/// The outputs below a layer since it fired last.
#[derive(Clone, Debug)]
pub(super) struct Window<B: Backend> {
    pub(super) aggregate: Aggregate,
    /// All, from the oldest to the newest; the last one alone, or their sum, where no more is seen.
    pub(super) outputs: Vec<Tensor<B, 2>>,
    /// Number of outputs in the window.
    pub(super) came: usize,
}

impl<B: Backend> Window<B> {
    pub(super) fn push(&mut self, output: Tensor<B, 2>) {
        let output = match self.aggregate {
            Aggregate::Concat => output,
            Aggregate::Mean | Aggregate::Last => match self.outputs.pop() {
                Some(sum) if self.aggregate == Aggregate::Mean => sum + output,
                _ => output,
            },
        };
        self.outputs.push(output);
        self.came += 1;
    }

    /// Takes the input of the layer, of `ratio` outputs at most. A window is filled up with its first output.
    pub(super) fn take(&mut self, ratio: usize) -> Option<Tensor<B, 2>> {
        let (mut all, came) = (mem::take(&mut self.outputs), mem::take(&mut self.came));
        match self.aggregate {
            Aggregate::Mean if came > 1 => Some(all.pop()? / came as f64),
            Aggregate::Mean | Aggregate::Last => all.pop(),
            Aggregate::Concat => {
                let first = all.first()?.clone();
                all.splice(0..0, std::iter::repeat_n(first, ratio - came));
                Some(Tensor::cat(all, 1))
            }
        }
    }
}
