use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn::Initializer;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use fewshot_kernels::{TaskLoss, linear, task_loss};
use fewshot_models::nn::drawn;

use super::heads::{not_negative, positive, unit_length};
use crate::episode::one_hot;

/// Logits of base classes, by the way they are computed from embeddings.
#[derive(Config, Copy, Debug, PartialEq)]
pub enum BaseLogits {
    /// A linear layer.
    Linear,
    /// The cosine to a weight of each class, times a scale.
    Cosine {
        /// The scale.
        scale: f64,
    },
}

/// Configuration of a [`BaseClassifier`].
#[derive(Config, Debug, PartialEq)]
pub struct BaseClassifierConfig {
    /// Length of an embedding.
    pub features: usize,
    /// Number of base classes.
    pub classes: usize,
    /// Way to compute logits.
    #[config(default = "BaseLogits::Linear")]
    pub logits: BaseLogits,
    /// Share of each target that is spread evenly over all classes; 0 in the papers of Baseline and
    /// RFS, 0.1 in many later ones.
    #[config(default = 0.0)]
    pub label_smoothing: f64,
    /// Weight of a second loss, for predicting which of the four quarter turns an image is shown in; 0
    /// for none. It needs square images, and four times the forward pass.
    #[config(default = 0.0)]
    pub rotation: f64,
}

/// A classifier of all base classes, for classical training of an encoder.
///
/// # Source
/// Chen et al., "A Closer Look at Few-shot Classification", ICLR 2019 (linear and cosine); Gidaris et
/// al., "Boosting Few-Shot Visual Learning with Self-Supervision", ICCV 2019 (rotation).
#[derive(Module, Debug)]
pub struct BaseClassifier<B: Backend> {
    /// `[d, classes]`
    weight: Param<Tensor<B, 2>>,
    bias: Option<Param<Tensor<B, 1>>>,
    /// Weights of the classifier of the four turns, `[d, 4]`.
    turns: Option<Param<Tensor<B, 2>>>,
    #[module(skip)]
    config: BaseClassifierConfig,
}

/// Quarter turns of an image, the first of which leaves it as it is.
const TURNS: usize = 4;

impl BaseClassifierConfig {
    /// Draws the parameters.
    ///
    /// # Panics
    /// When there are no features or no classes, `label_smoothing` is not at least 0 and below 1,
    /// `rotation` is not at least 0, or the scale of cosines is not positive.
    pub fn init<B: Backend>(&self, device: &B::Device) -> BaseClassifier<B> {
        let Self { features, classes, label_smoothing, rotation, .. } = *self;
        assert!(features > 0 && classes > 0, "{features} features, {classes} classes");
        assert!(
            (0.0..1.0).contains(&label_smoothing),
            "label smoothing is from 0 to below 1, found {label_smoothing}"
        );
        not_negative("the weight of the rotation loss", [rotation]);
        if let BaseLogits::Cosine { scale } = self.logits {
            positive("the scale", scale);
        }
        let bound = 1.0 / (features as f64).sqrt();
        let uniform = Initializer::Uniform { min: -bound, max: bound };
        let has_bias = self.logits == BaseLogits::Linear;
        drawn(BaseClassifier {
            weight: uniform.init([features, classes], device),
            bias: has_bias.then(|| uniform.init([classes], device)),
            turns: (rotation > 0.0).then(|| uniform.init([features, TURNS], device)),
            config: self.clone(),
        })
    }
}

impl<B: Backend> BaseClassifier<B> {
    /// The configuration.
    pub fn config(&self) -> &BaseClassifierConfig {
        &self.config
    }

    /// Logits `[n, classes]` of embeddings `[n, d]`.
    pub fn logits(&self, embeddings: Tensor<B, 2>) -> Tensor<B, 2> {
        let weight = self.weight.val();
        match self.config.logits {
            BaseLogits::Linear => {
                linear(embeddings, weight, self.bias.as_ref().map(|bias| bias.val()))
            }
            BaseLogits::Cosine { scale } => {
                linear(unit_length(embeddings, 1), unit_length(weight, 0), None) * scale
            }
        }
    }

    /// The images that the encoder is to be shown: `images` `[n, c, h, w]` themselves, or, with a
    /// rotation loss, all four quarter turns of them, turn after turn, `[4 n, c, h, w]`.
    ///
    /// # Panics
    /// When images that are to be turned are not square.
    pub fn training_images(&self, images: Tensor<B, 4>) -> Tensor<B, 4> {
        if self.turns.is_none() {
            return images;
        }
        let [_, _, height, width] = images.dims();
        assert_eq!(height, width, "images are turned by quarters where they are square");
        let half = images.clone().flip([2, 3]);
        let quarter = images.clone().swap_dims(2, 3);
        let turns = vec![images, quarter.clone().flip([2]), half, quarter.flip([3])];
        Tensor::cat(turns, 0)
    }

    /// Mean loss, `[1]`, and logits of the images as they are.
    ///
    /// # Shapes
    /// - `embeddings`: `[n, d]`, or of four turns `[4 n, d]`, turn after turn
    /// - `classes`: `[n]`
    /// - returns `[1]` and `[n, classes]`
    pub fn loss(
        &self,
        embeddings: Tensor<B, 2>,
        classes: Tensor<B, 1, Int>,
    ) -> (Tensor<B, 1>, Tensor<B, 2>) {
        let targets = one_hot(classes.unsqueeze_dim(0), self.config.classes);
        self.loss_of(embeddings, targets)
    }

    /// The same of mixed images: the loss for `classes` and that for the classes of their `partners`, weighted by
    /// `shares` and the rest to 1.
    ///
    /// # Shapes
    /// - `embeddings`, `classes` and what is returned: as for [`loss`](Self::loss)
    /// - `partners`: place of each image's partner, `[n]`
    /// - `shares`: share of each image that is its own, `[n]`
    pub fn mixed_loss(
        &self,
        embeddings: Tensor<B, 2>,
        classes: Tensor<B, 1, Int>,
        partners: Tensor<B, 1, Int>,
        shares: Tensor<B, 1>,
    ) -> (Tensor<B, 1>, Tensor<B, 2>) {
        // The cross-entropy is linear in its targets.
        let targets_of = |classes: Tensor<B, 1, Int>| {
            one_hot::<B>(classes.unsqueeze_dim(0), self.config.classes)
        };
        let [targets, others] = [classes.clone(), classes.select(0, partners)].map(targets_of);
        let shares = shares.unsqueeze_dim::<2>(1).unsqueeze::<3>();
        self.loss_of(embeddings, targets * shares.clone() + others * (shares.neg() + 1.0))
    }

    /// Mean loss for `targets`, `[1, n, classes]`.
    fn loss_of(
        &self,
        embeddings: Tensor<B, 2>,
        targets: Tensor<B, 3>,
    ) -> (Tensor<B, 1>, Tensor<B, 2>) {
        let images = targets.dims()[1];
        let BaseClassifierConfig { classes: count, label_smoothing, rotation, .. } = self.config;
        let logits = self.logits(embeddings.clone());
        let views = logits.dims()[0] / images.max(1);
        let smooth = targets * (1.0 - label_smoothing) + label_smoothing / count as f64;
        let targets = smooth.repeat_dim(1, views);
        let loss = task_loss(logits.clone().unsqueeze_dim(0), targets, TaskLoss::CrossEntropy);
        let logits = logits.narrow(0, 0, images);
        let Some(turns) = &self.turns else { return (loss, logits) };
        let device = embeddings.device();
        let labels = Tensor::<B, 1, Int>::arange(0..TURNS as i64, &device);
        let labels =
            labels.reshape([TURNS, 1]).expand([TURNS, images]).reshape([1, TURNS * images]);
        let of_turns = linear(embeddings, turns.val(), None).unsqueeze_dim(0);
        let rotation_loss = task_loss(of_turns, one_hot(labels, TURNS), TaskLoss::CrossEntropy);
        (loss + rotation_loss * rotation, logits)
    }

    /// Kind and sizes, for reports.
    pub(super) fn architecture(&self) -> String {
        let BaseClassifierConfig { classes, logits, label_smoothing, rotation, .. } = &self.config;
        format!("{logits:?} of {classes} classes, smoothing {label_smoothing}, rotation {rotation}")
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;
    use burn::tensor::Distribution;

    use super::*;

    const CLASSES: [i32; 4] = [0, 2, 1, 2];
    const PARTNERS: [i32; 4] = [3, 0, 1, 2];

    fn labels(values: [i32; 4]) -> Tensor<Flex, 1, Int> {
        Tensor::from_ints(values, &Default::default())
    }

    fn classifier() -> (BaseClassifier<Flex>, Tensor<Flex, 2>) {
        let device = Default::default();
        Flex::seed(&device, 1);
        let config = BaseClassifierConfig::new(5, 3).with_label_smoothing(0.1).with_rotation(0.5);
        let embeddings = Tensor::random([16, 5], Distribution::Normal(0.0, 1.0), &device);
        (config.init(&device), embeddings)
    }

    fn mixed_loss(shares: [f32; 4]) -> f32 {
        let (classifier, embeddings) = classifier();
        let shares = Tensor::from_floats(shares, &Default::default());
        let mixed = classifier.mixed_loss(embeddings, labels(CLASSES), labels(PARTNERS), shares);
        mixed.0.into_scalar()
    }

    fn loss(classes: [i32; 4]) -> f32 {
        let (classifier, embeddings) = classifier();
        classifier.loss(embeddings, labels(classes)).0.into_scalar()
    }

    #[test]
    fn a_mixed_loss_is_the_weighted_mean_of_the_losses_for_both_classes() {
        let of_partners = PARTNERS.map(|partner| CLASSES[partner as usize]);
        assert_eq!(mixed_loss([1.0; 4]), loss(CLASSES));
        let (own, others) = (loss(CLASSES), loss(of_partners));
        assert!((own - others).abs() > 1e-2);
        assert!((mixed_loss([0.0; 4]) - others).abs() < 1e-6);
        assert!((mixed_loss([0.3; 4]) - (0.3 * own + 0.7 * others)).abs() < 1e-6);
        // Of a single image that is not its own.
        let swapped = [CLASSES[0], of_partners[1], CLASSES[2], CLASSES[3]];
        assert!((mixed_loss([1.0, 0.0, 1.0, 1.0]) - loss(swapped)).abs() < 1e-6);
    }
}
