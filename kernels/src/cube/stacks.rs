//! The stacks of every device backend.

use burn::tensor::ops::FloatTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use crate::conv_stack::StackCall;
use crate::linear_stack::LinearCall;
use crate::registry::FusedOps;
use crate::twice_differentiable::{ForwardPass, InnermostBackend, TwiceDifferentiableBackend};

impl<R, F, I, BT> InnermostBackend for CubeBackend<R, F, I, BT>
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
        let ForwardPass { result, aux, .. } =
            <Self as TwiceDifferentiableBackend>::forward(call, operands, false);
        (result, aux)
    }

    fn linear_stack(operands: Vec<FloatTensor<Self>>, call: &LinearCall) -> FloatTensor<Self> {
        <Self as TwiceDifferentiableBackend>::forward(call, operands, false).result
    }
}
