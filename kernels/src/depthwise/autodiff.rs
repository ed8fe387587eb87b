//! Convolutions of each channel on the graph: the form is linear in each of its three operands, so its derivatives are of
//! the same kind.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::ops::FloatTensor;

use super::Depthwise;
use crate::layers::node::record;
use crate::registry::Runs;

impl<B: Runs<Depthwise>, C: CheckpointStrategy> Runs<Depthwise> for Autodiff<B, C> {
    fn run(
        [first, second]: [FloatTensor<Self>; 2],
        form @ &Depthwise { role, shape }: &Depthwise,
    ) -> FloatTensor<Self> {
        let operands = [&first, &second].map(|operand| operand.primitive.clone());
        let value = B::run(operands.clone(), form);
        record::<B, C, 2>([&first, &second], value, move |g, [of_first, of_second]| {
            let [first, second] = operands;
            let derivative = |operands, role| B::run(operands, &Depthwise { role, shape });
            let by_first = of_first.then(|| derivative([second, g.clone()], role.next()));
            let by_second = of_second.then(|| derivative([g, first], role.next().next()));
            [by_first, by_second]
        })
    }
}
