use std::path::Path;

use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot::adapted::AdaptedModel;
use fewshot::data::pictures_in;
use serde_json::json;

use super::args::AdaptArgs;
use super::plots;
use crate::cli::backend::{self, Job, Place};
use crate::cli::error::{CliError, usage};
use crate::cli::output::print;
use crate::cli::report::rounded;

/// Confusions that are printed, at most.
const MISTAKES: usize = 5;

/// `fewshot adapt`.
pub(crate) fn adapt(args: AdaptArgs) -> Result<(), CliError> {
    backend::prepare(args.device.threads)?;
    if args.model.is_some() && args.add.is_empty() && args.remove.is_empty() {
        return Err(usage!("--add or --remove says what to change"));
    }
    let device = args.device.clone();
    backend::dispatch(&device, Adapting(args))
}

struct Adapting(AdaptArgs);

impl Job for Adapting {
    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result<(), CliError> {
        let Self(args) = self;
        let model = match &args.model {
            Some(path) => changed::<B::InnerBackend>(&args, path, &place.device)?,
            None => new::<B::InnerBackend>(&args, &place.device)?,
        };
        let out = args.out.as_ref().or(args.model.as_ref());
        let out = out.ok_or_else(|| usage!("--out is needed"))?;
        model.write(out)?;
        draw(&model, out)?;
        report(&model, out, args.json)
    }
}

fn new<B: Backend>(args: &AdaptArgs, device: &B::Device) -> Result<AdaptedModel<B>, CliError> {
    let needed = |what: &str| usage!("{what} is needed");
    let backbone = args.backbone.as_deref().ok_or_else(|| needed("--backbone"))?;
    let root = args.support.as_ref().ok_or_else(|| needed("--support"))?;
    let backbone = super::backbone(backbone, device)?;
    let examples = backbone.embed_folder(root)?;
    Ok(AdaptedModel::adapt(backbone, &args.method, examples)?)
}

fn changed<B: Backend>(
    args: &AdaptArgs,
    path: &Path,
    device: &B::Device,
) -> Result<AdaptedModel<B>, CliError> {
    let mut model = AdaptedModel::open_with_weights(path, args.weights.as_deref(), device)?;
    for folder in &args.add {
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
        let class = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        model = model.with_class(&class, &pictures_in(&folder)?)?;
    }
    for class in &args.remove {
        model = model.without_class(class)?;
    }
    Ok(model)
}

fn draw<B: Backend>(model: &AdaptedModel<B>, out: &Path) -> Result<(), CliError> {
    if let Some(left_out) = model.left_out() {
        let (names, counts) = (&model.class_names(), &left_out.confusion);
        plots::Confusion { names, counts }.write(&out.with_extension("confusion.svg"))?;
    }
    plots::write_map(&out.with_extension("map.svg"), model.examples())
}

fn report<B: Backend>(model: &AdaptedModel<B>, out: &Path, json: bool) -> Result<(), CliError> {
    let (names, examples) = (model.class_names(), model.examples());
    let left_out = model.left_out();
    let mistakes = left_out.map(|left_out| left_out.mistakes()).unwrap_or_default();
    if json {
        let mistakes = mistakes.iter().map(|([own, taken], count)| {
            json!({"class": names[*own], "taken_for": names[*taken], "pictures": count})
        });
        return print(json!({
            "model": out.display().to_string(),
            "backbone": model.backbone().id().name,
            "method": model.method(),
            "classes": names,
            "pictures": examples.rows(),
            "left_out": left_out.map(|found| found.examples()),
            "left_out_accuracy": left_out.map(|found| rounded(found.accuracy(), 2)),
            "mistakes": mistakes.collect::<Vec<_>>(),
        }));
    }
    let (rows, classes) = (examples.rows(), examples.classes());
    let (method, backbone) = (model.method(), &model.backbone().id().name);
    print(format_args!("{classes} classes from {rows} pictures by {method} on {backbone}"))?;
    match left_out {
        Some(found) => print(format_args!(
            "{:.1} % right of {} pictures, each left out once",
            found.accuracy(),
            found.examples()
        ))?,
        None => print("no class has a second picture to leave out")?,
    }
    for ([own, taken], count) in mistakes.iter().take(MISTAKES) {
        print(format_args!("  {count} of {} taken for {}", names[*own], names[*taken]))?;
    }
    print(format_args!("{}", out.display()))
}
