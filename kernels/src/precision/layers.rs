use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};

use super::Precision;
use crate::conv2d::reference::biased;
use crate::conv2d::{self, conv2d};
use crate::layers::wide;
use crate::linear::{check, linear, with_bias};
use crate::matrix_product::matrix_product;
use crate::registry::on_device;

impl Precision {
    /// [`conv2d`](conv2d()) with its product in this precision; the bias is added in f32.
    pub fn conv2d<B: Backend>(
        self,
        x: Tensor<B, 4>,
        weight: Tensor<B, 4>,
        bias: Option<Tensor<B, 1>>,
        stride: usize,
        padding: usize,
    ) -> Tensor<B, 4> {
        if self.low().is_none() {
            return conv2d::with_tf32(x, weight, bias, [stride, padding], self == Self::Tf32);
        }
        conv2d::check(x.dims(), weight.dims(), bias.as_ref(), (stride, padding));
        let product = |x, weight| conv2d(x, weight, None, stride, padding);
        let [bias] = wide([bias]);
        biased(self.product(x, weight, product), bias)
    }

    /// [`linear`](crate::linear()) with its product in this precision, of f32 on an accelerator in f32; the
    /// bias is added in f32.
    pub fn linear<B: Backend>(
        self,
        x: Tensor<B, 2>,
        weight: Tensor<B, 2>,
        bias: Option<Tensor<B, 1>>,
    ) -> Tensor<B, 2> {
        if self.low().is_none() || (on_device::<B>() && x.dtype() == DType::F32) {
            return linear(x, weight, bias);
        }
        check(x.dims(), weight.dims(), bias.as_ref());
        let [bias] = wide([bias]);
        with_bias(self.product(x, weight, matrix_product), bias)
    }
}
