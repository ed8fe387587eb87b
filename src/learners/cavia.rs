use burn::tensor::backend::Backend;

use super::maml::Outer;
use super::{AdaptableNetwork, Maml};
use crate::adapt::{AdaptError, InnerLoop, Mask, RateKind, slots};

impl<B: Backend, N: AdaptableNetwork<B>> Maml<B, N> {
    /// CAVIA: the inner loop adapts only a context, a vector that starts at zero for every task;
    /// the outer loop learns the network that it is an input of.
    ///
    /// The network needs a parameter called `context`, as
    /// [`MlpConfig`](fewshot_models::MlpConfig) and [`Conv4Config`](fewshot_models::Conv4Config)
    /// have on demand.
    ///
    /// # Errors
    /// As [`Maml::new`], so also when the network has no context.
    ///
    /// # Source
    /// Zintgraf, Shiarlis, Kurin, Hofmann and Whiteson, "Fast Context Adaptation via
    /// Meta-Learning", ICML 2019.
    pub fn cavia(network: N, inner: InnerLoop) -> Result<Self, AdaptError> {
        let names = slots::<B, _>(&network).into_iter().map(|slot| slot.path);
        let contexts: Vec<_> = names.filter(|path| is_context(path)).collect();
        let mask = match contexts.is_empty() {
            true => vec![CONTEXT.to_owned()],
            false => contexts,
        };
        let learner =
            Self::named("cavia", network, inner.with_mask(Mask::Only(mask)), RateKind::Fixed)?;
        Ok(learner.with_outer(Outer::GradientOfTheRest))
    }
}

const CONTEXT: &str = "context";

fn is_context(path: &str) -> bool {
    path.rsplit('.').next() == Some(CONTEXT)
}
