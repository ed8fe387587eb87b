use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::module::{
    AutodiffModule, Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper,
    ModuleVisitor, Param, ParamId,
};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorPrimitive};
use fewshot_kernels::{axpy_all, scaled_all};

/// A running average: a vector that training updates beside the parameters, without a gradient.
///
/// # Conventions
/// The record is that of Burn's `RunningState`, and unlike it a clone is a copy: what one learner
/// tracks never reaches another, and every reader sees the latest value.
#[derive(Debug)]
pub struct RunningAverage<B: Backend> {
    id: ParamId,
    value: Mutex<Tensor<B, 1>>,
}

impl<B: Backend> RunningAverage<B> {
    /// An average that begins at `value`.
    pub fn new(value: Tensor<B, 1>) -> Self {
        Self::with_id(ParamId::new(), value)
    }

    fn with_id(id: ParamId, value: Tensor<B, 1>) -> Self {
        // Burn's `detach` leaves a leaf what it is.
        Self { id, value: Mutex::new(value.detach().set_require_grad(false)) }
    }

    /// The latest value.
    pub fn value(&self) -> Tensor<B, 1> {
        self.lock().clone()
    }

    /// Updates the value to `(1 - momentum) * value + momentum * target`; it keeps its type.
    pub fn update(&self, target: Tensor<B, 1>, momentum: f64) {
        let mut value = self.lock();
        let target = target.detach().cast(value.dtype());
        *value = value.clone() * (1.0 - momentum) + target * momentum;
    }

    /// [`update`](Self::update) of each of `averages` with the target at its index, in few operations for all
    /// of them.
    pub(crate) fn update_all(averages: &[&Self], targets: Vec<Tensor<B, 1>>, momentum: f64) {
        let float = |of: Tensor<B, 1>| of.into_primitive().tensor();
        let values: Vec<_> = averages.iter().map(|average| average.value()).collect();
        let target = |(target, value): (Tensor<B, 1>, &Tensor<B, 1>)| {
            let target = target.detach();
            float(if target.dtype() == value.dtype() { target } else { target.cast(value.dtype()) })
        };
        let targets = targets.into_iter().zip(&values).map(target).collect();
        let scaled = scaled_all::<B>(values.into_iter().map(float).collect(), 1.0 - momentum);
        for (average, updated) in averages.iter().zip(axpy_all::<B>(scaled, momentum, targets)) {
            *average.lock() = Tensor::from_primitive(TensorPrimitive::Float(updated));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tensor<B, 1>> {
        // A panic elsewhere cannot leave half a tensor here.
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Backend> Clone for RunningAverage<B> {
    fn clone(&self) -> Self {
        Self { id: self.id, value: Mutex::new(self.value()) }
    }
}

impl<B: Backend> Module<B> for RunningAverage<B> {
    type Record = Param<Tensor<B, 1>>;

    fn visit<V: ModuleVisitor<B>>(&self, visitor: &mut V) {
        visitor.visit_float(&Param::initialized(self.id, self.value()));
    }

    fn map<M: ModuleMapper<B>>(self, mapper: &mut M) -> Self {
        let mapped = mapper.map_float(Param::initialized(self.id, self.value()));
        let (id, value, _) = mapped.consume();
        Self::with_id(id, value)
    }

    fn into_record(self) -> Self::Record {
        Param::initialized(self.id, self.value())
    }

    fn load_record(self, record: Self::Record) -> Self {
        let device = self.value().device();
        Self::with_id(record.id, record.val().to_device(&device))
    }

    fn to_device(self, device: &B::Device) -> Self {
        Self::with_id(self.id, self.value().to_device(device))
    }

    fn fork(self, device: &B::Device) -> Self {
        self.to_device(device)
    }

    fn collect_devices(&self, mut devices: Devices<B>) -> Devices<B> {
        let device = self.value().device();
        if !devices.contains(&device) {
            devices.push(device);
        }
        devices
    }
}

impl<B: AutodiffBackend> AutodiffModule<B> for RunningAverage<B> {
    type InnerModule = RunningAverage<B::InnerBackend>;

    fn valid(&self) -> Self::InnerModule {
        RunningAverage::with_id(self.id, self.value().inner())
    }

    fn from_inner(module: Self::InnerModule) -> Self {
        Self::with_id(module.id, Tensor::from_inner(module.value()))
    }
}

impl<B: Backend> ModuleDisplayDefault for RunningAverage<B> {
    fn content(&self, content: Content) -> Option<Content> {
        content.add_single(&format!("RunningAverage(id={})", self.id)).optional()
    }
}

impl<B: Backend> ModuleDisplay for RunningAverage<B> {}

#[cfg(test)]
mod tests {
    use burn::backend::Flex;
    use burn::tensor::{FloatDType, TensorData};

    use super::*;

    fn average() -> RunningAverage<Flex> {
        RunningAverage::new(Tensor::from_floats([1.0, 2.0], &Default::default()))
    }

    #[test]
    fn a_clone_does_not_follow_the_original() {
        let original = average();
        let clone = original.clone();
        original.update(Tensor::from_floats([3.0, 2.0], &Default::default()), 0.5);
        original.value().into_data().assert_eq(&TensorData::from([2.0f32, 2.0]), true);
        clone.value().into_data().assert_eq(&TensorData::from([1.0f32, 2.0]), true);
    }

    #[test]
    fn moments_of_another_type_are_taken_in_the_own_one() {
        let average = RunningAverage::new(average().value().cast(FloatDType::F16));
        average.update(Tensor::from_floats([3.0, 2.0], &Default::default()), 0.5);
        let value = average.value();
        assert_eq!(value.dtype(), FloatDType::F16.into());
        value.cast(FloatDType::F32).into_data().assert_eq(&TensorData::from([2.0f32, 2.0]), true);
    }

    #[test]
    fn loading_a_record_into_a_clone_leaves_the_original() {
        let original = average();
        let other = RunningAverage::new(Tensor::from_floats([7.0, 8.0], &Default::default()));
        let loaded = original.clone().load_record(other.into_record());
        loaded.value().into_data().assert_eq(&TensorData::from([7.0f32, 8.0]), true);
        original.value().into_data().assert_eq(&TensorData::from([1.0f32, 2.0]), true);
    }
}
