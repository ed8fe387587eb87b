//! Records of any encoder. That of a [`Conv4`] is the network's own; another's is under the name of its kind.

use std::fmt;
use std::marker::PhantomData;

use burn::module::Module;
use burn::record::{PrecisionSettings, Record};
use burn::tensor::backend::Backend;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Network;
use crate::{Conv4, EfficientNetLite, ResNet, ResNet12, Vit, WideResNet};

type Of<B, M> = <M as Module<B>>::Record;
type Item<B, M, S> = <Of<B, M> as Record<B>>::Item<S>;

/// Declares the records of these kinds of networks, beside that of a [`Conv4`].
macro_rules! records {
    ($($network:ident),+) => {
        /// Record of an [`AnyEncoder`](super::AnyEncoder).
        #[allow(missing_docs)]
        pub enum AnyEncoderRecord<B: Backend> {
            Conv4(Box<Of<B, Conv4<B>>>),
            $($network(Box<Of<B, $network<B>>>),)+
        }

        /// Form of an [`AnyEncoderRecord`] in a file.
        #[allow(missing_docs)]
        pub enum AnyEncoderRecordItem<B: Backend, S: PrecisionSettings> {
            Conv4(Box<Item<B, Conv4<B>, S>>),
            $($network(Box<Item<B, $network<B>, S>>),)+
        }

        impl<B: Backend> AnyEncoderRecord<B> {
            pub(super) fn of(network: Network<B>) -> Self {
                match network {
                    Network::Conv4(network) => Self::Conv4(Box::new(network.into_record())),
                    $(Network::$network(network) => Self::$network(Box::new(network.into_record())),)+
                }
            }

            /// The network with the values of the record.
            pub(super) fn loaded(self, network: Network<B>) -> Network<B> {
                match (network, self) {
                    (Network::Conv4(network), Self::Conv4(record)) => {
                        Network::Conv4(Box::new(network.load_record(*record)))
                    }
                    $((Network::$network(network), Self::$network(record)) => {
                        Network::$network(Box::new(network.load_record(*record)))
                    })+
                    _ => panic!("the record is of another kind of network"),
                }
            }
        }

        impl<B: Backend> Record<B> for AnyEncoderRecord<B> {
            type Item<S: PrecisionSettings> = AnyEncoderRecordItem<B, S>;

            fn into_item<S: PrecisionSettings>(self) -> Self::Item<S> {
                match self {
                    Self::Conv4(record) => AnyEncoderRecordItem::Conv4(Box::new(record.into_item())),
                    $(Self::$network(record) => AnyEncoderRecordItem::$network(Box::new(record.into_item())),)+
                }
            }

            fn from_item<S: PrecisionSettings>(item: Self::Item<S>, device: &B::Device) -> Self {
                match item {
                    AnyEncoderRecordItem::Conv4(item) => {
                        Self::Conv4(Box::new(Record::<B>::from_item::<S>(*item, device)))
                    }
                    $(AnyEncoderRecordItem::$network(item) => {
                        Self::$network(Box::new(Record::<B>::from_item::<S>(*item, device)))
                    })+
                }
            }
        }

        impl<B: Backend, S: PrecisionSettings> Clone for AnyEncoderRecordItem<B, S> {
            fn clone(&self) -> Self {
                match self {
                    Self::Conv4(item) => Self::Conv4(item.clone()),
                    $(Self::$network(item) => Self::$network(item.clone()),)+
                }
            }
        }

        impl<B: Backend, S: PrecisionSettings> Serialize for AnyEncoderRecordItem<B, S> {
            fn serialize<T: Serializer>(&self, serializer: T) -> Result<T::Ok, T::Error> {
                match self {
                    Self::Conv4(item) => item.serialize(serializer),
                    $(Self::$network(item) => {
                        let mut map = serializer.serialize_map(Some(1))?;
                        map.serialize_entry(stringify!($network), item)?;
                        map.end()
                    })+
                }
            }
        }

        impl<'de, B: Backend, S: PrecisionSettings> Visitor<'de> for ItemVisitor<B, S> {
            type Value = AnyEncoderRecordItem<B, S>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the record of an encoder, with names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let key: Option<String> = map.next_key()?;
                let key = key.ok_or_else(|| A::Error::custom("the record of an encoder is empty"))?;
                match key.as_str() {
                    $(stringify!($network) => {
                        map.next_value().map(AnyEncoderRecordItem::$network)
                    })+
                    _ => {
                        let whole = MapAccessDeserializer::new(Whole { first: Some(key), map });
                        Deserialize::deserialize(whole).map(AnyEncoderRecordItem::Conv4)
                    }
                }
            }
        }
    };
}

records!(ResNet12, ResNet, WideResNet, EfficientNetLite, Vit);

struct ItemVisitor<B, S>(PhantomData<(B, S)>);

impl<'de, B: Backend, S: PrecisionSettings> Deserialize<'de> for AnyEncoderRecordItem<B, S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ItemVisitor(PhantomData))
    }
}

/// A map of which the first key was read already.
struct Whole<A> {
    first: Option<String>,
    map: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Whole<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        match self.first.take() {
            Some(key) => seed.deserialize(key.into_deserializer()).map(Some),
            None => self.map.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
