use std::collections::BTreeMap;

use fewshot::adapted::AdaptedModel;
use fewshot::data::{ClassFiles, class_name, picture_files, pictures_by_class};

use super::args::AdaptArgs;
use super::{Embedder, NetworkSpec, lock, plots, run};
use crate::args::first_given;
use crate::prelude::*;

/// Confusions that are printed, at most.
const MISTAKES: usize = 5;

pub(crate) fn adapt(args: &AdaptArgs) -> Result {
    backend::prepare(args.device.threads)?;
    let to_do = ToDo::from_args(args)?;
    backend::dispatch(&args.device, Adapting { args, to_do })
}

struct Adapting<'a> {
    args: &'a AdaptArgs,
    to_do: ToDo,
}

enum ToDo {
    New { network: NetworkSpec, support: PathBuf, out: PathBuf },
    Change { model: PathBuf, out: PathBuf },
}

impl ToDo {
    /// The first argument is a model or a run.
    fn from_args(args: &AdaptArgs) -> Result<Self> {
        let (support, out) = (args.support.clone(), args.out.clone());
        let Some(given) = &args.given else {
            // Clap asks for no MODEL where it conflicts with what is there.
            if let Some(option) = first_given!(args, add, remove, weights) {
                return Err(usage!("{option} is for a model, and --backbone begins a new one"));
            }
            let network = args.backbone.as_deref().map(NetworkSpec::named);
            let (Some(network), Some(support), Some(out)) = (network, support, out) else {
                return Err(usage!("--backbone, --support and --out are needed"));
            };
            return Ok(Self::New { network, support, out });
        };
        let name = given.display();
        if !given.exists() {
            return Err(failed!("there is no {name}, neither a model nor a run"));
        }
        if run::is_run(given) {
            if let Some(option) = first_given!(args, add, remove, weights) {
                return Err(usage!("{option} is for a model, and {name} is a run"));
            }
            let needed = |option| usage!("{name} is a run: {option} is needed with it");
            let support = support.ok_or_else(|| needed("--support"))?;
            let out = out.ok_or_else(|| needed("--out"))?;
            return Ok(Self::New { network: NetworkSpec::Run(given.clone()), support, out });
        }
        if let Some(option) = first_given!(args, support, method) {
            return Err(usage!("{option} is for a new model, and {name} is no run to make one on"));
        }
        if args.add.is_empty() && args.remove.is_empty() {
            return Err(usage!("--add or --remove says what to change"));
        }
        let (model, out) = (given.clone(), out.unwrap_or_else(|| given.clone()));
        Ok(Self::Change { model, out })
    }
}

impl Work for Adapting<'_> {
    type Output = Result;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Result {
        let Self { args, to_do } = self;
        let (ToDo::New { out, .. } | ToDo::Change { out, .. }) = &to_do;
        let _lock = lock(out, "fewshot adapt")?;
        let (model, out) = match to_do {
            ToDo::Change { model, out } => (changed::<B>(args, &model, hardware.device())?, out),
            ToDo::New { network, support, out } => {
                let device = hardware.device();
                let classes = args.read.sound(&picture_files(&support)?)?;
                let Embedder { backbone, method, without_averages } =
                    network.open::<Autodiff<B>>(device)?;
                let mut backbone = backbone.with_limits(args.read.limits());
                if let Some(trained_by) = without_averages {
                    let files = classes.iter().flat_map(|(_, files)| files.clone());
                    backbone = backbone.with_averages_of(&files.collect::<Vec<_>>())?;
                    print_status(format_args!(
                        "{trained_by} gathers no running averages of batch-norm: those of these pictures are taken"
                    ));
                }
                let method = args.method.as_deref().unwrap_or(method);
                (AdaptedModel::adapt_to_pictures(backbone, method, &classes)?, out)
            }
        };
        let model = if args.no_thumbnails { model.without_thumbnails() } else { model };
        model.write(&out)?;
        draw(&model, &out)?;
        report(&model, &out, args.json)
    }
}

fn changed<B: Backend>(
    args: &AdaptArgs,
    path: &Path,
    device: &B::Device,
) -> Result<AdaptedModel<B>> {
    let model = AdaptedModel::open_with_weights(path, args.weights.as_deref(), device)?;
    let mut additions = ClassFiles::new();
    for folder in &args.add {
        additions.extend(args.read.sound(&pictures_by_class(folder)?)?);
    }
    let before = examples_by_class(&model);
    let mut model = model.with_limits(args.read.limits()).with_classes(&additions)?;
    let after = examples_by_class(&model);
    for (class, files) in files_by_class(additions) {
        let added = after.get(&class).unwrap_or(&0) - before.get(&class).unwrap_or(&0);
        let there = files - added;
        if there > 0 {
            print_status(format_args!("{there} of {files} pictures of {class} are there already"));
        }
    }
    for class in &args.remove {
        model = model.without_class(class)?;
    }
    Ok(model)
}

/// Number of examples of each class, by its plain name.
fn examples_by_class<B: Backend>(model: &AdaptedModel<B>) -> BTreeMap<String, usize> {
    let examples = model.examples();
    let classes = (0..examples.classes()).map(|class| {
        let name = examples.class_name(class);
        (class_name(name).unwrap_or_else(|_| name.to_owned()), examples.examples(class))
    });
    classes.collect()
}

/// Number of files of each class.
fn files_by_class(additions: ClassFiles) -> BTreeMap<String, usize> {
    let mut files = BTreeMap::new();
    for (class, added) in additions {
        *files.entry(class).or_default() += added.len();
    }
    files
}

fn draw<B: Backend>(model: &AdaptedModel<B>, out: &Path) -> Result {
    if let Some(validation) = model.cross_validation() {
        let path = out.with_extension("confusion.svg");
        plots::write_confusion(&path, &model.class_names(), &validation.confusion)?;
    }
    plots::write_map(&out.with_extension("map.svg"), model.examples())
}

fn report<B: Backend>(model: &AdaptedModel<B>, out: &Path, json: bool) -> Result {
    let (names, examples) = (model.class_names(), model.examples());
    let validation = model.cross_validation();
    let mistakes = validation.map(|validation| validation.mistakes()).unwrap_or_default();
    if json {
        let shots: Vec<_> = (0..names.len()).map(|class| examples.examples(class)).collect();
        let mistakes = mistakes.iter().map(|([own, taken], count)| {
            json!({"class": names[*own], "taken_for": names[*taken], "pictures": count})
        });
        return print(json!({
            "model": out.display().to_string(),
            "backbone": model.backbone().origin().to_string(),
            "method": model.method(),
            "classes": names,
            "pictures": examples.rows(),
            "shots": shots,
            "left_out": validation.map(|validation| validation.examples()),
            "left_out_folds": validation.and_then(|validation| validation.folds),
            "left_out_accuracy": validation.map(|validation| rounded(validation.accuracy(), 2)),
            "mistakes": mistakes.collect::<Vec<_>>(),
        }));
    }
    let (rows, classes) = (examples.rows(), examples.classes());
    let (method, backbone) = (model.method(), model.backbone().origin());
    print(format_args!("{classes} classes from {rows} pictures by {method} on {backbone}"))?;
    match validation {
        Some(validation) => print(format_args!(
            "{:.1} % right of {} pictures, each left out once",
            validation.accuracy(),
            validation.examples()
        ))?,
        None => print("no class has a second picture to leave out")?,
    }
    for ([own, taken], count) in mistakes.iter().take(MISTAKES) {
        print(format_args!("  {count} of {} taken for {}", names[*own], names[*taken]))?;
    }
    print(format_args!("{}", out.display()))
}
