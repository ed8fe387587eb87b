use burn::tensor::backend::Backend;

use super::{AdaptableNetwork, Maml};
use crate::adapt::{AdaptError, InnerLoop, Mask, RateKind};

impl<B: Backend, N: AdaptableNetwork<B>> Maml<B, N> {
    /// Almost no inner loop: the head alone adapts, the encoder learns in the outer loop.
    ///
    /// # Source
    /// Raghu, Raghu, Bengio and Vinyals, "Rapid Learning or Feature Reuse? Towards Understanding
    /// the Effectiveness of MAML", ICLR 2020.
    pub fn anil(network: N, inner: InnerLoop) -> Result<Self, AdaptError> {
        let head = Mask::Only(vec![network.head()]);
        Self::named("anil", network, inner.with_mask(head), RateKind::Fixed)
    }
}
