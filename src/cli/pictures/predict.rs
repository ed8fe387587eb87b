use fewshot::adapted::{AdaptedModel, Prediction};
use fewshot::data::{Picture, pictures_in};
use rayon::prelude::*;

use super::args::PredictArgs;
use super::{described, rejected};
use crate::cli::output::print_error;
use crate::cli::prelude::*;

/// Pictures that are in memory at once.
const BATCH: usize = 32;

pub(crate) fn predict(args: PredictArgs) -> Result {
    backend::prepare(args.device.threads)?;
    let device = args.device.clone();
    backend::dispatch(&device, Predicting(args))
}

struct Predicting(PredictArgs);

impl Job for Predicting {
    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result {
        let Self(args) = self;
        let mut files = Vec::new();
        for path in &args.pictures {
            match path.is_dir() {
                true => files.extend(pictures_in(path)?),
                false => files.push(path.clone()),
            }
        }
        let weights = args.weights.as_deref();
        let model = AdaptedModel::<B::InnerBackend>::open_with_weights(
            &args.model,
            weights,
            &place.device,
        )?;
        if args.unknown.is_some() && !model.knows_unknown() {
            let model = args.model.display();
            return Err(usage!(
                "--unknown is for models with two pictures of a class, {model} has one of each"
            ));
        }
        let mut unread = 0;
        for files in files.chunks(BATCH) {
            let read: Vec<_> = files.par_iter().map(Picture::open).collect();
            let mut pictures = Vec::with_capacity(files.len());
            let mut whole = Vec::with_capacity(files.len());
            for (file, read) in files.iter().zip(read) {
                match read {
                    Ok(picture) => {
                        pictures.push(picture);
                        whole.push(file);
                    }
                    Err(error) => print_error(error),
                }
            }
            unread += files.len() - whole.len();
            for (file, prediction) in whole.into_iter().zip(model.predict(&pictures)) {
                print(line(file, &prediction, &args))?;
            }
        }
        match unread {
            0 => Ok(()),
            _ => Err(failed!("{unread} of {} pictures not read", files.len())),
        }
    }
}

fn line(file: &Path, found: &Prediction, args: &PredictArgs) -> String {
    if args.json {
        let mut line = described(found, args.top, args.unknown);
        line["file"] = file.display().to_string().into();
        return line.to_string();
    }
    let top = found.classes.iter().take(args.top);
    let classes: Vec<_> = top.map(|(class, p)| format!("{class} {p:.3}")).collect();
    let classes = match rejected(found, args.unknown) {
        true => "unknown".to_owned(),
        false => classes.join("  "),
    };
    format!("{}: {classes}", file.display())
}
