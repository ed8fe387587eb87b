//! The classifier of classical training.

use fewshot::learners::{BaseClassifierConfig, BaseLogits};

use crate::args::{ClassicalArgs, Method, TrainOn, first_given};
use crate::prelude::*;

impl ClassicalArgs {
    /// The classifier of `classes` training classes on embeddings of so many `features`; `None` where
    /// training is on episodes.
    pub(crate) fn classifier(
        &self,
        method: Method,
        features: usize,
        classes: usize,
    ) -> Result<Option<BaseClassifierConfig>> {
        if method.transductive() {
            return Err(usage!(
                "{method} has nothing to train: train an encoder, as by --method simpleshot, and \
                 test it by `fewshot eval RUN --method {method}`"
            ));
        }
        let (on_embeddings, on_episodes) = (method.on_embeddings(), method.trains_on_episodes());
        let classify = match self.train {
            None => on_embeddings && (!on_episodes || method == Method::Simpleshot),
            Some(TrainOn::Classify) if method.needs_episodes() => {
                return Err(usage!("{method} has weights of its own, which episodes train"));
            }
            Some(TrainOn::Classify) if !on_embeddings => {
                return Err(usage!(
                    "--train classify is for heads on embeddings, not for {method}"
                ));
            }
            Some(TrainOn::Episodes) if !on_episodes => {
                return Err(usage!("episodes train nothing of {method}: --train classify"));
            }
            Some(how) => how == TrainOn::Classify,
        };
        if !classify {
            return match first_given!(self, base_logits, label_smoothing, rotation_loss) {
                Some(option) => Err(usage!("{option} is for --train classify")),
                None => Ok(None),
            };
        }
        let smoothing = self.label_smoothing.unwrap_or(0.0);
        if !(0.0..1.0).contains(&smoothing) {
            return Err(usage!("--label-smoothing must be from 0 to below 1"));
        }
        let rotation = self.rotation_loss.unwrap_or(0.0);
        if !(rotation.is_finite() && rotation >= 0.0) {
            return Err(usage!("--rotation-loss must be a number from 0 on"));
        }
        let config = BaseClassifierConfig::new(features, classes)
            .with_logits(self.base_logits.unwrap_or(BaseLogits::Linear))
            .with_label_smoothing(smoothing)
            .with_rotation(rotation);
        Ok(Some(config))
    }
}
