use std::any::Any;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

/// Number of cached tensors at most; the oldest makes room for a new one.
const MOST: usize = 64;

/// Integer tensors that are made once for each device, by what they are.
///
/// A backend and autodiff over it share them.
pub(crate) struct DeviceCache<K> {
    tensors: Mutex<Vec<(K, Box<dyn Any + Send>)>>,
}

struct Cached<T, D> {
    tensor: T,
    device: D,
}

impl<K: PartialEq> DeviceCache<K> {
    pub(crate) fn new() -> Self {
        Self { tensors: Mutex::new(Vec::new()) }
    }

    /// The tensor `key` on `device`, made if it is not there.
    pub(crate) fn get_or_make<B: Backend, const D: usize>(
        &self,
        key: K,
        device: &B::Device,
        make: impl FnOnce() -> Tensor<B, D, Int>,
    ) -> Tensor<B, D, Int> {
        let Ok(tensor) = self.get_or_try_make::<B, D, Infallible>(key, device, || Ok(make()));
        tensor
    }

    /// The same, if it can be made.
    pub(crate) fn get_or_try_make<B: Backend, const D: usize, E>(
        &self,
        key: K,
        device: &B::Device,
        make: impl FnOnce() -> Result<Tensor<B, D, Int>, E>,
    ) -> Result<Tensor<B, D, Int>, E> {
        let mut tensors = self.tensors();
        if let Some(tensor) = find::<B, K>(&tensors, &key, device) {
            return Ok(Tensor::from_primitive(tensor));
        }
        let made = make()?;
        if tensors.len() == MOST {
            tensors.remove(0);
        }
        let cached = Cached { tensor: made.clone().into_primitive(), device: device.clone() };
        tensors.push((key, Box::new(cached)));
        Ok(made)
    }

    /// Tells whether the tensor `key` is on `device`.
    pub(crate) fn has<B: Backend>(&self, key: &K, device: &B::Device) -> bool {
        find::<B, K>(&self.tensors(), key, device).is_some()
    }

    fn tensors(&self) -> MutexGuard<'_, Vec<(K, Box<dyn Any + Send>)>> {
        self.tensors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find<B: Backend, K: PartialEq>(
    tensors: &[(K, Box<dyn Any + Send>)],
    key: &K,
    device: &B::Device,
) -> Option<B::IntTensorPrimitive> {
    let mut of_key = tensors.iter().filter(|(of, _)| of == key);
    of_key.find_map(|(_, cached)| {
        let cached = cached.downcast_ref::<Cached<B::IntTensorPrimitive, B::Device>>()?;
        (cached.device == *device).then(|| cached.tensor.clone())
    })
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use std::cell::Cell;

    use burn::backend::{Autodiff, Flex};

    use super::*;

    #[test]
    fn a_tensor_is_made_once_for_a_backend_and_autodiff_over_it() {
        let (cache, made) = (DeviceCache::new(), Cell::new(0));
        let device = Default::default();
        let count = |key: i32| {
            made.set(made.get() + 1);
            [key, key]
        };
        assert!(!cache.has::<Flex>(&3, &device));
        for _ in 0..2 {
            let make = || Tensor::<Flex, 1, Int>::from_ints(count(3), &device);
            let tensor = cache.get_or_make(3, &device, make);
            assert_eq!(tensor.into_data().iter::<i32>().collect::<Vec<_>>(), [3, 3]);
        }
        let make = || Tensor::<Autodiff<Flex>, 1, Int>::from_ints(count(3), &device);
        cache.get_or_make(3, &device, make);
        assert_eq!(made.get(), 1);
        cache.get_or_make(4, &device, || Tensor::<Flex, 1, Int>::from_ints(count(4), &device));
        assert_eq!(made.get(), 2);
        assert!(cache.has::<Autodiff<Flex>>(&3, &device));
    }

    #[test]
    fn the_oldest_of_too_many_is_forgotten() {
        let cache = DeviceCache::new();
        let device = Default::default();
        for key in 0..=MOST as i32 {
            cache.get_or_make(key, &device, || Tensor::<Flex, 1, Int>::from_ints([key], &device));
        }
        assert!(!cache.has::<Flex>(&0, &device));
        assert!(cache.has::<Flex>(&1, &device) && cache.has::<Flex>(&(MOST as i32), &device));
    }
}
