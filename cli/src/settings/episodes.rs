//! The episodes of training and test.

use fewshot::data::ImageSet;
use fewshot::episode::{EpisodeList, EpisodeSampler, EpisodeSizes, Protocol};

use super::RunSettings;
use crate::args::{EvalArgs, Sampling, TestEpisodes, TrainArgs, first_given};
use crate::prelude::*;

/// The episodes of a test.
#[derive(Clone, Debug)]
pub(crate) enum TestRule {
    /// Drawn by the seed, of this protocol or of various sizes.
    Drawn(Sampling, Protocol),
    /// All episodes of a file.
    Listed(PathBuf),
}

impl TestRule {
    /// The episodes of `images`.
    pub(crate) fn sampler(&self, images: ImageSet, seed: u64) -> Result<EpisodeSampler> {
        Ok(match self {
            Self::Drawn(sampling, protocol) => sampled(images, *sampling, *protocol, seed)?,
            Self::Listed(path) => {
                let list = EpisodeList::read(path, &images)?;
                EpisodeSampler::listed(images, list)?
            }
        })
    }
}

/// Episodes of `protocol`, or of various sizes.
pub(crate) fn sampled(
    images: ImageSet,
    sampling: Sampling,
    protocol: Protocol,
    seed: u64,
) -> Result<EpisodeSampler> {
    Ok(match sampling {
        Sampling::Fixed => images.sampler(protocol, seed)?,
        Sampling::Varied => EpisodeSampler::varied(images, seed)?,
    })
}

/// Number of the episodes of a test, 1000 unless it is given.
pub(crate) fn number_of_episodes(given: Option<&TestEpisodes>, sampler: &EpisodeSampler) -> usize {
    let listed = sampler.list().map(EpisodeList::len);
    listed.or(given.and_then(TestEpisodes::drawn)).unwrap_or(1000)
}

/// Refuses sizes beside a rule that gives them.
pub(crate) fn refuse_sizes(given: Option<String>, by: &str) -> Result {
    given.map_or(Ok(()), |option| Err(usage!("{option} is not for {by}")))
}

/// The rule that leaves no size to be given.
pub(crate) const VARIED: &str = "--protocol varied, which draws the sizes of each episode";

/// The list that leaves nothing to be given.
pub(crate) const LISTED: &str = "--episodes FILE, which has all of the episodes";

/// Refuses the sizes that mini-batches of classical training and `--protocol varied` have no use for.
pub(crate) fn refuse_sizes_of_training(args: &TrainArgs, classical: bool) -> Result {
    let of_training = first_given!(args, train_ways, train_shots, train_queries);
    if classical {
        refuse_sizes(
            of_training.clone(),
            "--train classify, whose mini-batches have --batch-size images",
        )?;
    }
    if args.sampling.protocol != Some(Sampling::Varied) {
        return Ok(());
    }
    let at_once = first_given!(args.scale, auto_batch, micro_batch);
    let of_training = of_training.or(at_once).filter(|_| !classical);
    refuse_sizes(first_given!(args, ways, shots, queries).or(of_training), VARIED)
}

fn sampling_of(test: &EpisodeSampler) -> Sampling {
    match test.sizes() {
        EpisodeSizes::Varied => Sampling::Varied,
        EpisodeSizes::Fixed(_) | EpisodeSizes::MiniBatch { .. } | EpisodeSizes::Listed => {
            Sampling::Fixed
        }
    }
}

impl RunSettings {
    /// The episodes that a test of the run has by `args`: its own sizes, unless others are given.
    pub(crate) fn test_rule(&self, args: &EvalArgs, protocol: Protocol) -> Result<TestRule> {
        let sizes = first_given!(args, ways, shots, queries);
        if let Some(path) = args.list() {
            let by_rule = first_given!(args.sampling, protocol).or(first_given!(args, seed));
            refuse_sizes(sizes.or(by_rule), LISTED)?;
            return Ok(TestRule::Listed(path.to_path_buf()));
        }
        let sampling = match args.sampling.protocol {
            Some(Sampling::Varied) => {
                refuse_sizes(sizes, VARIED)?;
                Sampling::Varied
            }
            Some(Sampling::Fixed) => Sampling::Fixed,
            None if sizes.is_some() => Sampling::Fixed,
            None => self.sampling,
        };
        Ok(TestRule::Drawn(sampling, protocol))
    }

    /// Refuses episodes of numbers of ways that the network has no outputs for.
    pub(crate) fn check_ways(&self, test: &EpisodeSampler) -> Result {
        if !self.has_outputs() {
            return Ok(());
        }
        let (method, outputs) = (self.method, self.outputs());
        let others = "protonet, proto-maml with --protocol varied and the heads on embeddings take any number";
        if self.takes_fewer_ways() {
            let most = match (test.list(), test.sizes()) {
                (Some(list), _) => {
                    list.episodes().iter().map(|episode| episode.classes.len()).max()
                }
                (None, EpisodeSizes::Fixed(protocol)) => Some(protocol.ways),
                (None, _) => None,
            };
            return match most {
                Some(most) if most > outputs => Err(usage!(
                    "{method} has {outputs} outputs, too few for a task of {most} classes"
                )),
                _ => Ok(()),
            };
        }
        if [self.sampling, sampling_of(test)].contains(&Sampling::Varied) {
            return Err(usage!(
                "{method} has an output for each class, and --protocol varied has tasks of several numbers of \
                 classes: {others}"
            ));
        }
        match test.list().and_then(|list| Some((list, list.first_without(outputs)?))) {
            None => Ok(()),
            Some((list, index)) => Err(usage!(
                "{method} has an output for each of {outputs} classes, and episode {} of the list has {}: {others}",
                index + 1,
                list.episodes()[index].classes.len()
            )),
        }
    }
}
