use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use fewshot::data::{
    Color, DataError, FolderReport, Glyphs, GlyphsConfig, ImageShape, Omniglot, OnBroken, Pack,
    PictureLimits, PixelStore, ReadOptions, Shades, Split, Splits, cifar_fs, csv_list, cub, fc100,
    fonts, image_folder_splits, meta_album, mini_imagenet, tiered_imagenet,
};
use serde::{Deserialize, Serialize};

use crate::prelude::*;

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
    /// A format by its place in the table.
    Files(usize, PathBuf),
}

/// A part of a dataset, by its classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Classes to report an accuracy on
    #[default]
    Test,
    /// Classes to choose a network by
    Validation,
    /// Classes to learn from: the base classes
    Train,
}

pub(crate) const SINUSOID: &str = "sinusoid";

type Reader = fn(&Path, &ReadOptions) -> Result<FolderReport<Splits>, DataError>;

struct Format {
    name: &'static str,
    /// `DIR` or `FILE`.
    path: &'static str,
    /// Default height and width in pixels.
    side: usize,
    color: Color,
    /// Treatment of shades that turns pictures into images like these.
    shades: Shades,
    open: Reader,
}

const fn photos(name: &'static str, side: usize, open: Reader) -> Format {
    Format { name, path: "DIR", side, color: Color::Rgb, shades: Shades::Kept, open }
}

/// Seed of splits that shuffle classes; it belongs to the data, whatever the seed of a run.
const SHUFFLE: u64 = 0;

/// The format whose images are decoded already.
const PACK: &str = "pack";

const FORMATS: [Format; 10] = [
    photos("folder", 84, |dir, options| image_folder_splits(dir, options, SHUFFLE)),
    Format { path: "FILE", ..photos("csv", 84, |file, options| csv_list(file, options, SHUFFLE)) },
    photos("mini-imagenet", 84, |dir, options| mini_imagenet(dir, options)),
    photos("tiered-imagenet", 84, |dir, options| tiered_imagenet(dir, options)),
    photos("cifar-fs", 32, |dir, options| cifar_fs(dir, options)),
    photos("fc100", 32, |dir, options| fc100(dir, options)),
    photos("cub", 84, |dir, options| cub(dir, options)),
    photos("meta-album", 128, |dir, options| meta_album(dir, options, SHUFFLE)),
    Format {
        color: Color::Grey,
        shades: Shades::Inverted,
        ..photos("fonts", 28, |dir, options| fonts(dir, options, SHUFFLE))
    },
    // Its size, channels and shades are its own.
    Format {
        path: "FILE",
        ..photos(PACK, 84, |file, _| Ok(FolderReport::whole(Pack::open(file)?.splits())))
    },
];

/// Options for reading images of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FolderOptions {
    /// Height and width in pixels.
    pub(crate) size: usize,
    pub(crate) color: Color,
    pub(crate) on_broken: OnBroken,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) limits: PictureLimits,
    /// Treatment of shades, where it is not that of the format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shades: Option<Shades>,
}

fn is_default(limits: &PictureLimits) -> bool {
    *limits == PictureLimits::default()
}

/// Names of files that are printed, at most.
const NAMED: usize = 10;

/// The data that was read. Files that were left out, or are in two classes, are printed.
pub(crate) fn tell_left_out<D>(report: FolderReport<D>) -> D {
    let FolderReport { data, skipped, duplicates, contradictions, repeated_rows } = report;
    if !skipped.is_empty() {
        print_status(format_args!("broken images left out: {}", skipped.len()));
        skipped.iter().take(NAMED).for_each(|broken| print_status(format_args!("  {broken}")));
    }
    if repeated_rows > 0 {
        print_status(format_args!("rows that name a picture again: {repeated_rows}"));
    }
    tell_equal("images left out that equal another of their class", &duplicates);
    tell_equal("warning: images that equal one of another class", &contradictions);
    data
}

fn tell_equal(what: &str, pairs: &[[PathBuf; 2]]) {
    if let Some([one, other]) = pairs.first().map(|pair| pair.each_ref().map(|path| path.display()))
    {
        print_status(format_args!("{what}: {} ({other} and {one})", pairs.len()));
    }
}

/// Every way to write data that has images.
pub(crate) fn image_specs() -> String {
    let formats = FORMATS.iter().map(|Format { name, path, .. }| format!(", {name}:{path}"));
    format!("glyphs, omniglot:DIR{}", formats.collect::<String>())
}

/// Every way to write data, for the help.
pub(crate) fn specs(what: &str) -> String {
    format!("{what}: {} or {SINUSOID}", image_specs())
}

impl ImageSpec {
    pub(crate) fn open(&self, split: Split, options: FolderOptions) -> Result<Splits> {
        self.open_in(split, options, PixelStore::Memory)
    }

    /// The same with pictures of files decoded to a place of their own.
    pub(crate) fn open_in(
        &self,
        split: Split,
        options: FolderOptions,
        store: PixelStore,
    ) -> Result<Splits> {
        match self {
            Self::Glyphs => Ok(Glyphs::generate(&GlyphsConfig::default())),
            Self::Omniglot(folder) => Ok(Omniglot::open(folder)?.split(split)?),
            Self::Files(format, path) => {
                let FolderOptions { size, color, on_broken, limits, .. } = options;
                let square = ReadOptions::square(size);
                let options = ReadOptions { color, on_broken, limits, store, ..square };
                Ok(tell_left_out((FORMATS[*format].open)(path, &options)?))
            }
        }
    }

    /// An option that this data has no use for is a mistake of the user's.
    pub(crate) fn refuse_other_options(&self, split: Option<Split>, of_files: bool) -> Result {
        let name = self.name();
        if split.is_some() && !matches!(self, Self::Omniglot(_)) {
            return Err(usage!("--split is for omniglot, not for {name}"));
        }
        if of_files && !matches!(self, Self::Files(..)) {
            let options = "--image-size, --grey, --skip-broken and --max-pixels are";
            return Err(usage!("{options} for folder and other files, not for {name}"));
        }
        if of_files && self.pack().is_some() {
            let options = "--image-size, --grey, --skip-broken and --max-pixels are";
            return Err(usage!("{options} for pictures to decode, those of {name} are decoded"));
        }
        Ok(())
    }

    /// The options of a pack are those that it was made with.
    pub(crate) fn default_options(&self) -> Result<FolderOptions> {
        let format = if let Self::Files(format, _) = self { *format } else { 0 };
        let Format { side, color, .. } = FORMATS[format];
        let limits = PictureLimits::default();
        let default =
            FolderOptions { size: side, color, on_broken: OnBroken::Fail, limits, shades: None };
        let Some(file) = self.pack() else { return Ok(default) };
        let pack = Pack::open(file)?;
        let ImageShape { channels, height, .. } = pack.image_shape();
        let color = if channels == 1 { Color::Grey } else { Color::Rgb };
        Ok(FolderOptions { size: height, color, shades: Some(pack.shades()), ..default })
    }

    /// The file, if it is a pack.
    pub(crate) fn pack(&self) -> Option<&Path> {
        match self {
            Self::Files(format, file) if FORMATS[*format].name == PACK => Some(file),
            _ => None,
        }
    }

    /// Treatment of shades that turns pictures into images like these: characters are bright on dark.
    pub(crate) fn shades(&self) -> Shades {
        match self {
            Self::Glyphs | Self::Omniglot(_) => Shades::Inverted,
            Self::Files(format, _) => FORMATS[*format].shades,
        }
    }

    pub(crate) fn absolute(mut self) -> Self {
        if let Self::Omniglot(path) | Self::Files(_, path) = &mut self
            && let Ok(absolute) = path.canonicalize()
        {
            *path = absolute;
        }
        self
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Glyphs => "glyphs",
            Self::Omniglot(_) => "omniglot",
            Self::Files(format, _) => FORMATS[*format].name,
        }
    }

    /// Name of the split of this data in a report.
    pub(crate) fn split_name(&self, split: Split) -> String {
        match self {
            Self::Glyphs => "alphabets".to_owned(),
            Self::Omniglot(_) => split.to_string(),
            Self::Files(..) => "classes".to_owned(),
        }
    }
}

impl FromStr for ImageSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = text.split_once(':').filter(|(_, path)| !path.is_empty());
        let (name, path) = split.unwrap_or((text, ""));
        let format = FORMATS.iter().position(|format| format.name == name);
        match (name, format) {
            ("glyphs", _) if path.is_empty() => Ok(Self::Glyphs),
            ("omniglot", _) if !path.is_empty() => Ok(Self::Omniglot(path.into())),
            (_, Some(format)) if !path.is_empty() => Ok(Self::Files(format, path.into())),
            _ => Err(format!("{text:?} is none of {} and {SINUSOID}", image_specs())),
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
            Self::Omniglot(path) | Self::Files(_, path) => {
                write!(f, "{}:{}", self.name(), path.display())
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
        let specs =
            ["glyphs", "omniglot:a/b", "folder:C:/images", "csv:a:b.csv", "cub:c", "fonts:d"];
        for text in specs {
            assert_eq!(text.parse::<ImageSpec>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "glyph",
            "omniglot",
            "omniglot:",
            "folder:",
            "folder",
            "cifar:x",
            "glyphs:",
            "glyphs:x",
        ] {
            assert!(text.parse::<DataSpec>().is_err(), "{text}");
        }
        assert_eq!("sinusoid".parse(), Ok(DataSpec::Sinusoids));
    }

    #[test]
    fn every_format_has_its_own_name_and_size() {
        for (place, Format { name, .. }) in FORMATS.iter().enumerate() {
            let spec: ImageSpec = format!("{name}:x").parse().unwrap();
            assert_eq!(spec, ImageSpec::Files(place, "x".into()));
            assert!(image_specs().contains(&format!(", {name}:")), "{name}");
        }
        let side = |text: &str| text.parse::<ImageSpec>().unwrap().default_options().unwrap().size;
        assert_eq!(["glyphs", "folder:x", "fc100:x", "meta-album:x"].map(side), [84, 84, 32, 128]);
        let shades = |text: &str| text.parse::<ImageSpec>().unwrap().shades();
        assert_eq!(["glyphs", "omniglot:x", "fonts:x"].map(shades), [Shades::Inverted; 3]);
        assert_eq!(["folder:x", "csv:x", "cub:x"].map(shades), [Shades::Kept; 3]);
    }

    #[test]
    fn settings_of_earlier_runs_are_read() {
        let options = r#"{"size":84,"color":"Rgb","on_broken":"Fail"}"#;
        let options: FolderOptions = serde_json::from_str(options).unwrap();
        let folder: ImageSpec = serde_json::from_str(r#""folder:/a""#).unwrap();
        assert_eq!(options, folder.default_options().unwrap());
        let written = serde_json::to_string(&options).unwrap();
        assert_eq!(written, r#"{"size":84,"color":"Rgb","on_broken":"Fail"}"#);
        let limits = PictureLimits { pixels: 7 };
        let limited = FolderOptions { limits, ..options };
        let written = serde_json::to_string(&limited).unwrap();
        assert_eq!(serde_json::from_str::<FolderOptions>(&written).unwrap(), limited);
        let omniglot: ImageSpec = serde_json::from_str(r#""omniglot:/b""#).unwrap();
        assert_eq!(omniglot, ImageSpec::Omniglot("/b".into()));
    }
}
