use burn::tensor::backend::Backend;

use super::{AdaptableNetwork, Maml};
use crate::adapt::{AdaptError, InnerLoop, Mask, RateKind};

impl<B: Backend, N: AdaptableNetwork<B>> Maml<B, N> {
    /// Body only in the inner loop: the encoder alone adapts, the head learns in the outer loop.
    ///
    /// # Source
    /// Oh, Yoo, Kim and Yun, "BOIL: Towards Representation Change for Few-shot Learning", ICLR
    /// 2021.
    pub fn boil(network: N, inner: InnerLoop) -> Result<Self, AdaptError> {
        let body = Mask::Except(vec![network.head()]);
        Self::named("boil", network, inner.with_mask(body), RateKind::Fixed)
    }
}
