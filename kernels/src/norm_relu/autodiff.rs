//! `activate` under one level of autodiff.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::tensor::ops::FloatTensor;

use super::Rectified;
use crate::channels::rows;
use crate::host::{unwrap, wrap};
use crate::layers::FusedLayers;
use crate::layers::node::{parents, record, register};

#[derive(Debug)]
struct Activate {
    after: Rectified,
}

impl<B: FusedLayers> Backward<B, 4> for Activate {
    /// The map, and its centre, scale and shift.
    type State = (FloatTensor<B>, [FloatTensor<B>; 3]);

    fn backward(self, ops: Ops<Self::State, 4>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [of_x, of_centre, of_scale, of_shift] = parents(&ops);
        let dz = grads.consume::<B>(&ops.node);
        let (x, map) = ops.state;
        let [_, scale, _] = map.clone();
        let of_map = of_centre.is_some() || of_scale.is_some() || of_shift.is_some();
        let wanted = [of_map, of_x.is_some()];
        let [sums, dx] = B::norm_backward(dz, x, map, None, Some(self.after), wanted);
        register::<B>(grads, of_x, || dx.expect("it is wanted"));
        if !of_map {
            return;
        }
        let [sum, product] = rows::<B>(sums.expect("they are wanted"));
        register::<B>(grads, of_centre, || unwrap(-wrap::<B, 1>(scale) * sum.clone()));
        register::<B>(grads, of_scale, || unwrap(product));
        register::<B>(grads, of_shift, || unwrap(sum));
    }
}

pub fn activate<B: FusedLayers, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    [centre, scale, shift]: [FloatTensor<Autodiff<B, C>>; 3],
    after: Rectified,
) -> FloatTensor<Autodiff<B, C>> {
    let values = B::laid_out(x.primitive.clone());
    let map = [&centre, &scale, &shift].map(|vector| vector.primitive.clone());
    let output = B::activate(values.clone(), map.clone(), after);
    let parents = [&x, &centre, &scale, &shift];
    record::<B, C, 4, _>(Activate { after }, parents, || (values, map), output)
}
