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
//! | [`ImageFolder`] | one folder each | image files of your own |
//!
//! Embeddings that a network has made already are [`Features`], read from files.
//!
//! Regression tasks are drawn from [`Functions`]: [`Sinusoids`], or a family of your own.

mod class_dataset;
mod error;
mod features;
mod functions;
mod glyphs;
mod image_folder;
mod image_set;
mod omniglot;
mod picture;
mod pixel_block;
mod quarter_turn;
mod splits;
mod uploads;

pub use class_dataset::{ClassDataset, ImageShape, Scaling};
pub use error::DataError;
pub use features::{Comparison, Features};
pub use functions::{Functions, Sinusoid, Sinusoids};
pub use glyphs::{Glyphs, GlyphsConfig};
pub use image_folder::{Color, FolderReport, ImageFolder, OnBroken, picture_files, pictures_in};
pub use image_set::{ImageSet, Rotations};
pub use omniglot::{Omniglot, Split};
pub use picture::Picture;
pub use pixel_block::PixelBlock;
pub use quarter_turn::QuarterTurn;
pub use splits::Splits;
pub(crate) use uploads::Uploads;
