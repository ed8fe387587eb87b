use fewshot::adapted::BackboneOrigin;

use super::backbone;
use crate::cli::prelude::*;

/// `fewshot embed --backbone`.
pub(crate) struct PictureEmbedding {
    /// `NAME:FILE`, or `NAME`.
    pub(crate) backbone: String,
    /// Folder with a folder of pictures for each class.
    pub(crate) pictures: PathBuf,
    /// File to write.
    pub(crate) to: PathBuf,
}

impl Job for PictureEmbedding {
    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result {
        let Self { backbone: named, pictures: root, to } = self;
        let backbone = backbone::<B::InnerBackend>(&named, &place.device)?;
        let mut features = backbone
            .embed_folder(&root)?
            .with_metadata("created_by", concat!("fewshot ", env!("CARGO_PKG_VERSION")))
            .with_metadata("pictures", root.display().to_string());
        if let BackboneOrigin::Published(id) = backbone.origin() {
            features = features
                .with_metadata("backbone", &id.name)
                .with_metadata("weights_sha256", &id.sha256);
        }
        features.write(&to)?;
        let (rows, classes, length) = (features.rows(), features.classes(), features.length());
        let to = to.display();
        print(format_args!("{rows} pictures of {classes} classes as rows of {length} in {to}"))
    }
}
