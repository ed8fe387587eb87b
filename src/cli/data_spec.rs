use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use fewshot::data::{Color, Glyphs, GlyphsConfig, ImageFolder, Omniglot, OnBroken, Split, Splits};
use serde::{Deserialize, Serialize};

use super::error::{CliError, usage};
use super::output::print_status;

/// The source of tasks, as on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DataSpec {
    Images(ImageSpec),
    Sinusoids,
}

/// Where images come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum ImageSpec {
    Glyphs,
    Omniglot(PathBuf),
    Folder(PathBuf),
}

/// The name of sine waves.
pub(crate) const SINUSOID: &str = "sinusoid";

/// How images of a folder are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FolderOptions {
    /// Height and width in pixels.
    pub(crate) size: usize,
    pub(crate) color: Color,
    pub(crate) on_broken: OnBroken,
}

impl ImageSpec {
    /// Reads or generates the data; `split` is for Omniglot, `options` for folders.
    pub(crate) fn open(&self, split: Split, options: FolderOptions) -> Result<Splits, CliError> {
        match self {
            Self::Glyphs => Ok(Glyphs::generate(&GlyphsConfig::default())),
            Self::Omniglot(folder) => Ok(Omniglot::open(folder)?.split(split)?),
            Self::Folder(folder) => {
                let FolderOptions { size, color, on_broken } = options;
                let folder = ImageFolder::new(folder).size(size, size);
                // The shuffle of the classes belongs to the data: no seed of a run changes it.
                let report = folder.color(color).on_broken(on_broken).open_splits(0)?;
                if !report.skipped.is_empty() {
                    print_status(format_args!("broken images left out: {}", report.skipped.len()));
                }
                Ok(report.data)
            }
        }
    }

    /// An option that this data has no use for is a mistake of the user's.
    pub(crate) fn refuse_other_options(
        &self,
        split: Option<Split>,
        of_folder: bool,
    ) -> Result<(), CliError> {
        let name = self.name();
        if split.is_some() && !matches!(self, Self::Omniglot(_)) {
            return Err(usage!("--split is for omniglot, not for {name}"));
        }
        if of_folder && !matches!(self, Self::Folder(_)) {
            let options = "--image-size, --grey and --skip-broken are";
            return Err(usage!("{options} for folder, not for {name}"));
        }
        Ok(())
    }

    /// The same data under an absolute path.
    pub(crate) fn absolute(mut self) -> Self {
        if let Self::Omniglot(folder) | Self::Folder(folder) = &mut self
            && let Ok(absolute) = folder.canonicalize()
        {
            *folder = absolute;
        }
        self
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

impl Default for FolderOptions {
    fn default() -> Self {
        Self { size: 84, color: Color::Rgb, on_broken: OnBroken::Fail }
    }
}

impl FromStr for ImageSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "glyphs" => Ok(Self::Glyphs),
            Some(("omniglot", folder)) if !folder.is_empty() => Ok(Self::Omniglot(folder.into())),
            Some(("folder", folder)) if !folder.is_empty() => Ok(Self::Folder(folder.into())),
            _ => Err(format!("{text:?} is none of glyphs, omniglot:DIR, folder:DIR and sinusoid")),
        }
    }
}

impl FromStr for DataSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            SINUSOID => Ok(Self::Sinusoids),
            _ => text.parse().map(Self::Images),
        }
    }
}

impl fmt::Display for ImageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Glyphs => f.write_str(self.name()),
            Self::Omniglot(folder) | Self::Folder(folder) => {
                write!(f, "{}:{}", self.name(), folder.display())
            }
        }
    }
}

impl TryFrom<String> for ImageSpec {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ImageSpec> for String {
    fn from(spec: ImageSpec) -> Self {
        spec.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_reads_as_it_is_written() {
        for text in ["glyphs", "omniglot:a/b", "folder:C:/images"] {
            assert_eq!(text.parse::<ImageSpec>().unwrap().to_string(), text);
        }
        for text in ["", "glyph", "omniglot", "omniglot:", "folder:", "cifar:x"] {
            assert!(text.parse::<DataSpec>().is_err(), "{text}");
        }
        assert_eq!("sinusoid".parse(), Ok(DataSpec::Sinusoids));
    }
}
