use std::collections::{HashMap, HashSet};

use fewshot::data::{ClassDataset, ImageSet, Splits};
use serde::{Deserialize, Serialize};

use crate::data_spec::Part;
use crate::prelude::*;

/// The classes of a run, by which its data is known again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunClasses {
    train: Vec<KnownClass>,
    validation: Vec<KnownClass>,
    test: Vec<KnownClass>,
}

/// The name of a class with the digest of its files; written `0123456789abcdef owl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct KnownClass {
    name: String,
    files: u64,
}

/// Names that a message has at most.
const NAMED: usize = 5;

impl RunClasses {
    /// The classes of these sets; `None` if they come from no files that could change.
    pub(crate) fn from_splits(splits: &Splits) -> Option<Self> {
        Some(Self {
            train: known_classes(&splits.train)?,
            validation: known_classes(&splits.validation)?,
            test: known_classes(&splits.test)?,
        })
    }

    /// The run's own sets from data in which classes may have been added since.
    ///
    /// # Errors
    /// If a class of the run is gone or has other files.
    pub(crate) fn splits(&self, data: &Splits) -> Result<Splits> {
        let data = Data::new(data)?;
        data.tell_new(self);
        Ok(Splits {
            train: data.select(self, Part::Train)?,
            validation: data.select(self, Part::Validation)?,
            test: data.select(self, Part::Test)?,
        })
    }

    /// One of the run's own sets, as [`splits`](Self::splits) takes all three.
    pub(crate) fn images(&self, data: &Splits, part: Part) -> Result<ImageSet> {
        let data = Data::new(data)?;
        data.tell_new(self);
        data.select(self, part)
    }

    /// Warns of classes in `images`, of other data, that have names of classes that the run was trained on, maybe those of
    /// validation among them.
    pub(crate) fn warn_of_trained(&self, images: &ImageSet, on_validation: bool) {
        let validation = self.validation.iter().filter(|_| on_validation);
        let trained = self.train.iter().chain(validation).map(|class| class.name.as_str());
        let trained: HashSet<&str> = trained.collect();
        let names = (0..images.classes()).map(|class| images.class_name(class));
        let common: Vec<String> = names.filter(|name| trained.contains(name.as_str())).collect();
        if !common.is_empty() {
            let (count, all, names) = (common.len(), images.classes(), listed(&common));
            print_status(format_args!(
                "warning: {count} of the {all} classes have names of classes that the run was trained on: {names}"
            ));
        }
    }

    fn part(&self, part: Part) -> &[KnownClass] {
        match part {
            Part::Train => &self.train,
            Part::Validation => &self.validation,
            Part::Test => &self.test,
        }
    }

    fn names(&self) -> HashSet<&str> {
        let all = [&self.train, &self.validation, &self.test].into_iter().flatten();
        all.map(|class| class.name.as_str()).collect()
    }
}

fn known_classes(set: &ImageSet) -> Option<Vec<KnownClass>> {
    let known =
        |class| Some(KnownClass { name: set.class_name(class), files: set.files_digest(class)? });
    (0..set.classes()).map(known).collect()
}

/// All classes that there are, in whichever split a reader puts them.
struct Data {
    images: ImageSet,
    names: Vec<String>,
}

impl Data {
    fn new(splits: &Splits) -> Result<Self> {
        let images = splits.all().ok_or_else(|| failed!("the splits share no images"))?;
        let names = (0..images.classes()).map(|class| images.class_name(class)).collect();
        Ok(Self { images, names })
    }

    /// Tells which classes the run does not know.
    fn tell_new(&self, run: &RunClasses) {
        let new = self.new_to(run);
        if !new.is_empty() {
            let names = listed(&new);
            print_status(format_args!("left out, since the run does not know them: {names}"));
        }
    }

    fn new_to(&self, run: &RunClasses) -> Vec<&str> {
        let known = run.names();
        let names = self.names.iter().map(String::as_str);
        names.filter(|name| !known.contains(name)).collect()
    }

    fn select(&self, run: &RunClasses, part: Part) -> Result<ImageSet> {
        let places: HashMap<&str, usize> =
            self.names.iter().enumerate().map(|(place, name)| (name.as_str(), place)).collect();
        let (mut chosen, mut gone, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        for KnownClass { name, files } in run.part(part) {
            match places.get(name.as_str()) {
                None => gone.push(name),
                Some(&place) if self.images.files_digest(place) != Some(*files) => {
                    changed.push(name);
                }
                Some(&place) => chosen.push(place),
            }
        }
        let differences = [("no longer there", gone), ("with other pictures", changed)];
        let differences = differences.iter().filter(|(_, names)| !names.is_empty());
        let differences: Vec<String> =
            differences.map(|(what, names)| format!("{what}: {}", listed(names))).collect();
        if differences.is_empty() {
            return Ok(self.images.select(&chosen));
        }
        let (part, differences) = (lower(part), differences.join("; "));
        Err(failed!("the {part} classes are not those that the run was made with, {differences}"))
    }
}

/// The first names, and how many more there are.
fn listed<T: AsRef<str>>(names: &[T]) -> String {
    let first: Vec<&str> = names.iter().take(NAMED).map(AsRef::as_ref).collect();
    let more = names.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", first.join(", "))
}

impl TryFrom<String> for KnownClass {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let known = text.split_once(' ').filter(|(files, _)| files.len() == 16);
        let known = known.and_then(|(files, name)| {
            Some(Self { name: name.to_owned(), files: u64::from_str_radix(files, 16).ok()? })
        });
        known.ok_or_else(|| {
            format!("{text:?} is no class of a run: 16 hexadecimal digits, a space, a name")
        })
    }
}

impl From<KnownClass> for String {
    fn from(KnownClass { name, files }: KnownClass) -> Self {
        format!("{files:016x} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_reads_as_it_is_written() {
        let class = KnownClass { name: "snowy owl".to_owned(), files: 0xab };
        let text = serde_json::to_string(&class).unwrap();
        assert_eq!(text, r#""00000000000000ab snowy owl""#);
        assert_eq!(serde_json::from_str::<KnownClass>(&text).unwrap(), class);
        for wrong in ["", "owl", "ab owl", "00000000000000xy owl"] {
            assert!(KnownClass::try_from(wrong.to_owned()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn names_beyond_five_are_counted() {
        assert_eq!(listed(&["a", "b"]), "a, b");
        assert_eq!(listed(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }
}
