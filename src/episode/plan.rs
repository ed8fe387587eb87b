use serde_json::{Value, json};

use super::class_set::ClassSet;
use super::{
    BatchSizes, Episode, EpisodeError, EpisodeList, EpisodeSizes, Protocol, QueryCounts, draw,
    mini_batch, varied,
};
use crate::random::{Purpose, Stream};

/// The way from the index of an episode to its examples.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    /// Episodes of one protocol.
    Fixed { protocol: Protocol, counts: QueryCounts, seed: u64 },
    /// Episodes of the rule in [`varied`].
    Varied { seed: u64 },
    /// Mini-batches of images of all classes, by the rule in [`mini_batch`].
    MiniBatches { images: usize, seed: u64 },
    /// The episodes of a list.
    Listed(EpisodeList),
}

impl Plan {
    /// Episodes of `protocol`, with the same number of queries for each class.
    pub(super) fn fixed(protocol: Protocol, seed: u64) -> Self {
        Self::Fixed { protocol, counts: QueryCounts::Balanced, seed }
    }

    /// Checks that `set` has the episodes.
    pub(super) fn check(&self, set: &dyn ClassSet) -> Result<(), EpisodeError> {
        match self {
            Self::Fixed { protocol, counts, .. } => {
                let needed = protocol.shots.saturating_add(counts.most(*protocol));
                draw::check(set, *protocol, needed)
            }
            Self::Varied { .. } => varied::check(set),
            Self::MiniBatches { images, .. } => mini_batch::check(set, *images),
            Self::Listed(list) => list.check(set),
        }
    }

    /// Episode `index` of `set`.
    ///
    /// # Panics
    /// Beyond the end of a list.
    pub(super) fn episode(&self, set: &dyn ClassSet, index: u64) -> Episode {
        match self {
            Self::Fixed { protocol, counts, seed } => {
                let queries = counts.draw(*protocol, *seed, index);
                let mut random = Stream::new(*seed, Purpose::Episode, [index, 0]);
                draw::episode(set, protocol.shots, &queries, &mut random)
            }
            Self::Varied { seed } => varied::episode(set, *seed, index),
            Self::MiniBatches { images, seed } => mini_batch::episode(set, *images, *seed, index),
            Self::Listed(list) => list.episode(index).clone(),
        }
    }

    /// Sizes of all episodes.
    pub(super) fn sizes(&self) -> EpisodeSizes {
        match self {
            Self::Fixed { protocol, .. } => EpisodeSizes::Fixed(*protocol),
            Self::Varied { .. } => EpisodeSizes::Varied,
            Self::MiniBatches { images, .. } => EpisodeSizes::MiniBatch { images: *images },
            Self::Listed(list) => list.sizes(),
        }
    }

    /// The numbers that all episodes have in common, if they have.
    pub(super) fn batch_sizes(&self) -> Option<BatchSizes> {
        match self {
            Self::Fixed { protocol, .. } => Some((*protocol).into()),
            Self::Varied { .. } => None,
            Self::MiniBatches { images, .. } => Some(mini_batch::protocol(*images).into()),
            Self::Listed(list) => list.batch_sizes(),
        }
    }

    /// The protocol whose episodes are at least as large as all of these.
    pub(super) fn largest(&self, set: &dyn ClassSet) -> Protocol {
        match self {
            Self::Fixed { protocol, .. } => *protocol,
            Self::Varied { .. } => varied::largest(set),
            Self::MiniBatches { images, .. } => mini_batch::protocol(*images),
            Self::Listed(list) => list.largest(),
        }
    }

    /// The list, if episodes come from one.
    pub(super) fn list(&self) -> Option<&EpisodeList> {
        match self {
            Self::Fixed { .. } | Self::Varied { .. } | Self::MiniBatches { .. } => None,
            Self::Listed(list) => Some(list),
        }
    }

    /// The seed; none of a list.
    pub(super) fn seed(&self) -> Option<u64> {
        match self {
            Self::Fixed { seed, .. } | Self::Varied { seed } | Self::MiniBatches { seed, .. } => {
                Some(*seed)
            }
            Self::Listed(_) => None,
        }
    }

    /// Settings that a resumed run must find unchanged.
    pub(super) fn settings(&self) -> Value {
        match self {
            Self::Fixed { protocol, seed, .. } => json!({ "protocol": protocol, "seed": seed }),
            Self::Varied { seed } => json!({ "protocol": "varied", "seed": seed }),
            Self::MiniBatches { images, seed } => {
                json!({ "protocol": { "mini_batch": images }, "seed": seed })
            }
            Self::Listed(list) => json!({ "protocol": { "listed": list.digest() } }),
        }
    }
}
