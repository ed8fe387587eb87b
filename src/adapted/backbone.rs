//! Pretrained networks by name, with their weights.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use fewshot_kernels::{Route, WeightCache, route};
use fewshot_models::{AnyEncoder, BnStatistics, Encoder, EncoderConfig, Preprocessing};
use rayon::prelude::*;

use super::origin::{BackboneId, BackboneOrigin, TrainedNetwork, sha256};
use super::published::PublishedWeights;
use super::trained::Parameters;
use super::{AdaptedModelError, Result};
use crate::data::{
    BrokenImage, DataError, Features, ImageShape, Picture, PictureLimits, picture_files,
};
use crate::files;
use crate::hardware::Bytes;

/// Pictures in a batch of the network.
const BATCH: usize = 32;

/// Pictures that running averages are taken from, at most.
const AVERAGED: usize = 128;

/// A network that embeds pictures, with published weights or trained here.
#[derive(Clone, Debug)]
pub struct PretrainedBackbone<B: Backend> {
    origin: BackboneOrigin,
    network: Arc<AnyEncoder<B>>,
    /// The packed weights of its large linear layers, on a host.
    weight_cache: WeightCache,
    device: B::Device,
    limits: PictureLimits,
}

/// The name of a class, its embeddings, and something else that is made of each picture.
type EmbeddedClass<T> = (String, Vec<f32>, Vec<T>);

impl<B: Backend> PretrainedBackbone<B> {
    /// The network of this name with the weights of a file, safetensors or PyTorch's.
    ///
    /// # Errors
    /// When there is no such network, the file cannot be read, or it has the weights of another network: by its names and shapes,
    /// or by its hash, which tells networks apart that differ in what no parameter shows.
    pub fn load(name: &str, weights: impl AsRef<Path>, device: &B::Device) -> Result<Self> {
        let file = weights.as_ref();
        let network = PublishedWeights::named(name)?;
        Self::load_hashed(network, file, sha256(file)?, device)
    }

    /// The same with the content of a file of weights, whose name is `file`.
    ///
    /// # Errors
    /// The reasons are those of [`load`](Self::load).
    pub fn decode(
        name: &str,
        content: impl Into<Rc<[u8]>>,
        file: impl Into<PathBuf>,
        device: &B::Device,
    ) -> Result<Self> {
        let published = PublishedWeights::named(name)?;
        let (content, file) = (content.into(), file.into());
        let sha256 = files::sha256_of(&content);
        published.refuse_others(&file, &sha256)?;
        let config = published.config();
        let preprocessing = preprocessing(&config);
        let network = config.init(device).decode_weights(content, &file)?;
        let id = BackboneId { name: name.to_owned(), sha256, file, preprocessing };
        Ok(Self::new(BackboneOrigin::Published(id), network, device))
    }

    /// The network with the weights of a file whose hash is known.
    fn load_hashed(
        published: &PublishedWeights,
        file: &Path,
        sha256: String,
        device: &B::Device,
    ) -> Result<Self> {
        published.refuse_others(file, &sha256)?;
        let name = published.name;
        let (network, preprocessing) = load(&published.config(), file, device)?;
        let id = BackboneId { name: name.to_owned(), sha256, file: absolute(file), preprocessing };
        Ok(Self::new(BackboneOrigin::Published(id), network, device))
    }

    /// The network of this name with its [published weights](PublishedWeights), from the [cache](super::weights_cache): nothing is
    /// downloaded.
    ///
    /// # Errors
    /// When there is no such network, its weights are not in the cache, or the file there is damaged.
    pub fn cached(name: &str, device: &B::Device) -> Result<Self> {
        let weights = PublishedWeights::named(name)?;
        let Some(path) = weights.cached() else {
            return Err(match weights.file {
                Some(_) => AdaptedModelError::NotCached { backbone: weights.name },
                None => {
                    let (backbone, page) = (weights.name, weights.page);
                    AdaptedModelError::NoDownload { backbone, page }
                }
            });
        };
        let sha256 = sha256(&path)?;
        if path.file_name().and_then(OsStr::to_str) != Some(sha256.as_str()) {
            return Err(AdaptedModelError::DamagedWeights { backbone: weights.name, path });
        }
        Self::load_hashed(weights, &path, sha256, device)
    }

    /// The network that a model was adapted from: with `weights`, or those at the place that the model notes, or in
    /// the [cache](super::weights_cache) under its hash.
    ///
    /// # Errors
    /// When no weights are found, or they are not those that the model notes.
    pub fn find(id: &BackboneId, weights: Option<&Path>, device: &B::Device) -> Result<Self> {
        let file = match weights {
            Some(path) if sha256(path)? == id.sha256 => path.to_owned(),
            Some(path) => {
                let (backbone, sha256, path) = (id.name.clone(), id.sha256.clone(), path.into());
                return Err(AdaptedModelError::OtherWeights { backbone, sha256, path });
            }
            None => id.locate()?,
        };
        let published = PublishedWeights::named(&id.name)?;
        published.refuse_others(&file, &id.sha256)?;
        let (network, preprocessing) = load(&published.config(), &file, device)?;
        if preprocessing != id.preprocessing {
            return Err(AdaptedModelError::OtherPreprocessing { backbone: id.name.clone() });
        }
        let id = BackboneId { file: absolute(&file), ..id.clone() };
        Ok(Self::new(BackboneOrigin::Published(id), network, device))
    }

    /// This network as the one that a model notes.
    ///
    /// # Errors
    /// When it is another network, has other weights or prepares pictures otherwise.
    pub(super) fn noted_as(&self, id: &BackboneId) -> Result<Self> {
        let backbone = id.name.clone();
        let own = match &self.origin {
            BackboneOrigin::Published(own) if own.name == id.name => own,
            _ => {
                let sha256 = id.sha256.clone();
                return Err(AdaptedModelError::WeightsNeeded { backbone, sha256 });
            }
        };
        if own.sha256 != id.sha256 {
            let (sha256, path) = (id.sha256.clone(), own.file.clone());
            return Err(AdaptedModelError::OtherWeights { backbone, sha256, path });
        }
        if own.preprocessing != id.preprocessing {
            return Err(AdaptedModelError::OtherPreprocessing { backbone });
        }
        Ok(Self { origin: BackboneOrigin::Published(id.clone()), ..self.clone() })
    }

    /// A network that was trained here. It normalises by the running averages that it has.
    ///
    /// # Panics
    /// When the encoder has another configuration than its origin says.
    pub fn trained(
        encoder: impl Into<AnyEncoder<B>>,
        origin: TrainedNetwork,
        device: &B::Device,
    ) -> Self {
        let encoder = encoder.into().with_normalization(origin.network.normalization());
        let configured = origin.network.init::<B>(device).architecture();
        assert_eq!(encoder.architecture(), configured, "the encoder and its configuration");
        Self::new(BackboneOrigin::Trained(origin), encoder, device)
    }

    fn new(origin: BackboneOrigin, network: AnyEncoder<B>, device: &B::Device) -> Self {
        let keeps = is_transformer(&origin) && matches!(route::<B>(), Route::Host(_));
        let weight_cache =
            WeightCache::new(if keeps { Module::<B>::num_params(&network) } else { 0 });
        let (network, limits) = (Arc::new(network), PictureLimits::default());
        Self { origin, network, weight_cache, device: device.clone(), limits }
    }

    /// The same with other limits for pictures in files.
    pub fn with_limits(self, limits: PictureLimits) -> Self {
        Self { limits, ..self }
    }

    /// If this network was trained here and has gathered no running averages of batch-norm, the network with
    /// the moments of pictures in their place: of 128 of these files, evenly chosen, if there are more. A
    /// published network stays as it is.
    ///
    /// # Conventions
    /// MAML and its relatives normalise the support of a task by its own moments and gather none. Here these are kept for
    /// the pictures to come.
    ///
    /// # Errors
    /// When pictures cannot be read: all of them are in the error.
    pub fn with_averages_of(mut self, files: &[PathBuf]) -> Result<Self> {
        let preparation = self.origin.preparation();
        let files: Vec<_> = files.iter().step_by(files.len().div_ceil(AVERAGED).max(1)).collect();
        let image = |picture: Picture| preparation.apply(&picture);
        let mut broken = Vec::new();
        let images = each_picture(&files, self.limits, image, &mut broken)?;
        none_broken(files.len(), broken)?;
        if let (BackboneOrigin::Trained(_), false) = (&self.origin, images.is_empty()) {
            let ImageShape { channels, height, width } = preparation.image();
            let shape = [images.len(), channels, height, width];
            let images = Tensor::from_data(TensorData::new(images.concat(), shape), &self.device);
            let network = self.network.as_ref().clone().with_averages_of(images);
            self = Self { limits: self.limits, ..Self::new(self.origin, network, &self.device) };
        }
        Ok(self)
    }

    /// Parameters that go into a model's file: of a network that was trained here.
    pub(super) fn parameters(&self) -> Option<Parameters> {
        match &self.origin {
            BackboneOrigin::Trained(_) => Some(Parameters::of(&*self.network)),
            BackboneOrigin::Published(_) => None,
        }
    }

    /// Values of an embedding.
    pub fn features(&self) -> usize {
        match &self.origin {
            BackboneOrigin::Trained(network) => network.network.features(),
            BackboneOrigin::Published(id) => {
                PublishedWeights::named(&id.name).expect("the network has been loaded").features
            }
        }
    }

    /// Memory that its parameters take: on a host twice those of a transformer, whose linear layers lie in the layout of products, too,
    /// as soon as it embeds.
    pub fn bytes(&self) -> Bytes {
        let parameters = Module::<B>::num_params(&*self.network);
        Bytes(((parameters + self.weight_cache.capacity()) * size_of::<f32>()) as u64)
    }

    /// Its source: published weights, or training here.
    pub fn origin(&self) -> &BackboneOrigin {
        &self.origin
    }

    /// The network itself, which takes images that its origin's [preparation](BackboneOrigin::preparation) makes.
    pub fn encoder(&self) -> &AnyEncoder<B> {
        &self.network
    }

    /// The device that it computes on.
    pub fn device(&self) -> &B::Device {
        &self.device
    }

    /// Feature vectors of pictures, one after the other, and their length; 0 of no pictures.
    pub fn embed(&self, pictures: &[Picture]) -> (Vec<f32>, usize) {
        let (mut rows, mut length) = (Vec::new(), 0);
        for batch in pictures.chunks(BATCH) {
            let preparation = self.origin.preparation();
            let images = batch.par_iter().flat_map_iter(|of| preparation.apply(of));
            let embedded = self.embed_prepared(images.collect());
            rows.extend(embedded.0);
            length = embedded.1;
        }
        (rows, length)
    }

    /// The same of pictures that are [prepared](crate::data::Preparation::apply) already.
    ///
    /// # Shapes
    /// `images`: `[n, c, h, w]`, one after the other.
    ///
    /// # Panics
    /// When these are not the values of whole images.
    pub fn embed_prepared(&self, images: Vec<f32>) -> (Vec<f32>, usize) {
        let values = self.origin.preparation().image().values();
        let encoded = |images: &[f32]| self.encode(images).into_data().iter::<f32>().collect();
        let rows: Vec<Vec<f32>> = match route::<B>() {
            // Maps of few pictures stay in the cache of a core; those of a batch do not.
            Route::Host(_) => {
                let batch = self.on_a_core();
                // Within the pool, where a part of an operation costs the least to share.
                rayon::scope(|_| images.par_chunks(batch * values).map(encoded).collect())
            }
            _ => images.chunks(BATCH * values).map(encoded).collect(),
        };
        let (rows, count) = (rows.concat(), images.len() / values);
        let length = rows.len().checked_div(count).unwrap_or(0);
        (rows, length)
    }

    /// Feature vectors of prepared pictures where no thread can wait for the device, as on a browser's graphics processor. The
    /// arguments are those of [`embed_prepared`](Self::embed_prepared), as are the panics.
    ///
    /// # Errors
    /// When the device fails.
    pub async fn embed_prepared_async(&self, images: &[f32]) -> Result<Vec<f32>> {
        let values = self.origin.preparation().image().values();
        let mut rows = Vec::new();
        for batch in images.chunks(BATCH * values) {
            rows.extend(self.encode(batch).into_data_async().await?.iter::<f32>());
        }
        Ok(rows)
    }

    /// Feature vectors of one batch of prepared pictures, on the device.
    fn encode(&self, images: &[f32]) -> Tensor<B, 2> {
        let image = self.origin.preparation().image();
        let (values, ImageShape { channels, height, width }) = (image.values(), image);
        let shape = [images.len() / values, channels, height, width];
        let images = Tensor::from_data(TensorData::new(images.to_vec(), shape), &self.device);
        self.weight_cache.during(|| self.network.encode(images, BnStatistics::Running))
    }

    /// Images that a core of a host embeds at a time: several where weights are large beside what is made of an image.
    fn on_a_core(&self) -> usize {
        // Convolutions of several images may be rounded otherwise than those of one, and equal pictures have equal embeddings.
        if is_transformer(&self.origin) { 4 } else { 1 }
    }

    /// Feature vectors of the pictures in files, and their length; few pictures are in memory at a time.
    ///
    /// # Errors
    /// When pictures cannot be read: all of them are in the error.
    pub fn embed_files(&self, files: &[PathBuf]) -> Result<(Vec<f32>, usize)> {
        let (length, classes) = self.embed_classes(&[(String::new(), files.to_vec())], |_| ())?;
        let rows = classes.into_iter().flat_map(|(_, rows, _)| rows).collect();
        Ok((rows, length))
    }

    /// The length of embeddings, and each class with its own.
    pub(super) fn embed_classes<T: Send>(
        &self,
        classes: &[(String, Vec<PathBuf>)],
        make: impl Fn(&Picture) -> T + Sync,
    ) -> Result<(usize, Vec<EmbeddedClass<T>>)> {
        let (mut length, mut embedded, mut broken) = (0, Vec::new(), Vec::new());
        for (class, files) in classes {
            let (mut rows, mut made) = (Vec::new(), Vec::new());
            for files in files.chunks(BATCH) {
                let pictures = each_picture(files, self.limits, |picture| picture, &mut broken)?;
                // An error is certain: the others are only looked at.
                if broken.is_empty() {
                    let (batch, features) = self.embed(&pictures);
                    rows.extend(batch);
                    length = features;
                    made.extend(pictures.par_iter().map(&make).collect::<Vec<_>>());
                }
            }
            embedded.push((class.clone(), rows, made));
        }
        none_broken(classes.iter().map(|(_, files)| files.len()).sum(), broken)?;
        Ok((length, embedded))
    }

    /// Embeddings of a [folder of folders](picture_files), one for each class.
    ///
    /// # Errors
    /// Where there is no class, one has no picture, or pictures cannot be read: all of them are in the error.
    pub fn embed_folder(&self, root: impl AsRef<Path>) -> Result<Features> {
        self.embed_pictures(&picture_files(root)?)
    }

    /// Embeddings of classes of pictures.
    ///
    /// # Errors
    /// The reasons are those of [`embed_folder`](Self::embed_folder).
    pub fn embed_pictures(&self, classes: &[(String, Vec<PathBuf>)]) -> Result<Features> {
        let (length, classes) = self.embed_classes(classes, |_| ())?;
        Ok(Features::new(length, classes.into_iter().map(|(class, rows, _)| (class, rows)))?)
    }
}

fn is_transformer(origin: &BackboneOrigin) -> bool {
    match origin {
        BackboneOrigin::Trained(of) => matches!(of.network, EncoderConfig::Vit(_)),
        BackboneOrigin::Published(id) => PublishedWeights::named(&id.name)
            .is_ok_and(|of| matches!(of.config(), EncoderConfig::Vit(_))),
    }
}

/// Something that is made of each picture, in order; broken ones are put with the others.
fn each_picture<T: Send>(
    files: &[impl AsRef<Path> + Sync],
    limits: PictureLimits,
    make: impl Fn(Picture) -> T + Sync,
    broken: &mut Vec<BrokenImage>,
) -> Result<Vec<T>> {
    let open = |file: &_| Picture::open_within(file, limits).map(&make);
    let opened: Vec<Result<T, DataError>> = files.par_iter().map(open).collect();
    let mut made = Vec::new();
    for opened in opened {
        match opened {
            Ok(of_picture) => made.push(of_picture),
            Err(DataError::Image { path, reason }) => broken.push(BrokenImage { path, reason }),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(made)
}

fn none_broken(images: usize, broken: Vec<BrokenImage>) -> Result {
    match broken.is_empty() {
        true => Ok(()),
        false => Err(DataError::broken_images(images, broken).into()),
    }
}

/// The network with the weights of a file, and the preparation of its images from pictures.
fn load<B: Backend>(
    config: &EncoderConfig,
    file: &Path,
    device: &B::Device,
) -> Result<(AnyEncoder<B>, Preprocessing)> {
    Ok((config.init(device).load_weights(file)?, preprocessing(config)))
}

fn preprocessing(config: &EncoderConfig) -> Preprocessing {
    config.preprocessing().expect("a network with published weights has one")
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
