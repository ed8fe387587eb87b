//! Products on a device.

use burn::tensor::DType;
use burn::tensor::ops::FloatTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use super::MatrixProduct;
use crate::cube::product;
use crate::registry::Runs;

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> Runs<MatrixProduct>
    for CubeBackend<R, F, I, BT>
{
    fn run([left, right]: [FloatTensor<Self>; 2], _: &MatrixProduct) -> FloatTensor<Self> {
        product(left, right, DType::F32)
    }
}
