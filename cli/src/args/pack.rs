use std::path::PathBuf;

use clap::Args;

use super::ImageArgs;
use crate::data_spec::{ImageSpec, image_specs};

pub(crate) const PACK_HELP: &str = "\
Pictures are decoded a few at a time, so a set may be larger than memory, and so may one that is read from the \
pack: `--data pack:FILE` reads the images of an episode when it is drawn. The file has a byte for each value, and \
the classes, splits and options that it was made with. It is there when it is whole, and opening it checks its \
header and its length.

    fewshot data pack folder:birds --image-size 84 --to birds.pack
    fewshot train --data pack:birds.pack
    fewshot data pack --check birds.pack";

#[derive(Debug, Args)]
pub(crate) struct PackArgs {
    #[arg(
        required_unless_present = "check",
        help = format!("Data to pack: {}", image_specs())
    )]
    pub(crate) spec: Option<ImageSpec>,
    /// File to write
    #[arg(long, value_name = "FILE", required_unless_present = "check")]
    pub(crate) to: Option<PathBuf>,
    /// Compare the pixels of a pack with their checksum instead
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["spec", "to", "split", "image_size", "grey", "skip_broken", "max_pixels"]
    )]
    pub(crate) check: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) images: ImageArgs,
}
