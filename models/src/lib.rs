//! Encoders for few-shot learning as plain [Burn](https://burn.dev) modules.
//!
//! A Burn project can depend on this crate alone: `Config -> init(device) -> forward`, on any
//! backend. Layers in [`nn`] can be differentiated twice, which Burn's own linear and pooling
//! layers cannot, and keep Burn's parameter names and shapes, so records and PyTorch weights load
//! as usual. With a `context`, [`Conv4`] and [`Mlp`] have a vector that starts at zero and that
//! alone is adapted.
//!
//! ```
//! use burn::backend::Flex;
//! use burn::tensor::Tensor;
//! use fewshot_models::{BnStatistics, Conv4Config, Encoder};
//!
//! let device = Default::default();
//! let encoder = Conv4Config::omniglot().init::<Flex>(&device);
//! let images = Tensor::zeros([2, 1, 28, 28], &device);
//! assert_eq!(encoder.encode(images, BnStatistics::Running).dims(), [2, 64]);
//! ```
#![forbid(unsafe_code)]
#![recursion_limit = "256"]

mod any;
mod classifier;
mod conv4;
mod cost;
mod efficientnet_lite;
mod encoder;
mod mlp;
pub mod nn;
pub mod onnx;
#[doc(hidden)]
pub mod pickle;
mod preprocessing;
mod resnet;
mod resnet12;
mod vit;
mod weights;
mod wide_resnet;

pub use any::{
    AnyEncoder, AnyEncoderRecord, AnyEncoderRecordItem, EncoderConfig, EncoderError, Normalization,
    OnImages,
};
pub use classifier::Classifier;
pub use conv4::{Conv4, Conv4Config, Conv4Error, Downsampling, Readout};
pub use cost::{Cost, CostModel};
pub use efficientnet_lite::{EfficientNetLite, EfficientNetLiteConfig};
pub use encoder::{Differentiable, Encoder};
pub use fewshot_kernels::Precision;
pub use mlp::{Mlp, MlpConfig};
pub use nn::BnStatistics;
pub use preprocessing::{Interpolation, Preprocessing};
pub use resnet::{ResNet, ResNetConfig};
pub use resnet12::{ResNet12, ResNet12Config};
pub use vit::{Vit, VitConfig, VitFamily};
pub use weights::{Pretrained, WeightsError};
pub use wide_resnet::{WideResNet, WideResNetConfig};
