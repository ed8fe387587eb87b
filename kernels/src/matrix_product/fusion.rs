//! Products recorded by Burn's fusion, as one operation.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape, TensorMetadata};
use burn_fusion::{Fusion, FusionBackend};

use super::MatrixProduct;
use crate::fusion::record_floats;
use crate::registry::Runs;

impl<B: FusionBackend + Runs<MatrixProduct>> Runs<MatrixProduct> for Fusion<B> {
    fn run([left, right]: [FloatTensor<Self>; 2], _: &MatrixProduct) -> FloatTensor<Self> {
        let ([matrices, rows, _], [_, _, columns]) = (left.shape().dims(), right.shape().dims());
        let output = (Shape::from([matrices, rows, columns]), DType::F32);
        record_floats::<B, 2>("matrix_product", [left, right], output, |of| {
            B::run(of, &MatrixProduct)
        })
    }
}
