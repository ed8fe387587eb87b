use std::path::{Path, PathBuf};

use burn::tensor::backend::AutodiffBackend;
use fewshot::data::{Features, picture_files};

use super::{backbone, pictures};
use crate::cli::backend::{Job, Place};
use crate::cli::error::CliError;
use crate::cli::output::print;

/// `fewshot embed --backbone`.
pub(crate) struct PictureEmbedding {
    /// `NAME:FILE`.
    pub(crate) backbone: String,
    /// Folder with a folder of pictures for each class.
    pub(crate) pictures: PathBuf,
    /// File to write.
    pub(crate) to: PathBuf,
}

impl Job for PictureEmbedding {
    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result<(), CliError> {
        let Self { backbone: named, pictures: root, to } = self;
        let files = picture_files(&root)?;
        let backbone = backbone::<B::InnerBackend>(&named, &place.device)?;
        let mut length = 0;
        let mut classes = Vec::with_capacity(files.len());
        for (class, files) in files {
            let mut rows = Vec::new();
            for files in files.chunks(super::BATCH) {
                let (batch, features) = backbone.embed(&pictures(files)?);
                rows.extend(batch);
                length = features;
            }
            classes.push((class, rows));
        }
        let id = backbone.id();
        let features = Features::new(length, classes)?
            .with_metadata("created_by", concat!("fewshot ", env!("CARGO_PKG_VERSION")))
            .with_metadata("backbone", &id.name)
            .with_metadata("weights_sha256", &id.sha256)
            .with_metadata("pictures", absolute(&root).display().to_string());
        features.write(&to)?;
        let (rows, classes, to) = (features.rows(), features.classes(), to.display());
        print(format_args!("{rows} pictures of {classes} classes as rows of {length} in {to}"))
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
