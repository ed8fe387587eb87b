use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Episode, Protocol};

/// Sizes of the episodes of a sampler.
///
/// It is written with the fields `ways`, `shots` and `queries`, `null` where they differ, and `sampling`: `fixed`,
/// `varied`, `listed` or `mini_batch`, then with the field `images`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub enum EpisodeSizes {
    /// The same in every episode and for every class.
    Fixed(Protocol),
    /// Drawn for each episode by the rule of [`EpisodeSampler::varied`](super::EpisodeSampler::varied).
    Varied,
    /// Mini-batches of [images of all classes](super::EpisodeSampler::mini_batches).
    MiniBatch {
        /// Images in a mini-batch.
        images: usize,
    },
    /// Sizes in a [list](super::EpisodeList) whose episodes or classes differ.
    Listed,
}

#[derive(Serialize, Deserialize)]
struct Fields {
    ways: Option<usize>,
    shots: Option<usize>,
    queries: Option<usize>,
    #[serde(default)]
    sampling: Sampling,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    images: Option<usize>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sampling {
    #[default]
    Fixed,
    Varied,
    MiniBatch,
    Listed,
}

impl From<EpisodeSizes> for Fields {
    fn from(sizes: EpisodeSizes) -> Self {
        let protocol = sizes.protocol();
        Self {
            ways: protocol.map(|protocol| protocol.ways),
            shots: protocol.map(|protocol| protocol.shots),
            queries: protocol.map(|protocol| protocol.queries),
            images: match sizes {
                EpisodeSizes::MiniBatch { images } => Some(images),
                _ => None,
            },
            sampling: match sizes {
                EpisodeSizes::Fixed(_) => Sampling::Fixed,
                EpisodeSizes::Varied => Sampling::Varied,
                EpisodeSizes::MiniBatch { .. } => Sampling::MiniBatch,
                EpisodeSizes::Listed => Sampling::Listed,
            },
        }
    }
}

impl TryFrom<Fields> for EpisodeSizes {
    type Error = &'static str;

    fn try_from(fields: Fields) -> Result<Self, Self::Error> {
        if let (Sampling::MiniBatch, images) = (&fields.sampling, fields.images) {
            let images = images.ok_or("a mini-batch has a number of images")?;
            return Ok(Self::MiniBatch { images });
        }
        match (fields.sampling, fields.ways, fields.shots, fields.queries) {
            (Sampling::Varied, ..) => Ok(Self::Varied),
            (Sampling::Listed, ..) => Ok(Self::Listed),
            (Sampling::Fixed, Some(ways), Some(shots), Some(queries)) => {
                Ok(Self::Fixed(Protocol { ways, shots, queries }))
            }
            _ => Err("fixed sizes are ways, shots and queries"),
        }
    }
}

impl EpisodeSizes {
    /// The protocol of all episodes, if they have one in common.
    pub fn protocol(self) -> Option<Protocol> {
        match self {
            Self::Fixed(protocol) => Some(protocol),
            Self::Varied | Self::MiniBatch { .. } | Self::Listed => None,
        }
    }
}

impl fmt::Display for EpisodeSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(protocol) => protocol.fmt(f),
            Self::Varied => f.write_str("varied ways and shots"),
            Self::MiniBatch { images } => write!(f, "mini-batches of {images} images"),
            Self::Listed => f.write_str("listed ways and shots"),
        }
    }
}

/// Numbers of an episode, which all episodes of a batch have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchSizes {
    /// Classes.
    pub(crate) ways: usize,
    /// Labelled examples of all classes.
    pub(crate) support: usize,
    /// Queries of all classes.
    pub(crate) queries: usize,
}

impl BatchSizes {
    /// Examples of an episode.
    pub(crate) fn examples(self) -> usize {
        self.support + self.queries
    }

    /// The sizes of each of `episodes`.
    ///
    /// # Panics
    /// Where two episodes differ, or there is none.
    pub(super) fn common(episodes: &[Episode]) -> Self {
        let sizes = episodes.first().expect("a batch has an episode").sizes();
        for (index, episode) in episodes.iter().enumerate() {
            let actual = episode.sizes();
            assert_eq!(actual, sizes, "episode {index} of a batch has the sizes of the first");
        }
        sizes
    }
}

impl From<Protocol> for BatchSizes {
    fn from(Protocol { ways, shots, queries }: Protocol) -> Self {
        Self { ways, support: ways * shots, queries: ways * queries }
    }
}

impl Episode {
    /// Numbers of classes, labelled examples and queries.
    pub(crate) fn sizes(&self) -> BatchSizes {
        let count = |of: fn(&super::ClassDraw) -> usize| self.classes.iter().map(of).sum();
        BatchSizes {
            ways: self.classes.len(),
            support: count(|draw| draw.support.len()),
            queries: count(|draw| draw.query.len()),
        }
    }

    /// The protocol, if each class has as many labelled examples and as many queries as the others.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        let first = self.classes.first()?;
        let (shots, queries) = (first.support.len(), first.query.len());
        let mut draws = self.classes.iter();
        let even = draws.all(|draw| draw.support.len() == shots && draw.query.len() == queries);
        even.then(|| Protocol::new(self.classes.len(), shots).with_queries(queries))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sizes_read_as_they_are_written() {
        let protocol = Protocol::new(5, 1);
        let mini_batch = EpisodeSizes::MiniBatch { images: 64 };
        let fixed = EpisodeSizes::Fixed(protocol);
        for sizes in [fixed, EpisodeSizes::Varied, mini_batch, EpisodeSizes::Listed] {
            let written = serde_json::to_value(sizes).unwrap();
            assert_eq!(serde_json::from_value::<EpisodeSizes>(written).unwrap(), sizes);
        }
        let earlier = json!({"ways": 5, "shots": 1, "queries": 15});
        let read: EpisodeSizes = serde_json::from_value(earlier).unwrap();
        assert_eq!(read, EpisodeSizes::Fixed(protocol));
        for incomplete in [json!({"ways": 5}), json!({"sampling": "mini_batch"})] {
            assert!(serde_json::from_value::<EpisodeSizes>(incomplete).is_err());
        }
    }
}
