use fewshot::adapted::{AdaptedModel, AdaptedModelError, Prediction};
use fewshot::data::{DataError, FeatureRows, Picture, pictures_in};
use rayon::prelude::*;

use super::args::PredictArgs;
use super::{describe, is_rejected};
use crate::output::print_error;
use crate::prelude::*;

/// Pictures that are in memory at once, and rows that are classified at once.
const BATCH: usize = 32;

pub(crate) fn predict(args: &PredictArgs) -> Result {
    backend::start(&args.device, args)
}

impl Work for &PredictArgs {
    type Output = Result;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Result {
        let (weights, device) = (self.weights.as_deref(), hardware.device());
        match &self.features {
            Some(file) => {
                let rows = FeatureRows::open(file)?;
                let model = AdaptedModel::<B>::open_with_weights(&self.model, weights, device)?;
                self.refuse_unknown(&model)?;
                self.predict_rows(&model, file, &rows)
            }
            None => {
                let files = self.files()?;
                let model = AdaptedModel::<B>::open_with_weights(&self.model, weights, device)?;
                self.refuse_unknown(&model)?;
                self.predict_pictures(&model, &files)
            }
        }
    }
}

impl PredictArgs {
    /// The pictures that are given, and those of folders.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for path in &self.pictures {
            match path.is_dir() {
                true => files.extend(pictures_in(path)?),
                false => files.push(path.clone()),
            }
        }
        Ok(files)
    }

    fn refuse_unknown<B: Backend>(&self, model: &AdaptedModel<B>) -> Result {
        if self.unknown.is_none() || model.knows_unknown() {
            return Ok(());
        }
        let (file, what) = (self.model.display(), model.backbone().map_or("rows", |_| "pictures"));
        Err(usage!("--unknown is for models with two {what} of a class, {file} has one of each"))
    }

    fn predict_pictures<B: Backend>(&self, model: &AdaptedModel<B>, files: &[PathBuf]) -> Result {
        let backbone = model.backbone().ok_or(AdaptedModelError::NoNetwork)?;
        let (mut unread, mut skipped) = (0, 0);
        for files in files.chunks(BATCH) {
            let open = |file: &PathBuf| Picture::open_within(file, self.read.limits());
            let read: Vec<_> = files.par_iter().map(open).collect();
            let (mut whole, mut pictures) = (Vec::new(), Vec::new());
            for (file, read) in files.iter().zip(read) {
                match read {
                    Ok(picture) => {
                        whole.push(file);
                        pictures.push(picture);
                    }
                    Err(error @ DataError::Image { .. }) if self.read.skip_broken => {
                        skipped += 1;
                        print_status(format_args!("left out: {error}"));
                    }
                    Err(error) => {
                        unread += 1;
                        print_error(error);
                    }
                }
            }
            let (rows, length) = backbone.embed(&pictures);
            for (file, row) in whole.into_iter().zip(rows.chunks_exact(length.max(1))) {
                match model.classify(row) {
                    Ok(prediction) => print(self.line(file, None, &prediction[0]))?,
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

    fn predict_rows<B: Backend>(
        &self,
        model: &AdaptedModel<B>,
        file: &Path,
        rows: &FeatureRows,
    ) -> Result {
        let (expected, actual) = (model.examples().length(), rows.length());
        if actual != expected {
            let error = AdaptedModelError::OtherLength { expected, actual };
            return Err(failed!("{}: {error}", file.display()));
        }
        for (batch, values) in rows.values().chunks(BATCH * actual).enumerate() {
            let first = batch * BATCH;
            let predictions = model.classify(values).map_err(|error| {
                let last = first + values.len() / actual - 1;
                failed!("{}: rows {first} to {last}: {error}", file.display())
            })?;
            for (row, prediction) in (first..).zip(&predictions) {
                print(self.line(file, Some(row), prediction))?;
            }
        }
        Ok(())
    }

    /// The line of a picture, or of this row of a file.
    fn line(&self, file: &Path, row: Option<usize>, prediction: &Prediction) -> String {
        if self.json {
            return self.json_line(file, row, prediction);
        }
        let top = prediction.classes.iter().take(self.top);
        let classes: Vec<_> = top.map(|(class, p)| format!("{class} {p:.3}")).collect();
        let classes = match is_rejected(prediction, self.unknown) {
            true => "unknown".to_owned(),
            false => classes.join("  "),
        };
        let file = file.display();
        match row {
            None => format!("{file}: {classes}"),
            Some(row) => format!("{file}:{row}: {classes}"),
        }
    }

    fn json_line(&self, file: &Path, row: Option<usize>, prediction: &Prediction) -> String {
        let mut line = describe(prediction, self.top, self.unknown);
        line["file"] = file.display().to_string().into();
        if let Some(row) = row {
            line["row"] = row.into();
        }
        line.to_string()
    }
}
