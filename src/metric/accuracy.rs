use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

/// Share of right queries of each task, `[t]`, by logits `[t, q, ways]` and labels `[t, q]`.
///
/// A query is right if its largest logit is at its label. Where several are largest, it counts by the share that a fair
/// draw among them has: the order of classes decides nothing, and equal logits give chance.
///
/// # Example
/// ```
/// # use burn::{backend::Flex, tensor::Tensor};
/// # use fewshot::metric::accuracies;
/// # let device = Default::default();
/// let logits = Tensor::<Flex, 3>::from_data([[[2.0, 1.0], [1.0, 1.0]]], &device);
/// let share = accuracies(logits, Tensor::from_data([[0, 1]], &device));
/// assert_eq!(share.into_data(), [0.75f32].into());
/// ```
pub fn accuracies<B: Backend>(logits: Tensor<B, 3>, labels: Tensor<B, 2, Int>) -> Tensor<B, 1> {
    let tasks = logits.dims()[0];
    let logits = logits.detach();
    let largest = logits.clone().max_dim(2);
    let ties = logits.equal(largest).float();
    let hits = ties.clone().gather(2, labels.unsqueeze_dim(2));
    (hits / ties.sum_dim(2)).mean_dim(1).reshape([tasks])
}
