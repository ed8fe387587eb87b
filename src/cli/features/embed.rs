use burn::tensor::backend::AutodiffBackend;
use fewshot::data::{ClassDataset, Features, ImageSet};
use fewshot::hardware::Checkpointing;
use fewshot::learners::{Learner, MetaLearner};
use fewshot::train::{Checkpoint, embed_all};

use super::args::{EmbedArgs, Part};
use crate::cli::backend::{self, Job, Place};
use crate::cli::data_spec::DataSpec;
use crate::cli::error::CliError;
use crate::cli::eval;
use crate::cli::output::print;
use crate::cli::recipe::{LearnerJob, Recipe};
use crate::cli::world;

/// `fewshot embed`.
pub(crate) fn embed(args: EmbedArgs) -> Result<(), CliError> {
    let world = world::join()?;
    world::refuse_several(&*world, "embed")?;
    backend::prepare(&args.device)?;
    if args.to.extension().is_none_or(|ending| ending != "safetensors") {
        let to = args.to.display();
        return Err(CliError::Usage(format!("--to writes .safetensors, not {to}")));
    }
    let path = eval::file(&args.checkpoint);
    let checkpoint = Checkpoint::read(&path)?;
    let trained: Recipe = eval::recipe(&checkpoint, &path)?;
    let data = match args.data.clone() {
        None => trained.data.clone(),
        Some(DataSpec::Images(data)) => data,
        Some(DataSpec::Sinusoids) => {
            return Err(CliError::Usage("sinusoids have no classes to embed".to_owned()));
        }
    };
    data.refuse_other_options(args.split, false)?;
    let recipe = Recipe { data, split: args.split.unwrap_or(trained.split), ..trained };
    let splits = recipe.data.open(recipe.split, recipe.folder)?;
    let images = match args.part {
        Part::Test => splits.test,
        Part::Validation => splits.validation,
        Part::Train => splits.train,
    };
    if images.image_shape() != recipe.image {
        return Err(CliError::Failed(format!(
            "the checkpoint takes images of {}, {} has {}",
            recipe.image,
            recipe.data,
            images.image_shape()
        )));
    }
    let device = args.device.clone();
    backend::dispatch(&device, Embedding { args, recipe, checkpoint, images })
}

struct Embedding {
    args: EmbedArgs,
    recipe: Recipe,
    checkpoint: Checkpoint,
    images: ImageSet,
}

impl Job for Embedding {
    type Output = ();

    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result<(), CliError> {
        let recipe = self.recipe.clone();
        let device = place.device.clone();
        recipe.with_learner(&device, Checkpointing::Nothing, EmbeddingAt { embedding: self, place })
    }
}

/// Embedding on a backend.
struct EmbeddingAt<B: AutodiffBackend> {
    embedding: Embedding,
    place: Place<B>,
}

impl<B: AutodiffBackend> LearnerJob<B> for EmbeddingAt<B> {
    type Output = ();

    fn run<L: MetaLearner<B>>(self, learner: L) -> Result<(), CliError> {
        let Self { embedding, place } = self;
        let Embedding { args, recipe, checkpoint, images } = embedding;
        let learner = checkpoint.load::<B, _, _>(learner, &place.device)?.valid();
        let Some(on_embeddings) = Learner::<B::InnerBackend>::on_embeddings(&learner) else {
            let method = recipe.method;
            return Err(CliError::Usage(format!(
                "{method} has no embeddings: it adapts its network"
            )));
        };
        let features = embed_all(on_embeddings, &images, &place.device)?;
        let features = described(features, &args, &recipe, &checkpoint)?;
        features.write(&args.to)?;
        let (rows, classes, length) = (features.rows(), features.classes(), features.length());
        let to = args.to.display();
        print(format_args!("{rows} images of {classes} classes as rows of {length} in {to}"))
    }
}

/// With what made them.
fn described(
    features: Features,
    args: &EmbedArgs,
    recipe: &Recipe,
    checkpoint: &Checkpoint,
) -> Result<Features, CliError> {
    let part = match args.part {
        Part::Test => "test",
        Part::Validation => "validation",
        Part::Train => "train",
    };
    let maps = recipe.network()?.maps().map(|size| size.to_string()).join("x");
    Ok(features
        .with_metadata("created_by", concat!("fewshot ", env!("CARGO_PKG_VERSION")))
        .with_metadata("learner", checkpoint.architecture())
        .with_metadata("checkpoint", args.checkpoint.display().to_string())
        .with_metadata("step", checkpoint.progress().step.to_string())
        .with_metadata("data", recipe.data.name())
        .with_metadata("split", recipe.data.split_name(recipe.split))
        .with_metadata("classes", part)
        .with_metadata("maps", maps))
}
