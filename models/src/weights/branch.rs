//! The part of a file's names that a network is under.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::path::Path;

use burn::tensor::backend::Backend;
use burn_store::{BurnToPyTorchAdapter, ModuleSnapshot, TensorSnapshot, TensorSnapshotError};
use strsim::normalized_damerau_levenshtein;

use super::arranged::{joined, renamed, transposed};
use super::{Pretrained, WeightsError};

/// Dictionaries and wrappers above a network, at most.
const DEPTH: usize = 8;

/// Names that an error lists, at most.
const LISTED: usize = 5;

/// Least likeness, a share of letters, of a name that is shown beside one that is missing.
const ALIKE: f64 = 0.5;

/// Shapes of a network's tensors, by the names that PyTorch has for them.
pub(super) type Shapes = BTreeMap<String, Vec<usize>>;

pub(super) fn shapes<B: Backend>(network: &impl ModuleSnapshot<B>) -> Shapes {
    let all = network.collect(None, Some(Box::new(BurnToPyTorchAdapter)), false).into_iter();
    all.map(|of| (of.full_path(), of.shape.to_vec())).collect()
}

/// The prefixes under which the most of a network's tensors are: several where they have equally many, none at all where
/// that is less than half of the network.
pub(super) fn fullest<'a>(
    own: &Shapes,
    names: impl Iterator<Item = &'a str>,
    parameter_name: impl Fn(&str) -> String,
) -> Vec<&'a str> {
    let mut under: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for name in names {
        let dots = name.match_indices('.').map(|(at, _)| at + 1);
        for start in iter::once(0).chain(dots).take(DEPTH + 1) {
            let parameter = parameter_name(&name[start..]);
            if own.contains_key(&parameter) {
                under.entry(&name[..start]).or_default().insert(parameter);
            }
        }
    }
    let most = under.values().map(BTreeSet::len).max().unwrap_or(0);
    if 2 * most < own.len() {
        return vec![""];
    }
    under.retain(|_, parameters| parameters.len() == most);
    under.into_keys().collect()
}

/// A prefix of names in a file, and what is under it.
pub(super) struct Branch<'a> {
    pub(super) file: &'a Path,
    pub(super) prefix: &'a str,
}

impl Branch<'_> {
    /// The network in the size that it has here, and its tensors, in the order of their names.
    pub(super) fn fit<B: Backend, N: Pretrained<B>>(
        &self,
        mut network: N,
        given: &BTreeMap<String, TensorSnapshot>,
    ) -> Result<(N, Vec<TensorSnapshot>), WeightsError> {
        let own = shapes(&network);
        let is_own = |published: &str| own.contains_key(&N::parameter_name(published));
        let inside = given.iter().filter_map(|(name, tensor)| {
            let published = name.strip_prefix(self.prefix)?;
            let taken = is_own(published) || !is_ignored::<B, N>(published, &is_own);
            taken.then(|| (published.to_owned(), tensor.clone()))
        });
        let (mut fitting, mut unknown) = (BTreeMap::new(), Vec::new());
        for (published, tensor) in joined(self, inside.collect(), N::PARTS, own.len())? {
            let name = N::parameter_name(&published);
            if !own.contains_key(&name) || fitting.contains_key(&name) {
                unknown.push(self.named(&published));
                continue;
            }
            let tensor = match N::TRANSPOSED.contains(&published.as_str()) {
                true => transposed(tensor),
                false => tensor,
            };
            network.resize(&name, &tensor.shape);
            fitting.insert(name, (published, tensor));
        }
        self.refuse_missing(&own, &fitting, &unknown, N::published_name)?;
        let own = shapes(&network);
        let tensors = fitting.into_iter().map(|(name, (published, tensor))| {
            let (expected, tensor) = (&own[&name], renamed(tensor, &name, &own[&name]));
            if *tensor.shape == expected[..] {
                return Ok(tensor);
            }
            let (file, parameter) = (self.file.to_owned(), self.named(&published));
            let (expected, actual) = (expected.clone(), tensor.shape.to_vec());
            Err(WeightsError::Shape { file, parameter, expected, actual })
        });
        let tensors = tensors.collect::<Result<_, _>>()?;
        if unknown.is_empty() {
            return Ok((network, tensors));
        }
        let (file, count) = (self.file.to_owned(), unknown.len());
        unknown.truncate(LISTED);
        Err(WeightsError::Unknown { file, names: unknown, unknown: count })
    }

    fn refuse_missing(
        &self,
        own: &Shapes,
        fitting: &BTreeMap<String, (String, TensorSnapshot)>,
        unknown: &[String],
        published_name: impl Fn(&str) -> String,
    ) -> Result<(), WeightsError> {
        let missing: Vec<_> = own.keys().filter(|name| !fitting.contains_key(*name)).collect();
        let Some(first) = missing.first() else { return Ok(()) };
        let alike =
            fitting.iter().find_map(|(name, (published, _))| spelled(first, name, published));
        let parameter = self.named(&alike.unwrap_or_else(|| published_name(first)));
        let alike = |name: &String| normalized_damerau_levenshtein(&parameter, name);
        let alike = unknown.iter().map(|name| (alike(name), name));
        let nearest = alike.filter(|(share, _)| *share >= ALIKE).max_by(|a, b| a.0.total_cmp(&b.0));
        let nearest = nearest.map(|(_, name)| name.clone());
        let (file, missing, expected) = (self.file.to_owned(), missing.len(), own.len());
        Err(WeightsError::Missing { file, parameter, nearest, missing, expected })
    }

    /// The whole name in the file of what has this name under the prefix.
    pub(super) fn named(&self, published: &str) -> String {
        format!("{}{published}", self.prefix)
    }
}

/// Tells whether no feature depends on a tensor: one of those that the network lists, or the number of batches that a norm saw.
fn is_ignored<B: Backend, N: Pretrained<B>>(
    published: &str,
    is_own: impl Fn(&str) -> bool,
) -> bool {
    let listed = |of: &&str| match of.ends_with('.') {
        true => published.starts_with(*of),
        false => published == *of,
    };
    let norm = published.strip_suffix("num_batches_tracked");
    N::IGNORED_NAMES.iter().any(listed)
        || norm.is_some_and(|norm| is_own(&format!("{norm}running_mean")))
}

/// A parameter's published name, if it is another block's `like`, of which the `published` name is known.
fn spelled(parameter: &str, like: &str, published: &str) -> Option<String> {
    let is_number = |part: &&str| part.parse::<usize>().is_ok();
    let form = |name: &str| -> Vec<String> {
        let part = |part: &str| if is_number(&part) { "#" } else { part }.to_owned();
        name.split('.').map(part).collect()
    };
    let numbers = |name: &'_ str| name.split('.').filter(is_number).map(str::to_owned).collect();
    let (new, old, known): (Vec<String>, Vec<String>, Vec<String>) =
        (numbers(parameter), numbers(like), numbers(published));
    if form(parameter) != form(like) || old != known {
        return None;
    }
    let mut new = new.into_iter();
    let part = |part: &str| match is_number(&part) {
        true => new.next().unwrap_or_default(),
        false => part.to_owned(),
    };
    Some(published.split('.').map(part).collect::<Vec<_>>().join("."))
}

/// Compares the values of two branches.
pub(super) fn same(
    these: &[TensorSnapshot],
    those: &[TensorSnapshot],
) -> Result<bool, TensorSnapshotError> {
    for (this, that) in these.iter().zip(those) {
        if this.to_data()?.as_bytes() != that.to_data()?.as_bytes() {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(names: &[&str]) -> Shapes {
        names.iter().map(|name| ((*name).to_owned(), vec![1])).collect()
    }

    #[test]
    fn the_prefix_is_that_of_the_most_names() {
        let own = own(&["stem.weight", "body.0.weight", "body.1.weight"]);
        let prefixes =
            |names: &[&'static str]| fullest(&own, names.iter().copied(), |name| name.to_owned());
        let whole = ["a.b.stem.weight", "a.b.body.0.weight", "a.b.body.1.weight", "stem.weight"];
        assert_eq!(prefixes(&whole), ["a.b."]);
        assert_eq!(prefixes(&["x.stem.weight", "x.body.0.weight", "y.body.1.weight"]), ["x."]);
        let twice = ["q.stem.weight", "q.body.1.weight", "k.stem.weight", "k.body.1.weight"];
        assert_eq!(prefixes(&twice), ["k.", "q."]);
        assert_eq!(prefixes(&["fc.weight", "other.stem.weight"]), [""]);
    }

    #[test]
    fn a_missing_name_is_spelled_like_its_likes() {
        let spelled =
            |parameter| spelled(parameter, "blocks.2.norm1.weight", "resblocks.2.ln_1.weight");
        assert_eq!(spelled("blocks.11.norm1.weight").unwrap(), "resblocks.11.ln_1.weight");
        assert_eq!(spelled("blocks.11.norm2.weight"), None);
    }
}
