use clap::Args;
use fewshot::data::{Color, Split};

use super::{ReadArgs, count, first_given};
use crate::data_spec::{FolderOptions, ImageSpec};
use crate::prelude::*;

/// Options of the images that a run learns from or a pack is made of.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ImageArgs {
    /// Split of Omniglot: vinyals (turns are classes), finn or finn:SEED (turns drawn per class)
    /// [default: vinyals]
    #[arg(long)]
    pub(crate) split: Option<Split>,
    /// Side in pixels that images of files are resized to [default: 84; of cifar-fs and fc100 32, of
    /// meta-album 128, of fonts 28; in training with weights of --encoder, theirs]
    #[arg(long, value_name = "PIXELS", value_parser = count(1..=4096))]
    pub(crate) image_size: Option<usize>,
    /// Take the brightness alone of images of files
    #[arg(long)]
    pub(crate) grey: bool,
    #[command(flatten)]
    read: ReadArgs,
}

impl ImageArgs {
    /// The first of these options on the command line.
    pub(crate) fn given(self) -> Option<String> {
        first_given!(self, split).or(self.file_option())
    }

    /// The first option of files.
    fn file_option(self) -> Option<String> {
        first_given!(self, image_size, grey).or(self.read.given())
    }

    /// Refuses options that this data has no use for.
    pub(crate) fn check(self, data: &ImageSpec) -> Result {
        data.refuse_other_options(self.split, self.file_option().is_some())
    }

    /// Options of the data, with those that are given here.
    pub(crate) fn over(self, data: FolderOptions) -> FolderOptions {
        self.read.over(FolderOptions {
            size: self.image_size.unwrap_or(data.size),
            color: if self.grey { Color::Grey } else { data.color },
            ..data
        })
    }
}
