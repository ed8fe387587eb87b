//! Examples with the network that embedded them, if it is known: all there is of a model until it has two classes.

use std::sync::Arc;

use burn::tensor::backend::Backend;

use super::class::{Class, add_examples, small};
use super::examples::{class_names, classes};
use super::model::AdaptedModel;
use super::{AdaptedModelError, EmbeddingSource, PretrainedBackbone, Result};
use crate::data::{Features, Picture};

/// A small picture of an example: the content of a JPEG file with [`THUMBNAIL_SIDE`] pixels along a side.
pub type Thumbnail = Arc<[u8]>;

/// Pixels along a side of a [`Thumbnail`].
pub const THUMBNAIL_SIDE: usize = 96;

/// The examples of an [`AdaptedModel`](super::AdaptedModel), with the source of their embeddings. While there is a
/// single class, it is all there is of the model.
///
/// Its file is that of an [`AdaptedModel`](super::AdaptedModel), which opens it when it has two classes.
#[derive(Clone)]
pub struct UnfittedModel<B: Backend> {
    /// The network, or the absence of one.
    pub source: EmbeddingSource<B>,
    /// Name of the method that classes are to be learned by.
    pub method: String,
    /// Embeddings of the examples of every class.
    pub examples: Features,
    /// A small picture of each row of these, where one is kept.
    pub thumbnails: Vec<Option<Thumbnail>>,
    /// The [digest](super::digest) of the file of each row, where it is known.
    pub digests: Vec<Option<String>>,
}

/// A picture of a class with its embedding.
#[derive(Clone, Debug)]
pub struct Example {
    /// The picture, of which a small one may be kept.
    pub picture: Picture,
    /// The [digest](super::digest) of its file.
    pub digest: String,
    /// Its embedding by the model's network, whichever device [made](PretrainedBackbone::embed) it.
    pub embedding: Vec<f32>,
}

impl<B: Backend> UnfittedModel<B> {
    /// Examples of a first class, with small pictures. `method` is the one that classes are to be learned by.
    ///
    /// # Errors
    /// The reasons are those of [`with_examples`](Self::with_examples).
    pub fn from_examples(
        network: PretrainedBackbone<B>,
        method: &str,
        class: &str,
        examples: Vec<Example>,
    ) -> Result<Self> {
        let mut classes = Vec::new();
        let length = network.features();
        add_examples(&mut classes, class, examples, length, small)?;
        Self::from_classes(network.into(), method, length, classes)
    }

    /// With further examples of a class, which may be new. Pictures whose digest an example of the class has add nothing. Small
    /// pictures are kept if the model has any.
    ///
    /// # Errors
    /// If the model has no network, where an embedding is not finite or has another length than the network's, where a new class has
    /// no example, and where a class has no [plain name](crate::data::class_name).
    pub fn with_examples(self, class: &str, examples: Vec<Example>) -> Result<Self> {
        let has_thumbnails = self.thumbnails.iter().any(Option::is_some);
        let thumbnail = |picture: &Picture| if has_thumbnails { small(picture) } else { None };
        let (mut classes, length) = (self.all(), self.examples.length());
        self.source.picture_network()?;
        add_examples(&mut classes, class, examples, length, thumbnail)?;
        Self::from_classes(self.source, &self.method, length, classes)
    }

    /// Without the class of this name; other classes keep their embeddings.
    ///
    /// # Errors
    /// If there is none of this name, and if it is the only one.
    pub fn without_class(self, name: &str) -> Result<Self> {
        let mut classes = self.all();
        let Some(place) = classes.iter().position(|class| class.name == name) else {
            let (name, known) = (name.to_owned(), class_names(&self.examples));
            return Err(AdaptedModelError::UnknownClass { name, known });
        };
        classes.remove(place);
        Self::from_classes(self.source, &self.method, self.examples.length(), classes)
    }

    /// Without the example in this row of [`examples`](Self::examples); without its class, if it is the only one of it.
    ///
    /// # Errors
    /// If it is the only example.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn without_example(self, row: usize) -> Result<Self> {
        let mut classes = self.all();
        let place = (0..classes.len()).find(|&class| self.examples.rows_of(class).contains(&row));
        let place = place.unwrap_or_else(|| panic!("row {row} of {}", self.examples.rows()));
        classes[place].remove(row - self.examples.rows_of(place).start, self.examples.length());
        classes.retain(|class| !class.digests.is_empty());
        Self::from_classes(self.source, &self.method, self.examples.length(), classes)
    }

    /// The model that is learned from these examples.
    ///
    /// # Errors
    /// The reasons of [`AdaptedModel::adapt`].
    pub fn fit(self) -> Result<AdaptedModel<B>> {
        let Self { source, method, examples, thumbnails, digests } = self;
        let model = AdaptedModel::adapt(source, &method, examples)?;
        Ok(model.with_thumbnails(thumbnails).with_digests(digests))
    }

    pub(super) fn all(&self) -> Vec<Class> {
        let Self { examples, thumbnails, digests, .. } = self;
        let each = classes(examples).into_iter().enumerate();
        each.map(|(class, (name, rows))| Class {
            name,
            rows,
            thumbnails: thumbnails[examples.rows_of(class)].to_vec(),
            digests: digests[examples.rows_of(class)].to_vec(),
        })
        .collect()
    }

    pub(super) fn from_classes(
        source: EmbeddingSource<B>,
        method: &str,
        length: usize,
        mut classes: Vec<Class>,
    ) -> Result<Self> {
        // The order of the rows.
        classes.sort_by(|one, other| one.name.cmp(&other.name));
        let (mut thumbnails, mut digests) = (Vec::new(), Vec::new());
        let rows = classes.into_iter().map(|mut class| {
            thumbnails.append(&mut class.thumbnails);
            digests.append(&mut class.digests);
            (class.name, class.rows)
        });
        let (examples, method) = (Features::new(length, rows)?, method.to_owned());
        Ok(Self { source, method, examples, thumbnails, digests })
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::task::{Context, Poll, Waker};

    use burn::backend::Flex;
    use fewshot_models::{Conv4Config, EfficientNetLiteConfig, Pretrained};

    use super::*;
    use crate::adapted::{TrainedNetwork, digest};

    fn network() -> PretrainedBackbone<Flex> {
        let device = Default::default();
        Flex::seed(&device, 1);
        let config = Conv4Config::new([3, 16, 16]).with_channels(32);
        let network = config.init::<Flex>(&device);
        PretrainedBackbone::trained(network, TrainedNetwork::new(config), &device)
    }

    /// The file of a picture of one colour and its content.
    fn photo(folder: &Path, colour: [u8; 3]) -> (PathBuf, Vec<u8>) {
        let file = folder.join(format!("{colour:?}.png"));
        image::RgbImage::from_pixel(4, 3, image::Rgb(colour)).save(&file).unwrap();
        let content = fs::read(&file).unwrap();
        (file, content)
    }

    fn example((file, content): &(PathBuf, Vec<u8>)) -> Example {
        let picture = Picture::decode(content, file).unwrap();
        let (embedding, _) = network().embed(std::slice::from_ref(&picture));
        Example { picture, digest: digest(content), embedding }
    }

    /// A file by its content, whose metadata has no order.
    fn features(content: &[u8]) -> Features {
        Features::from_safetensors(content, Path::new("m")).unwrap()
    }

    #[test]
    fn a_model_of_pictures_in_memory_is_that_of_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let photos = [[250, 0, 0], [200, 9, 9], [0, 0, 250]];
        let photos = photos.map(|colour| photo(folder.path(), colour));
        let files = |of: &[(PathBuf, Vec<u8>)]| -> Vec<PathBuf> {
            of.iter().map(|(file, _)| file.clone()).collect()
        };
        let classes =
            [("red".to_owned(), files(&photos[..2])), ("blue".into(), files(&photos[2..]))];
        let network = network();
        let of_files =
            AdaptedModel::adapt_to_pictures(network.clone(), "simpleshot", &classes).unwrap();
        let expected = features(&of_files.encode().unwrap());

        let [one, two, blue] = photos.each_ref().map(example);
        let first = vec![one.clone(), one.clone()];
        let model = UnfittedModel::from_examples(network, "simpleshot", "red", first).unwrap();
        assert_eq!(model.examples.rows(), 1);
        let model = model.with_examples("blue", vec![blue]).unwrap();
        let model = model.with_examples("red", vec![one, two]).unwrap().fit().unwrap();
        let content = model.encode().unwrap();
        assert_eq!(features(&content), expected);
        let file = folder.path().join("m.fewshot");
        model.write(&file).unwrap();
        assert_eq!(features(&fs::read(&file).unwrap()), expected);
        let read = AdaptedModel::<Flex>::decode(&content, "m", None, &Default::default()).unwrap();
        assert_eq!(features(&read.encode().unwrap()), expected);
    }

    #[test]
    fn a_class_goes_with_its_last_example() {
        let folder = tempfile::tempdir().unwrap();
        let photos = [[250, 0, 0], [0, 250, 0], [0, 0, 250]];
        let [red, green, blue] = photos.map(|colour| vec![example(&photo(folder.path(), colour))]);
        let model = UnfittedModel::from_examples(network(), "simpleshot", "warm", red).unwrap();
        let model = model.with_examples("cold", green).unwrap();
        let model = model.with_examples("cold", blue.clone()).unwrap();
        let fewer = model.clone().without_example(0).unwrap();
        assert_eq!(class_names(&fewer.examples), ["cold", "warm"]);
        assert_eq!(fewer.digests, [Some(blue[0].digest.clone()), model.digests[2].clone()]);
        assert_eq!(fewer.examples.row(0), model.examples.row(1));
        assert_eq!(fewer.thumbnails[0], model.thumbnails[1]);
        let alone = fewer.without_example(0).unwrap();
        assert_eq!(class_names(&alone.examples), ["warm"]);
        assert!(alone.clone().without_example(0).is_err());
        assert!(alone.clone().without_class("warm").is_err());
        let cut = Example { embedding: vec![0.0; 3], ..blue[0].clone() };
        assert!(matches!(
            alone.clone().with_examples("cold", vec![cut]),
            Err(AdaptedModelError::OtherLength { actual: 3, .. })
        ));
        assert!(matches!(
            alone.without_class("cold"),
            Err(AdaptedModelError::UnknownClass { name, .. }) if name == "cold"
        ));
    }

    #[test]
    fn a_model_in_memory_takes_its_own_weights_alone() {
        let device = Default::default();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lite0.safetensors");
        let drawn = || {
            EfficientNetLiteConfig::new().init::<Flex>(&device).save_weights(&file).unwrap();
            fs::read(&file).unwrap()
        };
        let name = "efficientnet-lite0";
        let [other, own] = [drawn(), drawn()].map(|content| {
            PretrainedBackbone::<Flex>::decode(name, content, "lite0.safetensors", &device).unwrap()
        });
        let loaded = PretrainedBackbone::<Flex>::load(name, &file, &device).unwrap();
        let picture = Picture::from_rgb(1, 1, vec![0, 99, 200]).unwrap();
        let picture = std::slice::from_ref(&picture);
        assert_eq!(own.embed(picture), loaded.embed(picture));
        let images = own.origin().preparation().apply(&picture[0]);
        let awaited = std::pin::pin!(own.embed_prepared_async(&images));
        let Poll::Ready(rows) = awaited.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("a host has its answer at once");
        };
        assert_eq!(rows.unwrap(), own.embed(picture).0);
        let rows = |at: usize| (0..1280).map(|place| f32::from(u8::from(place == at))).collect();
        let examples = Features::new(1280, [("a".into(), rows(0)), ("b".into(), rows(1))]).unwrap();
        let model = AdaptedModel::adapt(loaded, "simpleshot", examples).unwrap().encode().unwrap();
        let trained = network();
        let read = |network| AdaptedModel::<Flex>::decode(&model, "m", network, &device);
        // The place of the weights stays the one that the model notes.
        let again = read(Some(&own)).unwrap().encode().unwrap();
        assert_eq!(features(&again), features(&model));
        assert!(matches!(read(None), Err(AdaptedModelError::WeightsNeeded { .. })));
        assert!(matches!(read(Some(&trained)), Err(AdaptedModelError::WeightsNeeded { .. })));
        assert!(matches!(read(Some(&other)), Err(AdaptedModelError::OtherWeights { .. })));
        let error = PretrainedBackbone::<Flex>::decode(name, *b"none", "x.pth", &device);
        assert!(error.unwrap_err().to_string().starts_with("cannot read weights from x.pth: "));
    }
}
