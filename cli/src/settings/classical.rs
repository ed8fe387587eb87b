//! The classifier of classical training.

use fewshot::learners::{BaseClassifierConfig, BaseLogits};

use crate::args::{ClassicalArgs, TrainOn, first_given};
use crate::method::{Family, HeadTraining, Method};
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
        let classify = match (method.family(), self.train) {
            (Family::Head(HeadTraining::Nothing), _) => {
                return Err(usage!(
                    "{method} has nothing to train: train an encoder, as by --method simpleshot, and \
                     test it by `fewshot eval RUN --method {method}`"
                ));
            }
            (Family::Head(HeadTraining::Episodes), Some(TrainOn::Classify)) => {
                return Err(usage!("{method} has weights of its own, which episodes train"));
            }
            (Family::Head(HeadTraining::Classes), Some(TrainOn::Episodes)) => {
                return Err(usage!("episodes train nothing of {method}: --train classify"));
            }
            (Family::Head(HeadTraining::Classes | HeadTraining::ClassesOrEpisodes), None) => true,
            (Family::Head(_), train) => train == Some(TrainOn::Classify),
            (_, Some(TrainOn::Classify)) => {
                return Err(usage!(
                    "--train classify is for heads on embeddings, not for {method}"
                ));
            }
            (_, None | Some(TrainOn::Episodes)) => false,
        };
        if !classify {
            return match first_given!(self, batch_size, base_logits, label_smoothing, rotation_loss)
            {
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
