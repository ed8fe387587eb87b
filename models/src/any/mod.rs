//! One type for every encoder, so that a program compiles a learner once and not once a network.

mod averages;
mod config;
mod module;
mod normalization;
mod parameters;
mod record;

pub use config::{EncoderConfig, EncoderError, OnImages};
pub use normalization::Normalization;
pub use record::{AnyEncoderRecord, AnyEncoderRecordItem};

use std::path::Path;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::Precision;

use crate::nn::BnStatistics;
use crate::weights::{Pretrained, WeightsError};
use crate::{Conv4, Differentiable, EfficientNetLite, Encoder, ResNet, ResNet12, Vit, WideResNet};

/// Any [`Encoder`] of this crate for images, chosen by an [`EncoderConfig`].
///
/// # Conventions
/// Parameters have the names that they have in the network itself. So does the record of a [`Conv4`]; that of another
/// network is under its name, and is read by recorders that keep names: MessagePack with names, and JSON.
///
/// With a [`Normalization`] the encoder takes images of values from 0 to 1 and normalises them first.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::Tensor;
/// use fewshot_models::{BnStatistics, Encoder, EncoderConfig};
///
/// let device = Default::default();
/// let config = EncoderConfig::named("resnet12", [3, 16, 16]).expect("a name of the list");
/// config.check()?;
/// let encoder = config.init::<Flex>(&device);
/// let images = Tensor::zeros([2, 3, 16, 16], &device);
/// assert_eq!(encoder.encode(images, BnStatistics::Running).dims(), [2, config.features()]);
/// # Ok::<(), fewshot_models::EncoderError>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnyEncoder<B: Backend> {
    network: Network<B>,
    normalization: Option<Normalization>,
}

/// In boxes, since a learner is passed by value, and some networks are too large for the stack of a thread.
#[derive(Clone, Debug)]
enum Network<B: Backend> {
    Conv4(Box<Conv4<B>>),
    ResNet12(Box<ResNet12<B>>),
    ResNet(Box<ResNet<B>>),
    WideResNet(Box<WideResNet<B>>),
    EfficientNetLite(Box<EfficientNetLite<B>>),
    Vit(Box<Vit<B>>),
}

/// Evaluates an expression with the network that there is.
macro_rules! with_network {
    ($any:expr, $network:ident => $value:expr) => {
        match $any {
            $crate::any::Network::Conv4($network) => $value,
            $crate::any::Network::ResNet12($network) => $value,
            $crate::any::Network::ResNet($network) => $value,
            $crate::any::Network::WideResNet($network) => $value,
            $crate::any::Network::EfficientNetLite($network) => $value,
            $crate::any::Network::Vit($network) => $value,
        }
    };
}

/// Maps the network that there is to another of the same kind.
macro_rules! map_network {
    ($any:expr, $network:ident => $value:expr) => {{
        use $crate::any::Network;
        match $any {
            Network::Conv4($network) => Network::Conv4(Box::new($value)),
            Network::ResNet12($network) => Network::ResNet12(Box::new($value)),
            Network::ResNet($network) => Network::ResNet(Box::new($value)),
            Network::WideResNet($network) => Network::WideResNet(Box::new($value)),
            Network::EfficientNetLite($network) => Network::EfficientNetLite(Box::new($value)),
            Network::Vit($network) => Network::Vit(Box::new($value)),
        }
    }};
}

pub(crate) use {map_network, with_network};

macro_rules! from_network {
    ($($network:ident),+) => {
        $(
            impl<B: Backend> From<$network<B>> for AnyEncoder<B> {
                fn from(network: $network<B>) -> Self {
                    Self { network: Network::$network(Box::new(network)), normalization: None }
                }
            }
        )+
    };
}

from_network!(Conv4, ResNet12, ResNet, WideResNet, EfficientNetLite, Vit);

impl<B: Backend> AnyEncoder<B> {
    /// The same network, which normalises its images so.
    pub fn with_normalization(self, normalization: Option<Normalization>) -> Self {
        Self { normalization, ..self }
    }

    /// The network with the [weights](Pretrained::load_weights) of a file.
    ///
    /// # Errors
    /// When the file cannot be read, or has the weights of another network.
    pub fn load_weights(self, file: &Path) -> Result<Self, WeightsError> {
        let Self { network, normalization } = self;
        let network = map_network!(network, network => network.load_weights(file)?);
        Ok(Self { network, normalization })
    }

    fn normalized<const D: usize>(&self, images: Tensor<B, D>) -> Tensor<B, D> {
        match &self.normalization {
            Some(normalization) => normalization.apply(images),
            None => images,
        }
    }
}

impl<B: Backend> Encoder<B> for AnyEncoder<B> {
    fn encode(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 2> {
        let images = self.normalized(images);
        with_network!(&self.network, network => network.encode(images, statistics))
    }

    fn has_lanes(&self) -> bool {
        with_network!(&self.network, network => network.has_lanes())
    }

    fn encode_lanes(&self, images: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3> {
        let images = self.normalized(images);
        with_network!(&self.network, network => network.encode_lanes(images, statistics))
    }

    fn encode_tasks(&self, images: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3> {
        let images = self.normalized(images);
        with_network!(&self.network, network => network.encode_tasks(images, statistics))
    }

    fn precision(&self) -> Precision {
        with_network!(&self.network, network => Encoder::<B>::precision(&**network))
    }

    fn differentiable(&self) -> Differentiable {
        with_network!(&self.network, network => network.differentiable())
    }

    fn draws(&self) -> bool {
        with_network!(&self.network, network => network.draws())
    }

    fn segments(&self) -> usize {
        with_network!(&self.network, network => network.segments())
    }

    fn forward_segment(
        &self,
        index: usize,
        x: Tensor<B, 4>,
        statistics: BnStatistics,
    ) -> Tensor<B, 4> {
        let x = if index == 0 { self.normalized(x) } else { x };
        with_network!(&self.network, network => network.forward_segment(index, x, statistics))
    }

    fn architecture(&self) -> String {
        with_network!(&self.network, network => network.architecture())
    }
}
