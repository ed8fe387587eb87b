use fewshot::adapted::BackboneOrigin;
use fewshot::data::{Features, ImageSet, picture_files};
use fewshot::hardware::Checkpointing;
use fewshot::learners::{Learner, MetaLearner};
use fewshot::train::{Checkpoint, embed_all};

use super::args::EmbedArgs;
use crate::args::ReadArgs;
use crate::checkpoint;
use crate::pictures;
use crate::prelude::*;
use crate::settings::{LearnerJob, RunSettings};
use crate::world;

const CREATED_BY: &str = concat!("fewshot ", env!("CARGO_PKG_VERSION"));

pub(crate) fn embed(args: &EmbedArgs) -> Result {
    let world = world::join()?;
    world::refuse_several(&*world, "embed")?;
    backend::prepare(args.device.threads)?;
    if args.to.extension().is_none_or(|ending| ending != "safetensors") {
        return Err(usage!("--to writes .safetensors, not {}", args.to.display()));
    }
    if let (Some(backbone), Some(pictures)) = (&args.backbone, &args.pictures) {
        let of_pictures = OfPictures { backbone, pictures, read: args.read, to: &args.to };
        return backend::dispatch(&args.device, of_pictures);
    }
    let given = args.checkpoint.as_ref().ok_or_else(|| usage!("a checkpoint is needed"))?;
    let path = checkpoint::file(given);
    let checkpoint = Checkpoint::read(&path)?;
    let mut settings =
        RunSettings::from_checkpoint(&checkpoint, &path, args.data.as_ref(), args.split)?;
    settings.data.refuse_other_options(None, args.read.given().is_some())?;
    settings.folder = args.read.over(settings.folder);
    let images = settings.images(args.part)?;
    backend::dispatch(&args.device, Embedding { args, given, settings, checkpoint, images })
}

struct Embedding<'a> {
    args: &'a EmbedArgs,
    given: &'a Path,
    settings: RunSettings,
    checkpoint: Checkpoint,
    images: ImageSet,
}

impl Work for Embedding<'_> {
    type Output = Result;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Result {
        let settings = self.settings.clone();
        settings.with_learner::<Autodiff<B>>(&hardware, Checkpointing::Nothing, self)
    }
}

impl LearnerJob for Embedding<'_> {
    fn run<B: AutodiffBackend, L: MetaLearner<B>>(
        self,
        hardware: &HardwareManager<B::InnerBackend>,
        learner: L,
    ) -> Result {
        let Self { args, given, settings, checkpoint, images } = self;
        let learner = checkpoint.load::<B, _, _>(learner, hardware.device())?.valid();
        let Some(on_embeddings) = Learner::<B::InnerBackend>::on_embeddings(&learner) else {
            let method = settings.method;
            return Err(usage!("{method} has no embeddings: it adapts its network"));
        };
        let maps = settings.network()?.maps();
        let mut features = embed_all(on_embeddings, &images, hardware.device())?
            .with_metadata("created_by", CREATED_BY)
            .with_metadata("learner", checkpoint.architecture())
            .with_metadata("checkpoint", given.display().to_string())
            .with_metadata("step", checkpoint.progress().step.to_string())
            .with_metadata("data", settings.data.name())
            .with_metadata("split", settings.data.split_name(settings.split))
            .with_metadata("classes", lower(args.part));
        if let Some(maps) = maps {
            let maps = maps.map(|size| size.to_string()).join("x");
            features = features.with_metadata("maps", maps);
        }
        write(&features, "images", &args.to)
    }
}

/// With a pretrained network.
struct OfPictures<'a> {
    backbone: &'a str,
    pictures: &'a Path,
    read: ReadArgs,
    to: &'a Path,
}

impl Work for OfPictures<'_> {
    type Output = Result;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Result {
        let Self { backbone, pictures, read, to } = self;
        let classes = read.sound(&picture_files(pictures)?)?;
        let backbone = pictures::backbone::<B>(backbone, hardware.device())?;
        let backbone = backbone.with_limits(read.limits());
        let mut features = backbone
            .embed_pictures(&classes)?
            .with_metadata("created_by", CREATED_BY)
            .with_metadata("pictures", pictures.display().to_string());
        if let BackboneOrigin::Published(id) = backbone.origin() {
            features = features
                .with_metadata("backbone", &id.name)
                .with_metadata("weights_sha256", &id.sha256);
        }
        write(&features, "pictures", to)
    }
}

fn write(features: &Features, what: &str, to: &Path) -> Result {
    features.write(to)?;
    let (rows, classes, length) = (features.rows(), features.classes(), features.length());
    let to = to.display();
    print(format_args!("{rows} {what} of {classes} classes as rows of {length} in {to}"))
}
