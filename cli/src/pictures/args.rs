use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::args::{DeviceArgs, ReadArgs, count};

pub(crate) const ADAPT_HELP: &str = "\
A backbone is NAME:FILE, with the network's published weights in a safetensors file or one of PyTorch's, or NAME alone after \
`fewshot backbones get NAME` has downloaded them. There are dinov2-s, dinov2-b, dinov2-s-reg, dinov2-b-reg, clip-b32, clip-b32-gelu, efficientnet-lite0, resnet18, resnet34, resnet50, \
resnet12 and wrn-28-10.

Pictures lie in a folder for each class, whose name is the class's, and in folders below that. Every picture is left out once, to see how well the \
others classify it and how sure they should be; what came of it is printed, and drawn beside the model as \
.confusion.svg and .map.svg.

The model has the classes, their embeddings and small pictures of the examples in it, but only the name and the hash of the weights. Of a run the weights are \
in it, and the run is needed no more. Pictures are stretched to the size of the run's images, in grey or in colour as these; for \
runs on glyphs, omniglot and fonts they are of dark ink on white.

  fewshot backbones get dinov2-s
  fewshot adapt --backbone dinov2-s --support birds/ --out birds.fewshot
  fewshot adapt --backbone dinov2-s:dinov2_vits14_pretrain.pth --support birds/ --out birds.fewshot
  fewshot adapt runs/mine --support birds/ --out birds.fewshot
  fewshot adapt birds.fewshot --add owls/ --add more/wren/
  fewshot adapt birds.fewshot --add more/
  fewshot adapt birds.fewshot --remove wren

With --features, classes are learned from embeddings that another program has made of texts, sounds, tables or pictures: in \
.safetensors (a tensor [n, d] a class, or one with the labels of its rows in the metadata), .npy with --labels, .npz (an array a \
class, or embeddings and labels), .csv (a first line of names, a column label and a column for each value) or, in a build with the \
feature parquet, .parquet. The model then has no network: it takes embeddings of the same length, and no pictures. Rows may be \
added to any model whose embeddings have their length.

  fewshot adapt --features texts.npz --out texts.fewshot
  fewshot adapt --features texts.npy --labels texts.txt --out texts.fewshot
  fewshot adapt texts.fewshot --features more.csv";

pub(crate) const PREDICT_HELP: &str = "\
Of a folder, all pictures in it and in the folders below are classified. A line is the file, and the likeliest classes with \
their probabilities; with --json it is a JSON object. A picture that cannot be read is reported, the others are \
classified, and the exit code is 1, or with --skip-broken 0.

--unknown 0.5 rejects pictures that are rather of no class that the model knows: nearer to where pictures of other classes \
were than to where those of the class itself were, when they were left out.

With --features, the rows of a file are classified, which another program has made as those of the model; labels are passed over. A line \
is FILE:ROW, counted from 0. Kinds of files: fewshot adapt --help.

  fewshot predict birds.fewshot photo.jpg
  fewshot predict texts.fewshot --features new.npy --top 3";

pub(crate) const EXPORT_HELP: &str = "\
The file is one graph of ONNX's standard operators, version 17. Pictures go in as `pictures` [n, channels, height, width], of the size that the \
network takes and any number n of them; out come `probabilities` [n, classes], as `predict` prints them, and `known` [n], by which \
--unknown rejects. Scaling, mean and deviation are in the graph. The names of the classes, and how pictures are resized, are in \
the metadata of the file.

Of a run, or with --embeddings, the network is exported alone, and its output is `embeddings` [n, d].

Methods whose logits are a formula of a query can be exported: prototypes, simpleshot, matching, meta-baseline, simple-cnaps, r2d2, \
meta-opt-net, logistic, baseline, baseline++ and finetune.

  fewshot export birds.fewshot --to birds.onnx
  fewshot export runs/mine --to mine.onnx";

#[derive(Debug, Args)]
pub(crate) struct AdaptArgs {
    /// A model to change; or a run of `fewshot train`, folder or checkpoint, whose network a new model is made on
    #[arg(value_name = "MODEL|RUN", conflicts_with = "backbone")]
    pub(crate) given: Option<PathBuf>,
    /// Network, and file of its weights where they are not in the cache
    #[arg(long, value_name = "NAME[:FILE]", required_unless_present_any = ["given", "features"])]
    pub(crate) backbone: Option<String>,
    /// Folder with a folder of pictures for each class
    #[arg(long, value_name = "DIR", required_unless_present_any = ["given", "features"])]
    pub(crate) support: Option<PathBuf>,
    /// Embeddings that another program has made, with their classes: of a new model without a network, or to add to MODEL
    #[arg(long, value_name = "FILE")]
    pub(crate) features: Option<PathBuf>,
    /// Labels of the rows of --features where their file has none, one a line
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// File to write [default with MODEL: the same]
    #[arg(long, value_name = "FILE", required_unless_present = "given")]
    pub(crate) out: Option<PathBuf>,
    /// Method by which classes are learned from embeddings: simpleshot (nearest class mean by cosine), prototypes, logistic, …
    /// [default: simpleshot; with a run of protonet prototypes]
    #[arg(long)]
    pub(crate) method: Option<String>,
    /// Folder of pictures of a class to add to MODEL, or of one that it has; or folder with a folder for each such class
    #[arg(long, value_name = "DIR", requires = "given")]
    pub(crate) add: Vec<PathBuf>,
    /// Class to remove from MODEL
    #[arg(long, value_name = "CLASS", requires = "given")]
    pub(crate) remove: Vec<String>,
    /// Weights of MODEL's backbone, where they are not found
    #[arg(long, value_name = "FILE", requires = "given")]
    pub(crate) weights: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
    /// Keep no small pictures of the examples in the model's file, for the page of `fewshot serve`
    #[arg(long)]
    pub(crate) no_thumbnails: bool,
    /// Print what came of it as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PredictArgs {
    /// Model that `fewshot adapt` has written
    #[arg(value_name = "MODEL")]
    pub(crate) model: PathBuf,
    /// Pictures, or folders of pictures
    #[arg(value_name = "PICTURE", required_unless_present = "features")]
    pub(crate) pictures: Vec<PathBuf>,
    /// Embeddings to classify instead of pictures
    #[arg(long, value_name = "FILE", conflicts_with = "pictures")]
    pub(crate) features: Option<PathBuf>,
    /// Classes of a picture to print, the likeliest first
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count(1..))]
    pub(crate) top: usize,
    /// Reject pictures that are less likely than this of a known class at all, from 0 to 1
    #[arg(long, value_name = "P", value_parser = probability)]
    pub(crate) unknown: Option<f64>,
    /// Weights of the backbone, where they are not found
    #[arg(long, value_name = "FILE")]
    pub(crate) weights: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
    /// Print a JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Model that `fewshot adapt` has written; or a run of `fewshot train`, folder or checkpoint
    #[arg(value_name = "MODEL|RUN")]
    pub(crate) given: PathBuf,
    /// File to write, .onnx
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
    /// Export the network of MODEL alone
    #[arg(long)]
    pub(crate) embeddings: bool,
    /// Pixels that the graph takes: bytes, or numbers from 0 to 1
    #[arg(long, value_enum, default_value_t)]
    pub(crate) input: Pixels,
    /// Weights of MODEL's backbone, where they are not found
    #[arg(long, value_name = "FILE")]
    pub(crate) weights: Option<PathBuf>,
    /// Print what came of it as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// Type of the pixels of an exported graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pixels {
    /// Bytes from 0 to 255
    #[default]
    U8,
    /// Numbers from 0 to 1
    F32,
}

fn probability(text: &str) -> Result<f64, String> {
    let probability = text.parse().ok().filter(|p| (0.0..=1.0).contains(p));
    probability.ok_or_else(|| format!("{text} is not between 0 and 1"))
}

#[cfg(test)]
mod tests {
    use super::{ADAPT_HELP, EXPORT_HELP};
    use burn::backend::Flex;
    use fewshot::adapted::{AdaptedModel, PUBLISHED_WEIGHTS};

    #[test]
    fn the_help_names_every_network() {
        let words: Vec<_> = ADAPT_HELP.split([' ', ',', '.', '\n']).collect();
        for weights in PUBLISHED_WEIGHTS {
            assert!(words.contains(&weights.name), "{}", weights.name);
        }
    }

    #[test]
    fn the_help_of_export_names_every_method_but_two() {
        let words: Vec<_> = EXPORT_HELP.split([' ', ',', '.', '\n']).collect();
        let is_named = |method: &&str| words.contains(method);
        let absent: Vec<_> =
            AdaptedModel::<Flex>::methods().into_iter().filter(|m| !is_named(m)).collect();
        assert_eq!(absent, ["dn4", "deep-emd"]);
    }
}
