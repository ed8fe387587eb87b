//! Models of folders of pictures and of files of features, and changes of their classes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use burn::tensor::backend::Backend;
use rayon::prelude::*;

use super::class::{Class, place_of, small};
use super::model::AdaptedModel;
use super::origin::sha256;
use super::unfitted::{Thumbnail, UnfittedModel};
use super::{AdaptedModelError, EmbeddingSource, PretrainedBackbone, Result};
use crate::data::{DataError, Features, Picture, PictureLimits, class_name, picture_files};
use crate::files;

/// Adds the rows of every class that are not there yet.
fn add_features(classes: &mut Vec<Class>, additions: &Features) -> Result {
    for class in 0..additions.classes() {
        let place = place_of(classes, &class_name(additions.class_name(class))?);
        classes[place].add_distinct(additions.class_values(class), additions.length());
    }
    Ok(())
}

/// The first 16 hexadecimal digits of the sha256 of a file's content: equal files have equal ones.
pub fn digest(bytes: &[u8]) -> String {
    let mut digest = files::sha256_of(bytes);
    digest.truncate(DIGITS);
    digest
}

const DIGITS: usize = 16;

/// The files whose content is not known yet, each content once, and their digests.
fn new_files(
    files: &[PathBuf],
    mut known: HashSet<String>,
) -> Result<(Vec<PathBuf>, Vec<Option<String>>)> {
    let digest = |file: &PathBuf| {
        let mut digest = sha256(file)?;
        digest.truncate(DIGITS);
        Ok((file.clone(), digest))
    };
    let mut files = files.par_iter().map(digest).collect::<Result<Vec<_>>>()?;
    files.retain(|(_, digest)| known.insert(digest.clone()));
    Ok(files.into_iter().map(|(file, digest)| (file, Some(digest))).unzip())
}

impl<B: Backend> AdaptedModel<B> {
    /// Learns the classes of a [folder of folders](picture_files), one for each class, and keeps small pictures of its
    /// examples.
    ///
    /// # Errors
    /// The reasons of [`PretrainedBackbone::embed_folder`] and [`adapt`](Self::adapt).
    pub fn from_folder(
        backbone: PretrainedBackbone<B>,
        method: &str,
        root: impl AsRef<Path>,
    ) -> Result<Self> {
        Self::adapt_to_pictures(backbone, method, &picture_files(root)?)
    }

    /// The same of the files of each class; of those of a class with equal content the first counts.
    ///
    /// # Errors
    /// The reasons are those of [`from_folder`](Self::from_folder).
    pub fn adapt_to_pictures(
        backbone: PretrainedBackbone<B>,
        method: &str,
        classes: &[(String, Vec<PathBuf>)],
    ) -> Result<Self> {
        let (mut distinct, mut digests) = (Vec::new(), Vec::new());
        for (name, files) in classes {
            let (files, of_files) = new_files(files, HashSet::new())?;
            distinct.push((name.clone(), files));
            digests.push(of_files);
        }
        let (length, classes) = backbone.embed_classes(&distinct, small)?;
        let class = |((name, rows, thumbnails), digests)| Class { name, rows, thumbnails, digests };
        let classes = classes.into_iter().zip(digests).map(class).collect();
        Self::learn(backbone.into(), method, length, classes)
    }

    /// Learns the classes of embeddings; of equal rows of a class the first counts.
    ///
    /// # Errors
    /// The reasons of [`adapt`](Self::adapt).
    ///
    /// # Example
    /// ```
    /// use burn::backend::Flex;
    /// use fewshot::adapted::{AdaptedModel, EmbeddingSource};
    /// use fewshot::data::Features;
    ///
    /// let classes = [("joke".into(), vec![1.0, 0.0, 0.9, 0.1]), ("law".into(), vec![0.0, 1.0])];
    /// let source = EmbeddingSource::<Flex>::OtherProgram(Default::default());
    /// let model = AdaptedModel::adapt_to_features(source, "simpleshot", &Features::new(2, classes)?)?;
    /// assert_eq!(model.classify(&[0.8, 0.3])?[0].class(), "joke");
    /// # Ok::<(), fewshot::adapted::AdaptedModelError>(())
    /// ```
    pub fn adapt_to_features(
        source: impl Into<EmbeddingSource<B>>,
        method: &str,
        features: &Features,
    ) -> Result<Self> {
        let mut classes = Vec::new();
        add_features(&mut classes, features)?;
        Self::learn(source.into(), method, features.length(), classes)
    }

    /// This model with the embeddings of further classes, or with further ones of classes that it has; rows that an example
    /// of the class equals add nothing.
    ///
    /// # Errors
    /// When they have another length than the model's, and where a class has no [plain name](crate::data::class_name).
    pub fn with_features(self, additions: &Features) -> Result<Self> {
        let (expected, actual) = (self.examples().length(), additions.length());
        if actual != expected {
            return Err(AdaptedModelError::OtherLength { expected, actual });
        }
        let mut classes = self.unfitted.all();
        add_features(&mut classes, additions)?;
        let rows = classes.iter().map(|class| class.digests.len()).sum::<usize>();
        if rows == self.examples().rows() { Ok(self) } else { self.changed(classes) }
    }

    /// This model with further classes of the pictures in these files, or with further pictures of classes
    /// that it has; other classes keep their embeddings, and the model is calibrated once. Files whose content an
    /// example of the class has already add nothing. Small pictures are kept if the model has any.
    ///
    /// # Errors
    /// If the model has no network, if a class has no picture, and where pictures cannot be read: all of them are in the error.
    pub fn with_classes(self, additions: &[(String, Vec<PathBuf>)]) -> Result<Self> {
        let mut classes = self.unfitted.all();
        let (mut places, mut new) = (Vec::new(), Vec::new());
        for (name, files) in additions {
            let name = class_name(name)?;
            let place = place_of(&mut classes, &name);
            let known = classes[place].digests.iter().flatten().cloned().collect();
            let (files, digests) = new_files(files, known)?;
            classes[place].digests.extend(digests);
            places.push(place);
            new.push((name, files));
        }
        let is_empty = |class: &Class| class.digests.is_empty();
        if new.iter().all(|(_, files)| files.is_empty()) && !classes.iter().any(is_empty) {
            return Ok(self);
        }
        let has_thumbnails = self.has_thumbnails();
        let thumbnail = |picture: &Picture| if has_thumbnails { small(picture) } else { None };
        let (_, embedded) =
            self.unfitted.source.picture_network()?.embed_classes(&new, thumbnail)?;
        for (place, (_, rows, thumbnails)) in places.into_iter().zip(embedded) {
            classes[place].rows.extend(rows);
            classes[place].thumbnails.extend(thumbnails);
        }
        self.changed(classes)
    }

    /// This model with further examples of a class, maybe a new one: pictures that are in memory already. Small pictures are
    /// kept if the model has any, and pictures whose embedding equals that of an example of the class add nothing.
    ///
    /// # Errors
    /// If the model has no network, if there is no picture, and where the class has no [plain name](crate::data::class_name).
    pub fn with_pictures(self, name: &str, pictures: &[Picture]) -> Result<Self> {
        let name = class_name(name)?;
        let network = self.unfitted.source.picture_network()?;
        if pictures.is_empty() {
            return Err(DataError::EmptyClass { class: name, expected: "pictures" }.into());
        }
        let (rows, length) = network.embed(pictures);
        let mut classes = self.unfitted.all();
        let place = place_of(&mut classes, &name);
        let class = &mut classes[place];
        let before = class.digests.len();
        let new = class.add_distinct(&rows, length);
        if new.is_empty() {
            return Ok(self);
        }
        if self.has_thumbnails() {
            for (thumbnail, picture) in class.thumbnails[before..].iter_mut().zip(new) {
                *thumbnail = small(&pictures[picture]);
            }
        }
        self.changed(classes)
    }

    /// With these limits for pictures in files.
    pub fn with_limits(mut self, limits: PictureLimits) -> Self {
        self.unfitted.source = self.unfitted.source.with_limits(limits);
        self
    }

    /// This model without the class of this name; other classes keep their embeddings.
    ///
    /// # Errors
    /// If there is none of this name, or fewer than two are left.
    pub fn without_class(self, name: &str) -> Result<Self> {
        self.unfitted.without_class(name)?.fit()
    }

    /// Small pictures of the [examples](Self::examples), row by row, where there are any.
    pub fn thumbnails(&self) -> &[Option<Thumbnail>] {
        &self.unfitted.thumbnails
    }

    /// `true` where any example has a small picture.
    pub fn has_thumbnails(&self) -> bool {
        self.unfitted.thumbnails.iter().any(Option::is_some)
    }

    /// With these small pictures of the [examples](Self::examples), row by row.
    ///
    /// # Panics
    /// When they are not as many as the examples.
    pub fn with_thumbnails(mut self, thumbnails: Vec<Option<Thumbnail>>) -> Self {
        assert_eq!(thumbnails.len(), self.unfitted.examples.rows(), "small pictures and examples");
        self.unfitted.thumbnails = thumbnails;
        self
    }

    /// With these [digests](digest) of the files of the [examples](Self::examples), row by row.
    ///
    /// # Panics
    /// When they are not as many as the examples.
    pub fn with_digests(mut self, digests: Vec<Option<String>>) -> Self {
        assert_eq!(digests.len(), self.unfitted.examples.rows(), "digests and examples");
        self.unfitted.digests = digests;
        self
    }

    /// Without small pictures of examples.
    pub fn without_thumbnails(mut self) -> Self {
        self.unfitted.thumbnails.fill(None);
        self
    }

    fn changed(self, classes: Vec<Class>) -> Result<Self> {
        let UnfittedModel { source, method, examples, .. } = self.unfitted;
        Self::learn(source, &method, examples.length(), classes)
    }

    fn learn(
        source: EmbeddingSource<B>,
        method: &str,
        length: usize,
        classes: Vec<Class>,
    ) -> Result<Self> {
        UnfittedModel::from_classes(source, method, length, classes)?.fit()
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;
    use fewshot_models::Conv4Config;

    use super::*;
    use crate::adapted::TrainedNetwork;

    fn features(classes: &[(&str, &[f32])]) -> Features {
        let class = |&(name, rows): &(&str, &[f32])| (name.to_owned(), rows.to_vec());
        Features::new(2, classes.iter().map(class)).unwrap()
    }

    fn first() -> Features {
        features(&[("a", &[1.0, 0.1, 0.9, 0.0]), ("b", &[0.0, 1.0, 0.2, 0.8, 0.1, 1.0])])
    }

    fn without_network(method: &str) -> AdaptedModel<Flex> {
        let source = EmbeddingSource::OtherProgram(Default::default());
        AdaptedModel::adapt_to_features(source, method, &first()).unwrap()
    }

    fn open(path: &Path) -> Result<AdaptedModel<Flex>> {
        AdaptedModel::open(path, &Default::default())
    }

    #[test]
    fn a_model_without_a_network_is_the_head_of_one_with_a_network() {
        let device = Default::default();
        let config = Conv4Config::new([3, 16, 16]).with_channels(2).with_blocks(4).with_context(1);
        let network = config.init::<Flex>(&device);
        let network = PretrainedBackbone::trained(network, TrainedNetwork::new(config), &device);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.fewshot");
        let queries = [0.7, 0.3, 0.1, 0.4, -1.0, 0.5];
        for method in ["simpleshot", "logistic"] {
            let with = AdaptedModel::adapt(network.clone(), method, first()).unwrap();
            let without = without_network(method);
            let expected = with.classify(&queries).unwrap();
            assert_eq!(without.classify(&queries).unwrap(), expected, "{method}");
            assert_eq!(without.cross_validation(), with.cross_validation());
            without.write(&path).unwrap();
            let read = open(&path).unwrap();
            assert_eq!(read.classify(&queries).unwrap(), expected, "{method}");
            assert!(read.backbone().is_none());
            let picture = Picture::from_rgb(1, 1, vec![0; 3]).unwrap();
            assert!(matches!(read.predict(&[picture]), Err(AdaptedModelError::NoNetwork)));
            let weights = AdaptedModel::<Flex>::open_with_weights(&path, Some(&path), &device);
            assert!(matches!(weights, Err(AdaptedModelError::NoNetwork)));
        }
    }

    #[test]
    fn equal_rows_add_nothing_and_others_do() {
        let model = without_network("simpleshot");
        let same = model.with_features(&first()).unwrap();
        assert_eq!(same.examples(), &first());
        let more = features(&[("b", &[0.0, 1.0, 0.5, 0.5]), ("c", &[-1.0, 0.0, -1.0, 0.0])]);
        let changed = same.with_features(&more).unwrap();
        assert_eq!(changed.class_names(), ["a", "b", "c"]);
        assert_eq!([0, 1, 2].map(|class| changed.examples().examples(class)), [2, 4, 1]);
        assert_eq!(changed.classify(&[-0.9, 0.1]).unwrap()[0].class(), "c");
        let fewer = changed.without_class("a").unwrap();
        assert_eq!(fewer.class_names(), ["b", "c"]);
        let longer = Features::new(3, [("a".to_owned(), vec![1.0; 3])]).unwrap();
        let refused = fewer.with_features(&longer);
        let lengths = AdaptedModelError::OtherLength { expected: 2, actual: 3 };
        assert_eq!(refused.err().map(|error| error.to_string()), Some(lengths.to_string()));
    }

    #[test]
    fn pictures_in_memory_are_added_once_and_a_clone_stays() {
        let device = Default::default();
        Flex::seed(&device, 1);
        let config = Conv4Config::new([3, 16, 16]).with_blocks(4).with_context(1);
        let network = TrainedNetwork::new(config.clone());
        let network = PretrainedBackbone::trained(config.init::<Flex>(&device), network, &device);
        let picture = |shade: u8| {
            let pixels = (0..48u8).map(|place| (place * 5) ^ shade).collect();
            Picture::from_rgb(4, 4, pixels).unwrap()
        };
        let rows = |shades: [u8; 2]| network.embed(&shades.map(picture)).0;
        let classes = [("a".to_owned(), rows([0, 9])), ("b".to_owned(), rows([77, 80]))];
        let first = Features::new(network.features(), classes).unwrap();
        let model = AdaptedModel::adapt(network.clone(), "simpleshot", first).unwrap();
        let added = model.clone().with_pictures("c", &[200, 210, 200].map(picture)).unwrap();
        assert_eq!(added.class_names(), ["a", "b", "c"]);
        assert_eq!(added.examples().examples(2), 2);
        let again = added.clone().with_pictures("c", &[picture(210)]).unwrap();
        assert_eq!(again.examples(), added.examples());
        let query = rows([200, 3]);
        assert_eq!(again.classify(&query).unwrap(), added.classify(&query).unwrap());
        assert_eq!(model.class_names(), ["a", "b"]);
        let none = added.with_pictures("d", &[]).err().map(|error| error.to_string());
        assert_eq!(none.as_deref(), Some("class d has no pictures"));
    }

    #[test]
    fn pictures_are_not_added_to_a_model_without_a_network() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.png");
        std::fs::write(&file, b"x").unwrap();
        let added = without_network("simpleshot").with_classes(&[("c".to_owned(), vec![file])]);
        assert!(matches!(added, Err(AdaptedModelError::NoNetwork)));
    }
}
