use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

/// Share of right queries of each task, `[t]`, by logits `[t, q, ways]` and labels `[t, q]`: those whose largest logit is
/// at their label.
///
/// # Conventions
/// One of several largest logits counts, by most backends the first. The order of classes is drawn anew for every episode,
/// so equal logits give chance.
///
/// # Example
/// ```
/// # use burn::{backend::Flex, tensor::Tensor};
/// # use fewshot::metric::accuracies;
/// # let device = Default::default();
/// let logits = Tensor::<Flex, 3>::from_data([[[2.0, 1.0], [1.0, 1.0]]], &device);
/// let share = accuracies(logits, Tensor::from_data([[0, 1]], &device));
/// assert_eq!(share.into_data(), [0.5f32].into());
/// ```
pub fn accuracies<B: Backend>(logits: Tensor<B, 3>, labels: Tensor<B, 2, Int>) -> Tensor<B, 1> {
    let [tasks, queries, _] = logits.dims();
    let predicted = logits.argmax(2).reshape([tasks, queries]);
    predicted.equal(labels).float().mean_dim(1).reshape([tasks])
}
