use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::data::{ClassDataset, DataError, ImageSet, QuarterTurn, Result, Splits};
use crate::random::{Purpose, Stream};

/// The two ways in which papers split Omniglot; their figures are not to be compared.
///
/// Written and read as `vinyals`, `finn:SEED`, or `finn` for seed 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Split {
    /// The published lists: 1028, 172 and 423 characters, each of the four quarter turns a class of
    /// its own, in testing too: 4112, 688 and 1692 classes.
    ///
    /// # Source
    /// Vinyals et al. (2016) and Snell et al. (2017). The lists `train.txt`, `val.txt` and
    /// `test.txt` of github.com/jakesnell/prototypical-networks, `data/omniglot/splits/vinyals`,
    /// are read from `splits/vinyals` beside the images.
    Vinyals,
    /// All 1623 characters shuffled: 1100 to train, 100 to validate, 423 to test on. Every class of
    /// an episode is shown in a quarter turn drawn for it, in testing too.
    ///
    /// # Conventions
    /// The sizes and turns of the authors' code. Their shuffle is Python's, of folders in the order
    /// of their disk; no other program can repeat it, so the seed here stands for another draw.
    ///
    /// # Source
    /// Finn, Abbeel and Levine (2017), github.com/cbfinn/maml, `data_generator.py`.
    Finn {
        /// Shuffles the characters; papers average over none or a few.
        seed: u64,
    },
}

impl FromStr for Split {
    type Err = DataError;

    fn from_str(text: &str) -> Result<Self> {
        let unknown = || DataError::UnknownSplit { text: text.to_string() };
        match text {
            "vinyals" => Ok(Self::Vinyals),
            "finn" => Ok(Self::Finn { seed: 1 }),
            _ => {
                let seed = text.strip_prefix("finn:").ok_or_else(unknown)?;
                Ok(Self::Finn { seed: seed.parse().map_err(|_| unknown())? })
            }
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vinyals => write!(f, "vinyals"),
            Self::Finn { seed } => write!(f, "finn:{seed}"),
        }
    }
}

const FINN: [usize; 3] = [1100, 100, 423];

pub(super) fn finn(characters: &ImageSet, seed: u64) -> Result<Splits> {
    let expected = FINN.iter().sum();
    let actual = characters.classes();
    if actual < expected {
        return Err(DataError::TooFewClasses { split: "the Finn split", expected, actual });
    }
    let order = Stream::new(seed, Purpose::SplitClasses, [0, 0]).permutation(actual);
    Ok(Splits::partition(characters, &order[..expected], FINN))
}

pub(super) fn vinyals(characters: &ImageSet, lists: &Path) -> Result<Splits> {
    let index: HashMap<String, usize> =
        (0..characters.classes()).map(|class| (characters.class_name(class), class)).collect();
    let listed = |file| {
        let turned = read_list(&lists.join(file), &index)?;
        Ok(characters.select_turned(turned))
    };
    Ok(Splits {
        train: listed("train.txt")?,
        validation: listed("val.txt")?,
        test: listed("test.txt")?,
    })
}

/// The classes of a list: a character and a turn a line, written `Alphabet/characterNN/rotDDD`.
fn read_list(path: &Path, index: &HashMap<String, usize>) -> Result<Vec<(usize, QuarterTurn)>> {
    let wrong = |reason| DataError::SplitList { path: path.to_path_buf(), reason };
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => wrong(
            "it is not there; the lists are published at \
             github.com/jakesnell/prototypical-networks in data/omniglot/splits/vinyals"
                .to_owned(),
        ),
        _ => DataError::read(path)(error),
    })?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let classes = lines.map(|(number, line)| {
        read_line(line.trim(), index)
            .map_err(|reason| wrong(format!("line {number}: {line:?} {reason}")))
    });
    let classes = classes.collect::<Result<Vec<_>, _>>()?;
    match classes.is_empty() {
        true => Err(wrong("it is empty".to_owned())),
        false => Ok(classes),
    }
}

fn read_line(
    line: &str,
    index: &HashMap<String, usize>,
) -> Result<(usize, QuarterTurn), &'static str> {
    let form = "is not of the form Alphabet/characterNN/rotDDD";
    let (character, turn) = line.rsplit_once("/rot").ok_or(form)?;
    let degrees = turn.parse().map_err(|_| form)?;
    let turn = QuarterTurn::from_degrees(degrees).ok_or("is not turned by 0, 90, 180 or 270")?;
    let class = index.get(character).ok_or("is a character that the images do not have")?;
    Ok((*class, turn))
}
