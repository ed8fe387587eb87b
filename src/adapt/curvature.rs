//! Gradients through learned matrices, one for each mode of a tensor.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::product;

/// The sizes of the modes of a tensor of this shape: one for a vector, two for a matrix, and for a
/// convolution's weight three, output channels, input channels and all positions of the kernel.
pub(super) fn modes(shape: &[usize]) -> Vec<usize> {
    match shape {
        [outputs, inputs, kernel @ ..] if !kernel.is_empty() => {
            vec![*outputs, *inputs, kernel.iter().product()]
        }
        few => few.to_vec(),
    }
}

/// The identity of a mode of this size, `[size * size]` row after row.
pub(super) fn identity<B: Backend>(size: usize, device: &B::Device) -> Tensor<B, 1> {
    Tensor::<B, 2>::eye(size, device).reshape([size * size])
}

/// `direction x_1 M_1 x_2 M_2 ..` with the same matrices for every task: element `i` along mode `k`
/// becomes the sum over `j` of `M_k[i, j]` times element `j`.
///
/// # Shapes
/// `direction` `[lanes * n]`, `matrices[k]` `[modes[k]^2]`; to `[lanes * n]`.
pub(super) fn apply_modes<B: Backend>(
    direction: Tensor<B, 1>,
    matrices: &[Tensor<B, 1>],
    modes: &[usize],
    lanes: usize,
) -> Tensor<B, 1> {
    let [length] = direction.dims();
    // The last mode's elements are the columns of one matrix over all tasks. Moving that mode to
    // the front makes the one before it the last, and after all modes they are in their order
    // again.
    matrices.iter().zip(modes).rev().fold(direction, |direction, (matrix, &size)| {
        let rest = length / lanes / size;
        let rows: Tensor<B, 2> = direction.reshape([lanes * rest, size]);
        let matrix: Tensor<B, 2> = matrix.clone().reshape([size, size]);
        let turned = product(rows, matrix.transpose()).reshape([lanes, rest, size]);
        turned.swap_dims(1, 2).reshape([length])
    })
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;

    use super::*;

    fn vector(values: &[f32]) -> Tensor<Flex, 1> {
        Tensor::from_floats(values, &Default::default())
    }

    #[test]
    fn the_positions_of_a_kernel_are_one_mode() {
        assert_eq!(modes(&[5]), [5]);
        assert_eq!(modes(&[6, 5]), [6, 5]);
        assert_eq!(modes(&[8, 1, 3, 3]), [8, 1, 9]);
    }

    #[test]
    fn every_mode_goes_through_its_own_matrix() {
        // Two tasks of [2, 3]: rows through [[1, 2], [0, 1]], columns through a cycle, times 1, 1,
        // 2.
        let direction = vector(&[1., 2., 3., 4., 5., 6., -1., 0., 1., 2., 0., 0.]);
        let matrices = [vector(&[1., 2., 0., 1.]), vector(&[0., 1., 0., 0., 0., 1., 2., 0., 0.])];
        let actual = apply_modes(direction, &matrices, &[2, 3], 2).into_data().into_vec::<f32>();
        let expected = [12., 15., 18., 5., 6., 8., 0., 1., 6., 0., 0., 4.];
        assert_eq!(actual.expect("floats"), expected);
    }
}
