use burn::tensor::backend::Backend;

use super::maml::Outer;
use super::{AdaptableNetwork, Maml};
use crate::adapt::{AdaptError, InnerLoop, Mask, RateKind, slots};

impl<B: Backend, N: AdaptableNetwork<B>> Maml<B, N> {
    /// CAVIA: the inner loop adapts only a context, a vector that starts at zero for every task;
    /// the outer loop learns the network, which takes this context as an input.
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
        let is_context = |path: &String| path.rsplit('.').next() == Some("context");
        let mut contexts: Vec<_> = names.filter(is_context).collect();
        if contexts.is_empty() {
            contexts.push("context".to_owned());
        }
        let inner = inner.with_mask(Mask::Only(contexts));
        let learner = Self::named("cavia", network, inner, RateKind::Fixed)?;
        Ok(learner.set(|settings| settings.outer = Outer::GradientOfTheRest))
    }
}
