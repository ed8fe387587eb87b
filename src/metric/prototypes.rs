use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

/// The mean embedding of each class.
///
/// # Shapes
/// - `embeddings`: `[t, n, d]`
/// - `labels`: `[t, n]`, from 0 to `ways - 1`
/// - returns `[t, ways, d]`; not a number for a class without an example
///
/// # Source
/// Snell et al., "Prototypical Networks for Few-shot Learning", NeurIPS 2017, equation 1.
pub fn prototypes<B: Backend>(
    embeddings: Tensor<B, 3>,
    labels: Tensor<B, 2, Int>,
    ways: usize,
) -> Tensor<B, 3> {
    let [tasks, examples] = labels.dims();
    let shape = [tasks, ways, examples];
    let classes = Tensor::<B, 1, Int>::arange(0..ways as i64, &labels.device());
    let classes = classes.reshape([1, ways, 1]).expand(shape);
    let labels = labels.reshape([tasks, 1, examples]).expand(shape);
    let membership = classes.equal(labels).float();
    let counts = membership.clone().sum_dim(2);
    membership.matmul(embeddings) / counts
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;
    use burn::tensor::{TensorData, Tolerance};

    use super::*;

    #[test]
    fn prototypes_are_class_means_in_any_order() {
        let device = Default::default();
        let embeddings = [[[1.0, 2.0], [10.0, 20.0], [3.0, 4.0], [30.0, 40.0], [5.0, 9.0]]];
        let embeddings = Tensor::<Flex, 3>::from_floats(embeddings, &device);
        let labels = Tensor::<Flex, 2, Int>::from_ints([[0, 1, 0, 1, 0]], &device);
        let expected = TensorData::from([[[3.0f32, 5.0], [20.0, 30.0]]]);
        let found = prototypes(embeddings, labels, 2).into_data();
        found.assert_approx_eq::<f32>(&expected, Tolerance::default());
    }

    #[test]
    fn tasks_do_not_mix() {
        let device = Default::default();
        let embeddings = Tensor::<Flex, 3>::from_floats([[[1.0], [2.0]], [[3.0], [4.0]]], &device);
        let labels = Tensor::<Flex, 2, Int>::from_ints([[0, 1], [1, 0]], &device);
        let expected = TensorData::from([[[1.0f32], [2.0]], [[4.0], [3.0]]]);
        let found = prototypes(embeddings, labels, 2).into_data();
        found.assert_approx_eq::<f32>(&expected, Tolerance::default());
    }
}
