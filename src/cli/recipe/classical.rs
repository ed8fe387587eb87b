//! The classifier of classical training.

use fewshot::learners::{BaseClassifierConfig, BaseLogits};

use super::COSINE_SCALE;
use crate::cli::args::{BaseLogitsName, ClassicalArgs, Method, TrainOn};
use crate::cli::error::CliError;

impl ClassicalArgs {
    /// The classifier of `classes` training classes on embeddings of so many `features`; `None` where
    /// training is on episodes.
    ///
    /// # Errors
    /// When the method is not trained as it is told, or a number makes no sense.
    pub(crate) fn classifier(
        &self,
        method: Method,
        features: usize,
        classes: usize,
    ) -> Result<Option<BaseClassifierConfig>, CliError> {
        let usage = |text: String| Err(CliError::Usage(text));
        if method.transductive() {
            return usage(format!(
                "{method} has nothing to train: train an encoder, as by --method simpleshot, and \
                 test it by `fewshot eval RUN --method {method}`"
            ));
        }
        let classically = method.on_embeddings()
            && (!method.trains_on_episodes() || method == Method::Simpleshot);
        let classify = match self.train_on {
            None => classically,
            Some(TrainOn::Classify) if method.needs_episodes() => {
                return usage(format!("{method} has weights of its own, which episodes train"));
            }
            Some(TrainOn::Classify) if method.on_embeddings() => true,
            Some(TrainOn::Classify) => {
                return usage(format!(
                    "--train classify is for heads on embeddings, not for {method}"
                ));
            }
            Some(TrainOn::Episodes) if method.trains_on_episodes() => false,
            Some(TrainOn::Episodes) => {
                return usage(format!("episodes train nothing of {method}: --train classify"));
            }
        };
        let given = [
            ("--base-logits", self.base_logits.is_some()),
            ("--label-smoothing", self.label_smoothing.is_some()),
            ("--rotation-loss", self.rotation_loss.is_some()),
        ];
        if let Some((option, _)) = given.into_iter().find(|(_, given)| *given && !classify) {
            return usage(format!("{option} is for --train classify"));
        }
        let smoothing = self.label_smoothing.unwrap_or(0.0);
        if !(0.0..1.0).contains(&smoothing) {
            return usage("--label-smoothing must be from 0 to below 1".to_owned());
        }
        let rotation = self.rotation_loss.unwrap_or(0.0);
        if !(rotation.is_finite() && rotation >= 0.0) {
            return usage("--rotation-loss must be a number from 0 on".to_owned());
        }
        let logits = match self.base_logits {
            Some(BaseLogitsName::Cosine) => BaseLogits::Cosine { scale: COSINE_SCALE },
            Some(BaseLogitsName::Linear) | None => BaseLogits::Linear,
        };
        let config = BaseClassifierConfig::new(features, classes)
            .with_logits(logits)
            .with_label_smoothing(smoothing)
            .with_rotation(rotation);
        Ok(classify.then_some(config))
    }
}
