//! Gradients of operations over lists of tensors.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape, TensorMetadata};

use crate::host::zeros;
use crate::lists::in_parts;
use crate::variadic_op::OptionalTensors;

/// The tensors of the level below.
pub fn inner<B: Backend, C: CheckpointStrategy>(
    tensors: &[FloatTensor<Autodiff<B, C>>],
) -> Vec<FloatTensor<B>> {
    tensors.iter().map(|tensor| tensor.primitive.clone()).collect()
}

/// The results of one `operation` on the tensors that are there and wanted.
pub fn where_wanted<B: Backend>(
    tensors: OptionalTensors<B>,
    requires_grad: &[bool],
    operation: impl FnOnce(Vec<FloatTensor<B>>) -> Vec<FloatTensor<B>>,
) -> OptionalTensors<B> {
    let tensors = tensors.into_iter().zip(requires_grad);
    let tensors = tensors.map(|(tensor, &requires_grad)| tensor.filter(|_| requires_grad));
    let all = |tensors: OptionalTensors<B>| {
        operation(tensors.into_iter().flatten().collect()).into_iter().map(Some).collect()
    };
    in_parts(tensors.collect(), Option::is_some, all, |none| none)
}

/// An operand.
pub struct Term<B: Backend> {
    is_leaf: bool,
    shape: Shape,
    device: B::Device,
}

/// The properties of each of the operands that [`completed`] needs.
pub fn terms<B: Backend, C: CheckpointStrategy>(
    operands: &[FloatTensor<Autodiff<B, C>>],
) -> Vec<Term<B>> {
    let term = |tensor: &FloatTensor<Autodiff<B, C>>| Term {
        is_leaf: tensor.node.parents.is_empty(),
        shape: tensor.shape(),
        device: B::float_device(&tensor.primitive),
    };
    operands.iter().map(term).collect()
}

/// The wanted gradients, zeros where nothing depends on a result. A leaf has none there, but what comes
/// from other operations is asked for one.
pub fn completed<B: Backend>(
    terms: &[Term<B>],
    gradients: impl IntoIterator<Item = Option<FloatTensor<B>>>,
    requires_grad: &[bool],
) -> OptionalTensors<B> {
    let gradient = |((term, gradient), &requires_grad): ((&Term<B>, Option<_>), &bool)| {
        let zeros = || zeros::<B>(term.shape.clone(), &term.device, DType::F32);
        match requires_grad {
            true => gradient.or_else(|| (!term.is_leaf).then(zeros)),
            false => None,
        }
    };
    terms.iter().zip(gradients).zip(requires_grad).map(gradient).collect()
}
