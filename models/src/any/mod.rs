//! One type for every encoder, so that a program compiles a learner once and not once a network.

mod averages;
mod config;
mod module;
mod normalization;
mod onnx;
mod parameters;
mod record;

pub use config::{EncoderConfig, EncoderError, OnImages};
pub use normalization::Normalization;
pub use record::{AnyEncoderRecord, AnyEncoderRecordItem};

use std::path::Path;
use std::rc::Rc;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::Precision;

use crate::encoder::task_by_task;
use crate::nn::BnStatistics;
use crate::weights::{Pretrained, WeightsError};
use crate::{
    Conv4, Differentiable, EfficientNetLite, Encoder, Readout, ResNet, ResNet12, Vit, WideResNet,
};

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
    /// Features of a network other than a [`Conv4`], which has its own.
    readout: Readout,
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
                    let network = Network::$network(Box::new(network));
                    Self { network, normalization: None, readout: Readout::Average }
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

    /// The same network with these features: means of its last maps, or all of their pixels, one map after the other.
    /// A [`Conv4`] has its own; networks other than it and residual ones have a vector of the whole image alone.
    pub fn with_readout(self, readout: Readout) -> Self {
        Self { readout, ..self }
    }

    /// True of a residual network whose features are all pixels of its last maps.
    fn is_flat(&self) -> bool {
        use Network::{ResNet, ResNet12, WideResNet};
        let residual = matches!(self.network, ResNet12(_) | ResNet(_) | WideResNet(_));
        residual && self.readout == Readout::Flatten
    }

    /// All pixels of the last maps of a residual network.
    fn flat(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 2> {
        let maps = match &self.network {
            Network::ResNet12(network) => network.maps(images, statistics),
            Network::ResNet(network) => network.maps(images, statistics),
            Network::WideResNet(network) => network.maps(images, statistics),
            Network::Conv4(_) | Network::EfficientNetLite(_) | Network::Vit(_) => {
                unreachable!("it is not flat")
            }
        };
        maps.flatten(1, 3)
    }

    /// The network with the [weights](Pretrained::load_weights) of a file.
    ///
    /// # Errors
    /// When the file cannot be read, or has the weights of another network.
    pub fn load_weights(self, file: &Path) -> Result<Self, WeightsError> {
        let network = map_network!(self.network, network => network.load_weights(file)?);
        Ok(Self { network, ..self })
    }

    /// The same with the content of a file; `name` is the one in errors.
    ///
    /// # Errors
    /// The reasons are those of [`load_weights`](Self::load_weights).
    pub fn decode_weights(self, content: Rc<[u8]>, name: &Path) -> Result<Self, WeightsError> {
        let network = map_network!(self.network, network => network.decode_weights(content, name)?);
        Ok(Self { network, ..self })
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
        if self.is_flat() {
            return self.flat(images, statistics);
        }
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
        if self.is_flat() {
            return task_by_task(self, images, statistics);
        }
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
        if self.is_flat() && index + 1 == self.segments() {
            let maps = match &self.network {
                Network::ResNet12(network) => network.forward_block(index, x, statistics),
                Network::ResNet(network) => network.forward_block(index, x, statistics),
                Network::WideResNet(network) => network.forward_block(index, x, statistics),
                Network::Conv4(_) | Network::EfficientNetLite(_) | Network::Vit(_) => {
                    unreachable!("it is not flat")
                }
            };
            return maps.flatten::<2>(1, 3).unsqueeze_dims(&[-1, -1]);
        }
        with_network!(&self.network, network => network.forward_segment(index, x, statistics))
    }

    fn architecture(&self) -> String {
        with_network!(&self.network, network => network.architecture())
    }
}
