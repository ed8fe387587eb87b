mod csv_rows;
mod draft;
mod json_lines;

use std::path::Path;
use std::sync::Arc;

use self::draft::Names;
use super::class_set::ClassSet;
use super::{BatchSizes, ClassDraw, Episode, EpisodeError, EpisodeSizes, Protocol};
use crate::data::{ClassDataset, Features};
use crate::files;

/// Episodes that are written down one by one, as some papers publish theirs.
///
/// # File
/// In JSON lines (`.jsonl`, `.ndjson` or `.json`) a line is an episode:
/// ```text
/// {"classes": [{"class": "owl", "support": ["3.png"], "queries": ["7.png", 12]}, {"class": "fox", …}]}
/// ```
/// In CSV (`.csv`) a row is an example, and the first line names the columns, in any order:
/// ```text
/// episode,class,picture,part
/// 0,owl,3.png,support
/// 0,owl,7.png,query
/// ```
/// Rows with the same `episode` are one, episodes are in the order of their first rows, and `part` is `support` or
/// `query`. The order of an episode's classes is that of its labels.
///
/// A picture is the name of its file without the folders, where the dataset has files and the class no two of that
/// name, or else its number: its place in the class, from 0, among the pictures that were read, in the reader's order.
/// A text of digits alone is a number. A class that is shown in a quarter turn, in datasets with
/// [turns](ClassDataset::draws_turns), has a `turn` of 0, 90, 180 or 270 degrees, 0 if it is absent. Other keys and
/// columns, and empty lines, are passed over.
///
/// # Example
/// ```
/// use fewshot::episode::EpisodeList;
/// use fewshot::prelude::*;
///
/// let glyphs = Glyphs::generate(&GlyphsConfig::default());
/// let drawn = glyphs.test.sampler(Protocol::new(5, 1), 7)?;
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("episodes.jsonl");
/// EpisodeList::draw(&drawn, 20)?.write(&path, &glyphs.test)?;
///
/// let list = EpisodeList::read(&path, &glyphs.test)?;
/// let listed = EpisodeSampler::listed(glyphs.test, list)?;
/// assert_eq!(listed.episode(19), drawn.episode(19));
/// # Ok::<(), fewshot::episode::EpisodeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpisodeList {
    episodes: Arc<[Episode]>,
    sizes: EpisodeSizes,
    batch_sizes: Option<BatchSizes>,
}

/// Kinds of files.
#[derive(Clone, Copy)]
enum Format {
    JsonLines,
    Csv,
}

impl EpisodeList {
    /// The list of these episodes.
    ///
    /// # Errors
    /// Without an episode; [`EpisodeSampler::listed`](super::EpisodeSampler::listed) compares them with a dataset.
    pub fn new(episodes: impl Into<Arc<[Episode]>>) -> Result<Self, EpisodeError> {
        let episodes = episodes.into();
        let Some(first) = episodes.first() else {
            let reason = "the list has none".to_owned();
            return Err(EpisodeError::Episode { index: 0, reason });
        };
        let protocol = first.protocol().filter(|protocol| {
            episodes.iter().all(|episode| episode.protocol().as_ref() == Some(protocol))
        });
        let sizes = first.sizes();
        let equal = episodes.iter().all(|episode| episode.sizes() == sizes);
        Ok(Self {
            sizes: protocol.map_or(EpisodeSizes::Listed, EpisodeSizes::Fixed),
            batch_sizes: equal.then_some(sizes),
            episodes,
        })
    }

    /// The first `count` episodes of a sampler.
    ///
    /// # Errors
    /// When `count` is zero.
    pub fn draw(sampler: &super::EpisodeSampler, count: u64) -> Result<Self, EpisodeError> {
        Self::new((0..count).map(|index| sampler.episode(index)).collect::<Vec<_>>())
    }

    /// The list in a file, whose classes and pictures are those of `dataset`.
    ///
    /// # Errors
    /// When the file cannot be read, holds no episode, or has a line that is none, that names a class or picture which
    /// is not there, or a picture twice in an episode.
    pub fn read(path: impl AsRef<Path>, dataset: &dyn ClassDataset) -> Result<Self, EpisodeError> {
        Self::read_of(path.as_ref(), &dataset)
    }

    /// The list in a file, whose examples are rows of `features`, each by its number in its class.
    ///
    /// # Errors
    /// Fails like [`read`](Self::read).
    pub fn read_rows(path: impl AsRef<Path>, features: &Features) -> Result<Self, EpisodeError> {
        Self::read_of(path.as_ref(), features)
    }

    fn read_of(path: &Path, set: &dyn ClassSet) -> Result<Self, EpisodeError> {
        let format = Format::for_path(path)?;
        let text = std::fs::read(path).map_err(|error| failure(path, "cannot be read", error))?;
        let names = &mut Names::new(set);
        let episodes = match format {
            Format::JsonLines => json_lines::read(&text, names),
            Format::Csv => csv_rows::read(&text, names),
        };
        let episodes = episodes.map_err(|at| at.in_file(path))?;
        Self::new(episodes).map_err(|_| EpisodeError::List {
            path: path.to_path_buf(),
            reason: "there is no episode in it".to_owned(),
        })
    }

    /// Writes the list to a file whose name tells its kind, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written, or `dataset` does not have the episodes.
    pub fn write(
        &self,
        path: impl AsRef<Path>,
        dataset: &dyn ClassDataset,
    ) -> Result<(), EpisodeError> {
        let (path, set) = (path.as_ref(), &dataset as &dyn ClassSet);
        self.check(set)?;
        let names = &mut Names::new(set);
        let text = match Format::for_path(path)? {
            Format::JsonLines => json_lines::write(&self.episodes, names),
            Format::Csv => csv_rows::write(&self.episodes, names),
        };
        files::replace(path, &text).map_err(|error| failure(path, "cannot be written", error))
    }

    /// Number of episodes.
    #[allow(clippy::len_without_is_empty, reason = "a list has an episode")]
    pub fn len(&self) -> usize {
        self.episodes.len()
    }

    /// The episodes.
    pub fn episodes(&self) -> &[Episode] {
        &self.episodes
    }

    /// Sizes of the episodes; of a list whose episodes are of one protocol, [`EpisodeSizes::Fixed`].
    pub fn sizes(&self) -> EpisodeSizes {
        self.sizes
    }

    /// Index of the first episode that has not so many classes.
    pub fn first_without(&self, ways: usize) -> Option<usize> {
        self.episodes.iter().position(|episode| episode.classes.len() != ways)
    }

    /// Episode `index`.
    pub(super) fn episode(&self, index: u64) -> &Episode {
        let episode = usize::try_from(index).ok().and_then(|index| self.episodes.get(index));
        episode.unwrap_or_else(|| panic!("episode {index} of a list of {}", self.len()))
    }

    pub(super) fn batch_sizes(&self) -> Option<BatchSizes> {
        self.batch_sizes
    }

    /// The protocol whose episodes are at least as large as all of these.
    pub(super) fn largest(&self) -> Protocol {
        let most = |of: fn(BatchSizes) -> usize| {
            self.episodes.iter().map(|episode| of(episode.sizes())).max().unwrap_or(1)
        };
        let ways = most(|sizes| sizes.ways);
        let [shots, queries] = [most(|sizes| sizes.support), most(|sizes| sizes.queries)]
            .map(|examples| examples.div_ceil(ways));
        Protocol::new(ways, shots).with_queries(queries)
    }

    /// Digest of all classes and examples.
    pub(super) fn digest(&self) -> String {
        files::sha256_of(format!("{:?}", self.episodes).as_bytes())
    }

    /// Checks that `set` has the examples of each episode.
    pub(super) fn check(&self, set: &dyn ClassSet) -> Result<(), EpisodeError> {
        for (index, episode) in self.episodes.iter().enumerate() {
            draft::check(set, episode).map_err(|reason| EpisodeError::Episode { index, reason })?;
        }
        Ok(())
    }
}

impl Format {
    fn for_path(path: &Path) -> Result<Self, EpisodeError> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("jsonl" | "ndjson" | "json") => Ok(Self::JsonLines),
            Some("csv") => Ok(Self::Csv),
            _ => Err(EpisodeError::List {
                path: path.to_path_buf(),
                reason: "a list of episodes ends in .jsonl or .csv".to_owned(),
            }),
        }
    }
}

fn failure(path: &Path, what: &str, error: std::io::Error) -> EpisodeError {
    EpisodeError::List { path: path.to_path_buf(), reason: format!("{what}: {error}") }
}

#[cfg(test)]
mod tests;
