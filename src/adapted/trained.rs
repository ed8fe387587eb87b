//! Parameters of networks that were trained here, which are in the model's own file.

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use fewshot_models::AnyEncoder;

use super::origin::TrainedNetwork;
use crate::adapt::{filled, slots, values};

/// Parameters of a network, running averages included, as they are in a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parameters {
    /// The name and shape of each, in their order.
    pub(super) list: Vec<(String, Vec<usize>)>,
    /// Their values, one after the other.
    pub(super) values: Vec<f32>,
}

impl TrainedNetwork {
    /// The network with its parameters of a file, or a fault of them.
    pub(super) fn restored<B: Backend>(
        &self,
        parameters: &Parameters,
        device: &B::Device,
    ) -> Result<AnyEncoder<B>, String> {
        let config = &self.network;
        let [channels, ..] = config.image();
        config.check().map_err(|error| error.to_string())?;
        if ![1, 3].contains(&channels) {
            return Err(format!("images of its network have {channels} channels, not 1 or 3"));
        }
        let (needed, held) = (config.parameters(), parameters.values.len());
        if needed.is_none_or(|needed| needed > held) {
            let needed = needed.map_or("uncountable".to_owned(), |needed| needed.to_string());
            return Err(format!("its network has {needed} parameters, of which it holds {held}"));
        }
        let network = config.init::<B>(device);
        if listed(&network) != parameters.list {
            return Err("its weights are of another network than it says".to_owned());
        }
        let mut rest = parameters.values.as_slice();
        let mut tensors = Vec::with_capacity(parameters.list.len());
        for (name, shape) in &parameters.list {
            let (own, others) = rest
                .split_at_checked(shape.iter().product())
                .ok_or_else(|| format!("its weights end within {name}"))?;
            rest = others;
            let own = TensorData::new(own.to_vec(), [own.len()]);
            tensors.push(Tensor::<B, 1>::from_data(own, device));
        }
        Ok(filled::<B, _>(network, &tensors))
    }
}

impl Parameters {
    pub(super) fn of<B: Backend>(network: &AnyEncoder<B>) -> Self {
        let each = values::<B, _>(network).into_iter();
        let values = each.flat_map(|of| of.into_data().iter::<f32>().collect::<Vec<_>>());
        Self { list: listed(network), values: values.collect() }
    }
}

fn listed<B: Backend>(network: &AnyEncoder<B>) -> Vec<(String, Vec<usize>)> {
    slots::<B, _>(network).into_iter().map(|slot| (slot.path, slot.shape)).collect()
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;
    use fewshot_models::{BnStatistics, Conv4Config, Encoder, EncoderConfig};

    use super::*;

    fn config() -> Conv4Config {
        Conv4Config::new([1, 16, 16]).with_channels(4).with_context(3)
    }

    fn network() -> (TrainedNetwork, AnyEncoder<Flex>) {
        drawn(config().into())
    }

    fn drawn(config: EncoderConfig) -> (TrainedNetwork, AnyEncoder<Flex>) {
        let device = Default::default();
        let network = config.init::<Flex>(&device);
        // Running averages are parameters of the file as well.
        let [channels, height, width] = config.image();
        let images = Tensor::ones([2, channels, height, width], &device);
        network.encode(images, BnStatistics::Track);
        (TrainedNetwork::new(config), network)
    }

    #[test]
    fn a_network_is_restored_to_the_bit() {
        let (origin, network) = network();
        let parameters = Parameters::of(&network);
        let restored = origin.restored::<Flex>(&parameters, &Default::default()).unwrap();
        assert_eq!(Parameters::of(&restored), parameters);
        let averages = parameters.list.iter().filter(|(name, _)| name.contains("running_"));
        assert_eq!(averages.count(), 2 * 4);
        let images = || Tensor::<Flex, 4>::ones([1, 1, 16, 16], &Default::default()) * 0.3;
        let [one, other] = [network, restored]
            .map(|network| network.encode(images(), BnStatistics::Running).into_data());
        one.assert_eq(&other, true);
    }

    #[test]
    fn parameters_of_another_network_are_refused() {
        let (origin, network) = network();
        let refused = |origin: &TrainedNetwork, parameters: &Parameters| {
            origin.restored::<Flex>(parameters, &Default::default()).unwrap_err()
        };
        let mut parameters = Parameters::of(&network);
        let other = |conv4: Conv4Config| TrainedNetwork::new(conv4);
        let wider = other(config().with_channels(5));
        assert!(refused(&wider, &parameters).contains("parameters, of which it holds"));
        let narrower = other(config().with_channels(3));
        assert!(refused(&narrower, &parameters).contains("another network"));
        let small = other(Conv4Config::new([1, 8, 8]));
        assert!(refused(&small, &parameters).contains("do not fit images of 1x8x8"));
        let two = other(Conv4Config { image: [2, 16, 16], ..config() });
        assert!(refused(&two, &parameters).contains("have 2 channels"));
        parameters.values.truncate(100);
        assert!(refused(&origin, &parameters).contains("of which it holds 100"));
    }
}
