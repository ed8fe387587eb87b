use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use fewshot::data::{Glyphs, GlyphsConfig, ImageFolder, Omniglot, Split, Splits};
use serde::{Deserialize, Serialize};

use super::error::CliError;

/// Where data comes from, as one word of the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum DataSpec {
    Glyphs,
    Omniglot(PathBuf),
    Folder(PathBuf),
}

impl DataSpec {
    /// Reads or generates the data; `side` is for folders, `split` for Omniglot.
    pub(crate) fn open(&self, split: Split, side: usize) -> Result<Splits, CliError> {
        match self {
            Self::Glyphs => Ok(Glyphs::generate(&GlyphsConfig::default())),
            Self::Omniglot(folder) => Ok(Omniglot::open(folder)?.split(split)?),
            Self::Folder(folder) => {
                Ok(ImageFolder::new(folder).size(side, side).open_splits(0)?.data)
            }
        }
    }

    /// The same data under an absolute path.
    pub(crate) fn absolute(self) -> Self {
        let absolute = |path: PathBuf| path.canonicalize().unwrap_or(path);
        match self {
            Self::Glyphs => Self::Glyphs,
            Self::Omniglot(folder) => Self::Omniglot(absolute(folder)),
            Self::Folder(folder) => Self::Folder(absolute(folder)),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Glyphs => "glyphs",
            Self::Omniglot(_) => "omniglot",
            Self::Folder(_) => "folder",
        }
    }

    /// What the split of this data is called in a report.
    pub(crate) fn split_name(&self, split: Split) -> String {
        match self {
            Self::Glyphs => "alphabets".to_owned(),
            Self::Omniglot(_) => split.to_string(),
            Self::Folder(_) => "classes".to_owned(),
        }
    }
}

impl FromStr for DataSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "glyphs" => Ok(Self::Glyphs),
            Some(("omniglot", folder)) if !folder.is_empty() => Ok(Self::Omniglot(folder.into())),
            Some(("folder", folder)) if !folder.is_empty() => Ok(Self::Folder(folder.into())),
            _ => Err(format!("{text:?} is none of glyphs, omniglot:DIR and folder:DIR")),
        }
    }
}

impl fmt::Display for DataSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Glyphs => f.write_str("glyphs"),
            Self::Omniglot(folder) => write!(f, "omniglot:{}", folder.display()),
            Self::Folder(folder) => write!(f, "folder:{}", folder.display()),
        }
    }
}

impl TryFrom<String> for DataSpec {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DataSpec> for String {
    fn from(spec: DataSpec) -> Self {
        spec.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_reads_as_it_is_written() {
        for text in ["glyphs", "omniglot:a/b", "folder:C:/images"] {
            assert_eq!(text.parse::<DataSpec>().unwrap().to_string(), text);
        }
        for text in ["", "glyph", "omniglot", "omniglot:", "folder:", "cifar:x"] {
            assert!(text.parse::<DataSpec>().is_err(), "{text}");
        }
    }
}
