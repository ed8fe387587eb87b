use std::path::PathBuf;

use clap::Args;
use fewshot::data::Split;

use crate::args::{DeviceArgs, ReadArgs};
use crate::data_spec::{DataSpec, Part, image_specs};

pub(crate) const EMBED_HELP: &str = "\
The data is by default that of the checkpoint. A run folder stands for its best checkpoint, or its last one \
if there was no validation. Images are embedded upright, with batch-norm's running statistics.

The file has a tensor [n, d] a class, and metadata on what made it. Any program that reads safetensors can \
use it, and `fewshot eval --features` takes files of other programs.";

#[derive(Debug, Args)]
pub(crate) struct EmbedArgs {
    /// A checkpoint file or a run folder
    #[arg(value_name = "CHECKPOINT_OR_RUN", required_unless_present = "backbone")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// File to write, .safetensors
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
    /// A pretrained network instead of a run, and the file of its weights, as `adapt` takes them
    #[arg(
        long,
        value_name = "NAME[:FILE]",
        requires = "pictures",
        conflicts_with_all = ["checkpoint", "part", "data", "split"]
    )]
    pub(crate) backbone: Option<String>,
    /// Folder with a folder of pictures for each class, for --backbone
    #[arg(long, value_name = "DIR", requires = "backbone")]
    pub(crate) pictures: Option<PathBuf>,
    /// Classes to embed
    #[arg(long, value_enum, default_value_t)]
    pub(crate) part: Part,
    #[arg(long, value_name = "SPEC", help = format!("Data to embed: {}", image_specs()))]
    pub(crate) data: Option<DataSpec>,
    /// Split of Omniglot: vinyals, finn or finn:SEED
    #[arg(long)]
    pub(crate) split: Option<Split>,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}
