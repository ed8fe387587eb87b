use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::PIXELS;
use crate::data::{ImageSet, ImageShape, PixelBlock, QuarterTurn, Scaling, Shades};

/// The first bytes of a pack.
const MAGIC: [u8; 16] = *b"fewshot pack\0\0\0\0";

/// Version of the format that is written, and the only one that is read.
const VERSION: u64 = 1;

/// The bytes before the pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beginning {
    /// Place of the header in the file.
    pub(super) header: u64,
    pub(super) header_bytes: u64,
    sha256: [u8; 32],
}

impl Beginning {
    pub(super) const BYTES: usize = 72;

    /// The beginning of a pack with so many bytes of pixels and this header behind them.
    pub(super) fn new(pixels: u64, header: &[u8]) -> Self {
        let sha256 = Sha256::digest(header).into();
        Self { header: PIXELS + pixels, header_bytes: header.len() as u64, sha256 }
    }

    pub(super) fn bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let numbers = [VERSION, self.header, self.header_bytes].map(u64::to_le_bytes);
        bytes[..16].copy_from_slice(&MAGIC);
        bytes[16..40].copy_from_slice(&numbers.concat());
        bytes[40..].copy_from_slice(&self.sha256);
        bytes
    }

    /// The beginning of a file of so many bytes, or the reason why it is no whole pack.
    pub(super) fn read(bytes: &[u8; Self::BYTES], length: u64) -> Result<Self, String> {
        if bytes[..16] != MAGIC {
            return Err("it does not begin as a pack does".to_owned());
        }
        let number = |place: usize| {
            let bytes = bytes[16 + 8 * place..].first_chunk().expect("three numbers");
            u64::from_le_bytes(*bytes)
        };
        let [version, header, header_bytes] = [0, 1, 2].map(number);
        if version != VERSION {
            return Err(format!("it is of version {version}, and version {VERSION} is read"));
        }
        let end = header.checked_add(header_bytes);
        match end.filter(|_| header >= PIXELS) {
            Some(end) if end == length => {
                let sha256 = *bytes[40..].first_chunk().expect("a checksum");
                Ok(Self { header, header_bytes, sha256 })
            }
            Some(end) if end > length => {
                Err(format!("it was cut short: it has {length} of its {end} bytes"))
            }
            Some(end) => Err(format!("it has {length} bytes where a pack has {end}")),
            None => Err("its beginning is damaged".to_owned()),
        }
    }

    /// Bytes of its pixels.
    pub(super) fn pixels(&self) -> u64 {
        self.header - PIXELS
    }

    /// The header in `bytes`, or the reason why it is damaged.
    pub(super) fn header(&self, bytes: &[u8]) -> Result<Header, String> {
        if Sha256::digest(bytes)[..] != self.sha256 {
            return Err("its header is damaged: the checksum differs".to_owned());
        }
        let header: Header = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        header.check(self.pixels())?;
        Ok(header)
    }
}

/// The description of the pixels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    /// The program that wrote it.
    pub(super) created_by: String,
    pub(super) source: Value,
    pub(super) image: ImageShape,
    pub(super) images: usize,
    pub(super) shades: Shades,
    /// Checksum of the pixels, hexadecimal.
    pub(super) sha256: String,
    pub(super) train: PackedSet,
    pub(super) validation: PackedSet,
    pub(super) test: PackedSet,
}

impl Header {
    /// Checks that it describes so many bytes of pixels.
    pub(super) fn check(&self, pixels: u64) -> Result<(), String> {
        let Self { image, images, .. } = self;
        image.check().map_err(|error| error.to_string())?;
        let needed = (*images as u64).checked_mul(image.values() as u64);
        if needed != Some(pixels) {
            return Err(format!("it has {pixels} bytes of pixels for {images} images of {image}"));
        }
        let mut names = HashSet::new();
        [&self.train, &self.validation, &self.test].into_iter().try_for_each(|set| {
            set.check(*image, *images)?;
            match set.classes.iter().find(|class| !names.insert(class.name.as_str())) {
                Some(twice) => Err(format!("it has two classes {}", twice.name)),
                None => Ok(()),
            }
        })
    }
}

/// A set of classes in a pack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::data) struct PackedSet {
    pub(in crate::data) scaling: Scaling,
    pub(in crate::data) draws_turns: bool,
    pub(in crate::data) classes: Vec<PackedClass>,
}

/// A class in a pack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::data) struct PackedClass {
    pub(in crate::data) name: String,
    /// Number of its first image among all; the others follow.
    pub(in crate::data) first: usize,
    pub(in crate::data) images: usize,
    /// Quarter turn that its images are shown in.
    #[serde(default, skip_serializing_if = "is_upright")]
    pub(in crate::data) turn: QuarterTurn,
    /// Digest of the names of its files, 16 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::data) files: Option<FilesDigest>,
    /// Names of the files of its images, without folders; none where images have no files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::data) names: Vec<Box<str>>,
}

fn is_upright(turn: &QuarterTurn) -> bool {
    *turn == QuarterTurn::R0
}

/// A digest that is written with hexadecimal digits: many programs read numbers in JSON as 53 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(in crate::data) struct FilesDigest(pub(in crate::data) u64);

impl TryFrom<String> for FilesDigest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let digest = u64::from_str_radix(&text, 16).ok().filter(|_| digits);
        digest.map(Self).ok_or_else(|| format!("{text:?} is no digest: 16 hexadecimal digits"))
    }
}

impl From<FilesDigest> for String {
    fn from(FilesDigest(digest): FilesDigest) -> Self {
        format!("{digest:016x}")
    }
}

impl PackedSet {
    fn check(&self, image: ImageShape, images: usize) -> Result<(), String> {
        self.scaling.check(image.channels).map_err(|error| error.to_string())?;
        for PackedClass { name, first, images: count, turn, names, .. } in &self.classes {
            if *count == 0 || first.checked_add(*count).is_none_or(|end| end > images) {
                return Err(format!("class {name} has no images, or more than there are"));
            }
            if !names.is_empty() && names.len() != *count {
                return Err(format!("class {name} has {} names for {count} images", names.len()));
            }
            if !image.is_square() && (*turn != QuarterTurn::R0 || self.draws_turns) {
                return Err(format!("class {name} turns images of {image}"));
            }
        }
        Ok(())
    }

    /// Its images in a block.
    pub(super) fn images(&self, image: ImageShape, block: &Arc<PixelBlock>) -> ImageSet {
        ImageSet::packed(image, block.clone(), self)
    }
}
