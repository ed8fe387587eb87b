use fewshot_models::Preprocessing;
use serde::{Deserialize, Serialize};

use crate::data::{ImageShape, Picture};

/// How a picture becomes an image that a network takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Preparation {
    /// As those that a network with published weights was trained on: [`Picture::prepared`].
    Published(Preprocessing),
    /// As those that readers of this crate make to train on: [`Picture::stretched`].
    Stretched {
        /// Channels, height and width of the images.
        image: ImageShape,
        /// What becomes of dark and bright.
        shades: Shades,
    },
}

/// What becomes of dark and bright in a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shades {
    /// They stay.
    #[default]
    Kept,
    /// They change places: dark ink on white paper becomes bright ink on black, as images of
    /// [`Omniglot`](crate::data::Omniglot), [`Glyphs`](crate::data::Glyphs) and [`fonts`](crate::data::fonts()) have it.
    Inverted,
}

impl Preparation {
    /// Channels, height and width of the image.
    pub fn image(&self) -> ImageShape {
        match *self {
            Self::Published(Preprocessing { crop, .. }) => ImageShape::new(3, crop, crop),
            Self::Stretched { image, .. } => image,
        }
    }

    /// The image that a picture becomes, `[c, h, w]`.
    pub fn apply(&self, picture: &Picture) -> Vec<f32> {
        match self {
            Self::Published(how) => picture.prepared(how),
            Self::Stretched { image, shades } => picture.stretched(*image, *shades),
        }
    }
}
