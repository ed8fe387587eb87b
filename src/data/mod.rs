//! Data that few-shot episodes are drawn from: images grouped by class, held as bytes.
//!
//! A [`ClassDataset`] answers which classes there are and writes one image of a class. What is read
//! or generated here is an [`ImageSet`], one shared block of pixels with cheap views; three of them
//! with no class in common are the [`Splits`] that a model is trained, chosen and tested on.
//!
//! | source | classes | needs |
//! |---|---|---|
//! | [`Glyphs`] | characters generated from a seed | nothing |
//! | [`Omniglot`] | 1623 handwritten characters | the two published zip files |
//! | [`image_folder`] | one folder each | image files of your own |
//! | [`csv_list`] | labels in a CSV file | the same, listed |
//! | [`mini_imagenet`], [`tiered_imagenet`] | 100, 608 of ImageNet | images and lists, or pickles |
//! | [`cifar_fs`], [`fc100`] | the 100 of CIFAR-100 | images and lists, or pickles |
//! | [`cub`] | 200 species of birds | the published folder |
//! | [`meta_album`] | those of one dataset of Meta-Album | the published folder |
//! | [`Pack`] | those of any of these, decoded once | the file that a [`PackWriter`] wrote |
//! | [`fonts`] | letters and digits, each drawn by many fonts | font files |
//!
//! An [`Augmentation`] changes training images at random.
//!
//! Embeddings that a network has made already are [`Features`], read from files.
//!
//! Regression tasks are drawn from [`Functions`]: [`Sinusoids`], or a family of your own.

mod augment;
mod cifar;
mod class_dataset;
mod class_name;
mod csv_list;
mod cub;
mod decode;
mod device_cache;
mod equal_files;
mod error;
mod features;
mod file_id;
mod fonts;
mod functions;
mod glyphs;
#[cfg(test)]
mod image_files;
mod image_folder;
mod image_set;
mod meta_album;
mod mini_imagenet;
mod needed_memory;
mod omniglot;
mod pack;
mod pickle;
mod pickled_images;
mod picture;
mod pixel_block;
mod preparation;
mod quarter_turn;
mod splits;
mod tiered_imagenet;

pub use augment::{
    AugmentError, AugmentSpec, AugmentStep, Augmentation, ColorJitter, HorizontalFlip, PaddedCrop,
    Preset, RandomErasing, RandomGrey, RandomRotation, ResizedCrop,
};
pub(crate) use augment::{Window, sides};
pub use cifar::{cifar_fs, fc100};
pub use class_dataset::{ClassDataset, ImageShape, Scaling};
pub use class_name::class_name;
pub use csv_list::csv_list;
pub use cub::cub;
pub use decode::PictureLimits;
pub(crate) use device_cache::DeviceCache;
pub use error::DataError;
pub use features::{FeatureRows, Features};
pub use fonts::fonts;
pub use functions::{Functions, Sinusoid, Sinusoids};
pub use glyphs::{Glyphs, GlyphsConfig};
pub use image_folder::{
    BrokenImage, ClassFiles, Color, FolderReport, OnBroken, PixelStore, ReadOptions, image_folder,
    image_folder_splits, picture_files, pictures_by_class, pictures_in, sound_pictures,
};
pub use image_set::{ImageSet, Rotations};
pub use meta_album::meta_album;
pub use mini_imagenet::mini_imagenet;
pub use omniglot::{Omniglot, Split};
pub use pack::{Pack, PackWriter};
pub use picture::Picture;
pub use pixel_block::PixelBlock;
pub use preparation::{Preparation, Shades};
pub use quarter_turn::QuarterTurn;
pub use splits::Splits;
pub use tiered_imagenet::tiered_imagenet;

/// A result with the errors of data; rustdoc writes the type out.
type Result<T = (), E = DataError> = std::result::Result<T, E>;
