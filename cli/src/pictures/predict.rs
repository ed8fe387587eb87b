use fewshot::adapted::{AdaptedModel, Prediction};
use fewshot::data::{DataError, Picture, pictures_in};
use rayon::prelude::*;

use super::args::PredictArgs;
use super::{describe, is_rejected};
use crate::output::print_error;
use crate::prelude::*;

/// Pictures that are in memory at once.
const BATCH: usize = 32;

pub(crate) fn predict(args: &PredictArgs) -> Result {
    backend::start(&args.device, args)
}

impl Work for &PredictArgs {
    type Output = Result;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Result {
        let args = self;
        let mut files = Vec::new();
        for path in &args.pictures {
            match path.is_dir() {
                true => files.extend(pictures_in(path)?),
                false => files.push(path.clone()),
            }
        }
        let (weights, device) = (args.weights.as_deref(), hardware.device());
        let model = AdaptedModel::<B>::open_with_weights(&args.model, weights, device)?;
        if args.unknown.is_some() && !model.knows_unknown() {
            let model = args.model.display();
            return Err(usage!(
                "--unknown is for models with two pictures of a class, {model} has one of each"
            ));
        }
        let (mut unread, mut skipped) = (0, 0);
        for files in files.chunks(BATCH) {
            let open = |file: &PathBuf| Picture::open_within(file, args.read.limits());
            let read: Vec<_> = files.par_iter().map(open).collect();
            let (mut whole, mut pictures) = (Vec::new(), Vec::new());
            for (file, read) in files.iter().zip(read) {
                match read {
                    Ok(picture) => {
                        whole.push(file);
                        pictures.push(picture);
                    }
                    Err(error @ DataError::Image { .. }) if args.read.skip_broken => {
                        skipped += 1;
                        print_status(format_args!("left out: {error}"));
                    }
                    Err(error) => {
                        unread += 1;
                        print_error(error);
                    }
                }
            }
            let (rows, length) = model.backbone().embed(&pictures);
            for (file, row) in whole.into_iter().zip(rows.chunks_exact(length.max(1))) {
                match model.classify(row) {
                    Ok(prediction) => print(line(file, &prediction[0], args))?,
                    Err(_) => {
                        let file = file.display();
                        print_error(format_args!("{file}: its embedding is not finite"));
                        unread += 1;
                    }
                }
            }
        }
        if skipped > 0 {
            print_status(format_args!("broken pictures left out: {skipped}"));
        }
        match unread {
            0 => Ok(()),
            _ => Err(failed!("{unread} of {} pictures not read", files.len())),
        }
    }
}

fn line(file: &Path, prediction: &Prediction, args: &PredictArgs) -> String {
    if args.json {
        let mut line = describe(prediction, args.top, args.unknown);
        line["file"] = file.display().to_string().into();
        return line.to_string();
    }
    let top = prediction.classes.iter().take(args.top);
    let classes: Vec<_> = top.map(|(class, p)| format!("{class} {p:.3}")).collect();
    let classes = match is_rejected(prediction, args.unknown) {
        true => "unknown".to_owned(),
        false => classes.join("  "),
    };
    format!("{}: {classes}", file.display())
}
