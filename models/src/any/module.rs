//! The traits of Burn's modules, as if the network itself stood in the encoder's place.

use std::fmt;

use burn::module::{
    AutodiffModule, Content, Devices, DisplaySettings, HasAutodiffModule, Module, ModuleDisplay,
    ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
};
use burn::tensor::backend::{AutodiffBackend, Backend};

use super::{AnyEncoder, AnyEncoderRecord, map_network, with_network};

impl<B: Backend> Module<B> for AnyEncoder<B> {
    type Record = AnyEncoderRecord<B>;

    fn collect_devices(&self, devices: Devices<B>) -> Devices<B> {
        with_network!(&self.network, network => network.collect_devices(devices))
    }

    fn fork(self, device: &B::Device) -> Self {
        let network = map_network!(self.network, network => Module::<B>::fork(*network, device));
        Self { network, ..self }
    }

    fn to_device(self, device: &B::Device) -> Self {
        let network =
            map_network!(self.network, network => Module::<B>::to_device(*network, device));
        Self { network, ..self }
    }

    fn num_params(&self) -> usize {
        with_network!(&self.network, network => Module::<B>::num_params(&**network))
    }

    fn visit<V: ModuleVisitor<B>>(&self, visitor: &mut V) {
        with_network!(&self.network, network => Module::<B>::visit(&**network, visitor));
    }

    fn map<M: ModuleMapper<B>>(self, mapper: &mut M) -> Self {
        let network = map_network!(self.network, network => Module::<B>::map(*network, mapper));
        Self { network, ..self }
    }

    /// # Panics
    /// When the record is of another kind of network.
    fn load_record(self, record: AnyEncoderRecord<B>) -> Self {
        Self { network: record.loaded(self.network), ..self }
    }

    fn into_record(self) -> AnyEncoderRecord<B> {
        AnyEncoderRecord::of(self.network)
    }
}

impl<B: AutodiffBackend> AutodiffModule<B> for AnyEncoder<B> {
    type InnerModule = AnyEncoder<B::InnerBackend>;

    fn valid(&self) -> Self::InnerModule {
        let network = map_network!(&self.network, network => network.valid());
        AnyEncoder { network, normalization: self.normalization, readout: self.readout }
    }

    fn from_inner(inner: Self::InnerModule) -> Self {
        let network =
            map_network!(inner.network, network => AutodiffModule::<B>::from_inner(*network));
        Self { network, normalization: inner.normalization, readout: inner.readout }
    }
}

impl<B: AutodiffBackend> HasAutodiffModule<B> for AnyEncoder<B::InnerBackend> {
    type TrainModule = AnyEncoder<B>;
}

impl<B: Backend> fmt::Display for AnyEncoder<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_network!(&self.network, network => fmt::Display::fmt(&**network, f))
    }
}

impl<B: Backend> ModuleDisplayDefault for AnyEncoder<B> {
    fn content(&self, content: Content) -> Option<Content> {
        with_network!(&self.network, network => network.content(content))
    }

    fn num_params(&self) -> usize {
        Module::<B>::num_params(self)
    }
}

impl<B: Backend> ModuleDisplay for AnyEncoder<B> {
    fn format(&self, settings: DisplaySettings) -> String {
        with_network!(&self.network, network => network.format(settings))
    }
}
