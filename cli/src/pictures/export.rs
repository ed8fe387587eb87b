//! `fewshot export`: models and networks for other programs.

use fewshot::adapted::{AdaptedModel, PretrainedBackbone};
use fewshot::export::{ExportError, PixelType, model_to_onnx, network_to_onnx};
use fewshot::files;
use fewshot::models::{Encoder, Precision};

use super::args::{ExportArgs, Pixels};
use super::{Embedder, run};
use crate::prelude::*;

pub(crate) fn export(args: &ExportArgs) -> Result {
    let (given, to) = (args.given.display(), args.to.display());
    if args.to.extension().is_none_or(|ending| ending != "onnx") {
        return Err(usage!("--to writes .onnx, not {to}"));
    }
    if args.to.is_dir() {
        return Err(usage!("--to is a file to write, and {to} is a folder"));
    }
    if !args.given.exists() {
        return Err(failed!("there is no {given}, neither a model nor a run"));
    }
    if args.weights.is_some() && run::is_run(&args.given) {
        return Err(usage!("--weights is for a model, and {given} is a run"));
    }
    backend::start(&args.device, args)
}

/// A file to write, and what it is of.
struct Export<B: Backend> {
    bytes: Vec<u8>,
    network: PretrainedBackbone<B>,
    /// Names of the classes; `None` of a network alone.
    classes: Option<Vec<String>>,
    knows_unknown: bool,
}

impl Work for &ExportArgs {
    type Output = Result;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Result {
        let pixels = match self.input {
            Pixels::U8 => PixelType::U8,
            Pixels::F32 => PixelType::F32,
        };
        let export = match run::is_run(&self.given) {
            true => network_export(run_network::<B>(&self.given, hardware.device())?, pixels)?,
            false => self.model_export::<B>(pixels, hardware.device())?,
        };
        let to = &self.to;
        files::replace(to, &export.bytes).map_err(|error| failed!("{}: {error}", to.display()))?;
        self.report(&export)
    }
}

impl ExportArgs {
    fn model_export<B: Backend>(&self, pixels: PixelType, device: &B::Device) -> Result<Export<B>> {
        let weights = self.weights.as_deref();
        let model = AdaptedModel::<B>::open_with_weights(&self.given, weights, device)?;
        let network = model.backbone().cloned().ok_or(ExportError::NoNetwork)?;
        if self.embeddings {
            return network_export(network, pixels);
        }
        Ok(Export {
            bytes: model_to_onnx(&model, pixels)?,
            network,
            classes: Some(model.class_names()),
            knows_unknown: model.knows_unknown(),
        })
    }

    fn report<B: Backend>(&self, export: &Export<B>) -> Result {
        let (network, to) = (&export.network, self.to.display());
        let (image, features) = (network.origin().preparation().image(), network.features());
        let precision = Encoder::<B>::precision(network.encoder());
        if precision != Precision::F32 {
            print_status(format_args!(
                "the network computes products in {}, the file in f32: numbers differ by the rounding",
                precision.dtype()
            ));
        }
        let outputs = match (&export.classes, export.knows_unknown) {
            (None, _) => vec!["embeddings"],
            (Some(_), true) => vec!["probabilities", "known"],
            (Some(_), false) => vec!["probabilities"],
        };
        if self.json {
            return print(json!({
                "file": to.to_string(),
                "backbone": network.origin().to_string(),
                "pictures": [image.channels, image.height, image.width],
                "input": lower(self.input),
                "outputs": outputs,
                "classes": export.classes,
                "features": features,
                "bytes": export.bytes.len(),
            }));
        }
        let what = match &export.classes {
            Some(classes) => format!("{} of {} classes", outputs.join(" and "), classes.len()),
            None => format!("embeddings of {features} values"),
        };
        print(format_args!("{to}: pictures of {image} to {what}, by {}", network.origin()))
    }
}

fn network_export<B: Backend>(
    network: PretrainedBackbone<B>,
    pixels: PixelType,
) -> Result<Export<B>> {
    let bytes = network_to_onnx(&network, pixels)?;
    Ok(Export { bytes, network, classes: None, knows_unknown: false })
}

/// The network of a run, which embeds a picture by itself.
fn run_network<B: Backend>(given: &Path, device: &B::Device) -> Result<PretrainedBackbone<B>> {
    let Embedder { backbone, without_averages, .. } = run::network::<Autodiff<B>>(given, device)?;
    match without_averages {
        None => Ok(backbone),
        Some(method) => Err(usage!(
            "{} was trained by {method}, which gathers no running averages of batch-norm: `fewshot adapt` takes those of \
             pictures, and the model can be exported",
            given.display()
        )),
    }
}
