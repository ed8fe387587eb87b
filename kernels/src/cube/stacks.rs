//! The stacks of every device backend.

use burn::tensor::ops::FloatTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use crate::conv_stack::StackCall;
use crate::door::FusedOps;
use crate::linear_stack::LinearCall;
use crate::smooth::{Forward, Leaf, SmoothOps};

impl<R, F, I, BT> Leaf for CubeBackend<R, F, I, BT>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
}

impl<R, F, I, BT> FusedOps for CubeBackend<R, F, I, BT>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    fn conv_stack(
        operands: Vec<FloatTensor<Self>>,
        call: &StackCall,
    ) -> (FloatTensor<Self>, Vec<FloatTensor<Self>>) {
        let Forward { result, aside, .. } = <Self as SmoothOps>::forward(call, operands, false);
        (result, aside)
    }

    fn linear_stack(operands: Vec<FloatTensor<Self>>, call: &LinearCall) -> FloatTensor<Self> {
        <Self as SmoothOps>::forward(call, operands, false).result
    }
}
