//! Random changes of training images.

use fewshot::data::{Augmentation, ImageShape};
use fewshot::episode::{EpisodeSampler, Mixing};
use serde::{Deserialize, Serialize};

use crate::args::AugmentArgs;
use crate::prelude::*;

/// Augmentation and mixing of training images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AugmentSettings {
    pub(crate) augmentation: Augmentation,
    pub(crate) mixing: Mixing,
}

impl AugmentSettings {
    pub(crate) fn new(args: &AugmentArgs, image: ImageShape) -> Result<Self> {
        let augmentation = args.augment.as_ref().map(|spec| spec.for_image(image));
        let augmentation = augmentation.transpose();
        let augmentation = augmentation.map_err(|error| usage!("--augment: {error}"))?;
        let mixing = Mixing { mixup: args.mixup, cutmix: args.cutmix };
        let alone = [
            ("--mixup", Mixing { cutmix: None, ..mixing }),
            ("--cutmix", Mixing { mixup: None, ..mixing }),
        ];
        for (option, mixing) in alone {
            mixing.check().map_err(|error| usage!("{option}: {error}"))?;
        }
        let settings = Self { augmentation: augmentation.unwrap_or_default(), mixing };
        if args.test_augment.is_some_and(|views| views > 1) && settings.augmentation.is_identity() {
            let reason = "by which its views differ";
            return Err(usage!("--test-augment needs --augment with changes of images, {reason}"));
        }
        Ok(settings)
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses mixing where training is not classical.
    pub(crate) fn check(&self, is_classical: bool) -> Result {
        let Mixing { mixup, .. } = self.mixing;
        let option = if mixup.is_some() { "--mixup" } else { "--cutmix" };
        match self.mixing.is_none() || is_classical {
            true => Ok(()),
            false => Err(usage!("{option} is for --train classify")),
        }
    }

    /// Episodes to train on.
    pub(crate) fn train(&self, sampler: EpisodeSampler) -> Result<EpisodeSampler> {
        Ok(sampler.with_augmentation(self.augmentation.clone())?.with_mixing(self.mixing)?)
    }

    /// Episodes to test on, with so many views of each.
    pub(crate) fn test(
        &self,
        sampler: EpisodeSampler,
        views: Option<usize>,
    ) -> Result<EpisodeSampler> {
        // The parser allows a thousand.
        let views = u32::try_from(views.unwrap_or(1)).unwrap_or(u32::MAX);
        if views > 1 && self.augmentation.is_empty() {
            return Err(usage!("--test-augment is for runs that were trained with --augment"));
        }
        Ok(sampler.with_views(self.augmentation.clone(), views)?)
    }
}
