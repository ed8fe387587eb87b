//! A device whose default type is not f32. It can be set once in a process, hence the file.
#![cfg(feature = "flex")]

use burn::backend::{Autodiff, Flex};
use burn::tensor::{DType, FloatDType, IntDType, Tensor, set_default_dtypes};
use fewshot_kernels::{
    ConvBlock, NormStatistics, StackOptions, Statistics, batch_norm, conv_stack, conv2d, max_pool,
};

type B = Autodiff<Flex>;

#[test]
fn fused_operations_keep_the_type_of_their_operands() {
    let device = Default::default();
    set_default_dtypes::<B>(&device, FloatDType::F16, IntDType::I64).unwrap();
    let ones = |shape| Tensor::<B, 4>::ones(shape, (&device, DType::F32));
    let x = ones([2, 3, 6, 5]).require_grad();
    let weight = ones([4, 3, 3, 3]).require_grad();
    let block = ConvBlock {
        weight: weight.clone(),
        bias: None,
        gamma: None,
        beta: None,
        stride: 1,
        pool: true,
    };
    let output = conv_stack(x.clone(), &[block], Statistics::Batch, StackOptions::default());
    assert_eq!(output.moments[0].variance.dtype(), DType::F32);
    let (normal, moments) = batch_norm(x.clone(), None, None, NormStatistics::Batch, 1e-5);
    assert_eq!(moments.unwrap().mean.dtype(), DType::F32);
    let convolved = conv2d(x.clone(), weight.clone(), None, 1, 1);
    for y in [output.features, normal, convolved, max_pool(x.clone())] {
        assert_eq!(y.dtype(), DType::F32);
        let gradients = y.sum().backward();
        assert_eq!(x.grad(&gradients).unwrap().dtype(), DType::F32);
    }
}
