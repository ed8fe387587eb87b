use clap::Args;
use fewshot::data::AugmentSpec;

use super::{count, first_given};

/// Random changes of training images.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Augmentation of images")]
pub(crate) struct AugmentArgs {
    /// Changes of training images: none (for characters), flip-crop, standard or strong, or parts in their order as
    /// crop,flip,jitter=0.4, or a preset and parts, see below [default: none]
    #[arg(long, value_name = "PARTS")]
    pub(crate) augment: Option<AugmentSpec>,
    /// Average the probabilities of N views of each test episode: the images as they are, and N - 1 augmented
    /// [default: 1]
    #[arg(long, value_name = "N", value_parser = count(1..=1000))]
    pub(crate) test_augment: Option<usize>,
    /// Add to each image of a mini-batch another one, by a share from a Beta distribution of this alpha; of
    /// --train classify
    #[arg(long, value_name = "ALPHA")]
    pub(crate) mixup: Option<f64>,
    /// Paste a window of another image of the mini-batch, of a size from a Beta distribution of this alpha; of
    /// --train classify
    #[arg(long, value_name = "ALPHA")]
    pub(crate) cutmix: Option<f64>,
}

pub(crate) const AUGMENT_HELP: &str = "\
--augment changes each training image anew each time that it is shown, support and queries apart, as torchvision \
does it on images of PIL. Its parts, each with its default, are

crop=0.08        a window of at least this share of the area, of ratio 3/4 to 4/3, resized to the image
pad=PIXELS       a window from the image with a black border, by default of a tenth of the side, at least 4
flip=0.5         left and right change places, with this probability
jitter=0.4       brightness, contrast and saturation change by up to this strength, in random order; or
                 jitter=B:C:S:H of four strengths, the last of hue and at most 0.5
grey=0.1         the image becomes grey, with this probability
rotate=15        a turn by up to these degrees, black around it
erase=0.5        a window of 0.02 to 0.33 of the area becomes black, with this probability

flip-crop is pad,flip; standard is crop,jitter,flip, as FEAT trains at 84x84; strong is \
crop,jitter=0.4:0.4:0.4:0.1,flip,grey,rotate,erase=0.25. Of images with one channel jitter is that of brightness \
and contrast. Augmented images are made on the host, in a thread ahead of the steps, or with --data-on device by the \
accelerator. With both --mixup and --cutmix each mini-batch is mixed by one of them.";

impl AugmentArgs {
    /// The first of these options on the command line.
    pub(crate) fn given(&self) -> Option<String> {
        first_given!(self, augment, test_augment, mixup, cutmix)
    }
}
