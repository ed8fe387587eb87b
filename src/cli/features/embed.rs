use fewshot::data::{Features, ImageSet};
use fewshot::hardware::Checkpointing;
use fewshot::learners::{Learner, MetaLearner};
use fewshot::train::{Checkpoint, embed_all};

use super::args::EmbedArgs;
use crate::cli::eval;
use crate::cli::output::lower;
use crate::cli::pictures::PictureEmbedding;
use crate::cli::prelude::*;
use crate::cli::settings::{LearnerJob, RunSettings};
use crate::cli::world;

pub(crate) fn embed(args: EmbedArgs) -> Result {
    let world = world::join()?;
    world::refuse_several(&*world, "embed")?;
    backend::prepare(args.device.threads)?;
    if args.to.extension().is_none_or(|ending| ending != "safetensors") {
        return Err(usage!("--to writes .safetensors, not {}", args.to.display()));
    }
    if let (Some(backbone), Some(pictures)) = (&args.backbone, &args.pictures) {
        let (backbone, pictures) = (backbone.clone(), pictures.clone());
        let job = PictureEmbedding { backbone, pictures, to: args.to };
        return backend::dispatch(&args.device, job);
    }
    let given = args.checkpoint.clone().ok_or_else(|| usage!("a checkpoint is needed"))?;
    let path = eval::file(&given);
    let checkpoint = Checkpoint::read(&path)?;
    let settings = RunSettings::of(&checkpoint, &path, args.data.as_ref(), args.split)?;
    let images = settings.images(args.part)?;
    let device = args.device.clone();
    backend::dispatch(&device, Embedding { args, given, settings, checkpoint, images })
}

struct Embedding {
    args: EmbedArgs,
    /// The checkpoint or run that was named.
    given: PathBuf,
    settings: RunSettings,
    checkpoint: Checkpoint,
    images: ImageSet,
}

impl Job for Embedding {
    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result {
        self.settings.clone().with_learner(place, Checkpointing::Nothing, self)
    }
}

impl LearnerJob for Embedding {
    fn run<B: AutodiffBackend, L: MetaLearner<B>>(self, place: Place<B>, learner: L) -> Result {
        let learner = self.checkpoint.load::<B, _, _>(learner, &place.device)?.valid();
        let Some(on_embeddings) = Learner::<B::InnerBackend>::on_embeddings(&learner) else {
            let method = self.settings.method;
            return Err(usage!("{method} has no embeddings: it adapts its network"));
        };
        let features = embed_all(on_embeddings, &self.images, &place.device)?;
        let features = self.described(features)?;
        let to = &self.args.to;
        features.write(to)?;
        let (rows, classes, length) = (features.rows(), features.classes(), features.length());
        let to = to.display();
        print(format_args!("{rows} images of {classes} classes as rows of {length} in {to}"))
    }
}

impl Embedding {
    /// With what made them.
    fn described(&self, features: Features) -> Result<Features> {
        let Self { args, given, settings, checkpoint, .. } = self;
        let maps = settings.network()?.maps().map(|size| size.to_string()).join("x");
        Ok(features
            .with_metadata("created_by", concat!("fewshot ", env!("CARGO_PKG_VERSION")))
            .with_metadata("learner", checkpoint.architecture())
            .with_metadata("checkpoint", given.display().to_string())
            .with_metadata("step", checkpoint.progress().step.to_string())
            .with_metadata("data", settings.data.name())
            .with_metadata("split", settings.data.split_name(settings.split))
            .with_metadata("classes", lower(args.part))
            .with_metadata("maps", maps))
    }
}
