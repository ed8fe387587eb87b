use std::fmt;

use burn::tensor::DType;

use crate::hardware::DeviceKey;

/// What a model of a [`ModelPool`](super::ModelPool) is found by: only a model of exactly this
/// device, type of numbers and name is the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelKey<K> {
    /// Where the model is.
    pub device: DeviceKey,
    /// In what its parameters are held.
    pub dtype: DType,
    /// Its name, of any kind that the program uses.
    pub id: K,
}

impl<K> ModelKey<K> {
    /// The model `id` held as `dtype` on `device`.
    pub fn new(device: DeviceKey, dtype: DType, id: K) -> Self {
        Self { device, dtype, id }
    }
}

/// `"conv4" as f32 on cuda:0`
impl<K: fmt::Debug> fmt::Display for ModelKey<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} as {} on {}", self.id, self.dtype.name(), self.device)
    }
}
