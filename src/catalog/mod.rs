//! Backbones by name: what each takes, what runs where, and which one to choose.

mod backbone;
mod estimate;
mod matrix;
mod measure;
mod noise;
mod recommend;
mod smoke;

pub use crate::hardware::Method;
pub use backbone::{Backbone, BackboneConfig, backbone, backbones};
pub use estimate::Estimate;
pub use matrix::{Cell, Matrix, MatrixRow};
pub use recommend::{Recommendation, Target, recommend};
pub use smoke::smoke;
