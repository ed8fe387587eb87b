use std::collections::BTreeMap;

use fewshot::adapted::{AdaptedModel, EmbeddingSource};
use fewshot::data::{ClassFiles, Features, class_name, picture_files, pictures_by_class};

use super::args::AdaptArgs;
use super::{Embedder, METHOD, NetworkSpec, lock, plots, run};
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
    New {
        network: NetworkSpec,
        support: PathBuf,
        out: PathBuf,
    },
    /// A model without a network, of embeddings that another program has made.
    NewOfFeatures {
        features: PathBuf,
        out: PathBuf,
    },
    Change {
        model: PathBuf,
        out: PathBuf,
    },
}

impl ToDo {
    /// The first argument is a model or a run.
    fn from_args(args: &AdaptArgs) -> Result<Self> {
        if args.features.is_none() && args.labels.is_some() {
            return Err(usage!("--labels are those of --features"));
        }
        match &args.given {
            None => Self::without_model(args),
            Some(given) => Self::with_model(args, given),
        }
    }

    fn without_model(args: &AdaptArgs) -> Result<Self> {
        let (support, out) = (args.support.clone(), args.out.clone());
        // Clap asks for no MODEL where it conflicts with what is there.
        if let Some(option) = first_given!(args, add, remove, weights) {
            let begins = if args.features.is_some() { "--features" } else { "--backbone" };
            return Err(usage!("{option} is for a model, and {begins} begins a new one"));
        }
        let Some(features) = args.features.clone() else {
            let network = args.backbone.as_deref().map(NetworkSpec::named);
            let (Some(network), Some(support), Some(out)) = (network, support, out) else {
                return Err(usage!(
                    "--backbone, --support and --out are needed, or --features and --out"
                ));
            };
            return Ok(Self::New { network, support, out });
        };
        if let Some(option) = first_given!(args, backbone, support) {
            return Err(usage!("{option} is for pictures, and --features has no pictures"));
        }
        let out = out.ok_or_else(|| usage!("--out is needed with --features"))?;
        Ok(Self::NewOfFeatures { features, out })
    }

    fn with_model(args: &AdaptArgs, given: &Path) -> Result<Self> {
        let (support, out) = (args.support.clone(), args.out.clone());
        let name = given.display();
        if !given.exists() {
            return Err(failed!("there is no {name}, neither a model nor a run"));
        }
        if run::is_run(given) {
            if let Some(option) = first_given!(args, add, remove, weights, features) {
                return Err(usage!("{option} is for a model, and {name} is a run"));
            }
            let needed = |option| usage!("{name} is a run: {option} is needed with it");
            let support = support.ok_or_else(|| needed("--support"))?;
            let out = out.ok_or_else(|| needed("--out"))?;
            let network = NetworkSpec::Run(given.to_owned());
            return Ok(Self::New { network, support, out });
        }
        if let Some(option) = first_given!(args, support, method) {
            return Err(usage!("{option} is for a new model, and {name} is no run to make one on"));
        }
        if args.add.is_empty() && args.remove.is_empty() && args.features.is_none() {
            return Err(usage!("--add, --features or --remove says what to change"));
        }
        let (model, out) = (given.to_owned(), out.unwrap_or_else(|| given.to_owned()));
        Ok(Self::Change { model, out })
    }
}

impl Work for Adapting<'_> {
    type Output = Result;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Result {
        let Self { args, to_do } = self;
        let (ToDo::New { out, .. } | ToDo::NewOfFeatures { out, .. } | ToDo::Change { out, .. }) =
            &to_do;
        let _lock = lock(out, "fewshot adapt")?;
        let (model, out) = match to_do {
            ToDo::Change { model, out } => (changed::<B>(args, &model, hardware.device())?, out),
            ToDo::NewOfFeatures { features, out } => {
                let features = Features::open_with_labels(features, args.labels.as_deref())?;
                let source = EmbeddingSource::<B>::OtherProgram(hardware.device().clone());
                let method = args.method.as_deref().unwrap_or(METHOD);
                let model = AdaptedModel::adapt_to_features(source, method, &features)?;
                tell_equal(rows_by_class(&features), &BTreeMap::new(), &model, "rows");
                (model, out)
            }
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
    tell_equal(files_by_class(additions), &before, &model, "pictures");
    if let Some(file) = &args.features {
        let features = Features::open_with_labels(file, args.labels.as_deref())?;
        let before = examples_by_class(&model);
        model = model.with_features(&features)?;
        tell_equal(rows_by_class(&features), &before, &model, "rows");
    }
    for class in &args.remove {
        model = model.without_class(class)?;
    }
    Ok(model)
}

/// Tells how many additions to each class were equal to others of it, or to examples that it had `before`.
fn tell_equal<B: Backend>(
    additions: BTreeMap<String, usize>,
    before: &BTreeMap<String, usize>,
    model: &AdaptedModel<B>,
    what: &str,
) {
    let after = examples_by_class(model);
    for (class, count) in additions {
        let added = after.get(&class).unwrap_or(&0) - before.get(&class).unwrap_or(&0);
        let there = count - added;
        if there > 0 {
            print_status(format_args!("{there} of {count} {what} of {class} are there already"));
        }
    }
}

/// Number of examples of each class, by its plain name.
fn examples_by_class<B: Backend>(model: &AdaptedModel<B>) -> BTreeMap<String, usize> {
    rows_by_class(model.examples())
}

/// Number of rows of each class, by its plain name.
fn rows_by_class(features: &Features) -> BTreeMap<String, usize> {
    let mut rows = BTreeMap::new();
    for class in 0..features.classes() {
        let name = features.class_name(class);
        let name = class_name(name).unwrap_or_else(|_| name.to_owned());
        *rows.entry(name).or_default() += features.examples(class);
    }
    rows
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
            "backbone": model.backbone().map(|network| network.origin().to_string()),
            "method": model.method(),
            "classes": names,
            "pictures": examples.rows(),
            "length": examples.length(),
            "shots": shots,
            "left_out": validation.map(|validation| validation.examples()),
            "left_out_folds": validation.and_then(|validation| validation.folds),
            "left_out_accuracy": validation.map(|validation| rounded(validation.accuracy(), 2)),
            "mistakes": mistakes.collect::<Vec<_>>(),
        }));
    }
    let (rows, classes) = (examples.rows(), examples.classes());
    let method = model.method();
    let (what, one, source) = match model.backbone() {
        Some(network) => ("pictures", "picture", network.origin().to_string()),
        None => ("rows", "row", format!("embeddings of {} values", examples.length())),
    };
    print(format_args!("{classes} classes from {rows} {what} by {method} on {source}"))?;
    match validation {
        Some(validation) => print(format_args!(
            "{:.1} % right of {} {what}, each left out once",
            validation.accuracy(),
            validation.examples()
        ))?,
        None => print(format_args!("no class has a second {one} to leave out"))?,
    }
    for ([own, taken], count) in mistakes.iter().take(MISTAKES) {
        print(format_args!("  {count} of {} taken for {}", names[*own], names[*taken]))?;
    }
    print(format_args!("{}", out.display()))
}
