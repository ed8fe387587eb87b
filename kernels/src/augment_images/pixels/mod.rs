//! Changes of the bytes of an image, on the host.

pub mod color;
mod hue;
pub mod rotation;
pub mod window;
