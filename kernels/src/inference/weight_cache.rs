//! Weights that are packed once, for networks that only embed.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::ops::FloatTensor;
use fewshot_simd::gemm::RightMatrix;

use crate::environment::chosen;
use crate::host::HostBackend;

/// Fewest floats of a weight that is kept.
const LEAST: usize = 1 << 16;

/// Weights of linear layers in the layout that products on a host read, for a network whose weights stay as they are: a product
/// of few rows takes less time than packing its weight.
///
/// A kept weight holds the tensor that it was packed from, whose memory thus stays as it is ([`HostBackend::borrow`]): a weight that
/// changes lies elsewhere, and no layer gets an old one.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::{Distribution, Tensor};
/// use fewshot_kernels::{Activation, LinearEpilogue, WeightCache, fused_linear};
///
/// let device = Default::default();
/// let random = |shape| Tensor::<Flex, 2>::random(shape, Distribution::Default, &device);
/// let (x, weight, bias) = (random([3, 256]), random([256, 256]), Tensor::zeros([256], &device));
/// let gelu = || LinearEpilogue::Activation(Activation::Gelu);
/// let y = fused_linear(x.clone(), weight.clone(), bias.clone(), gelu());
///
/// let cache = WeightCache::new(1 << 20);
/// for _ in 0..2 {
///     let again = cache.during(|| fused_linear(x.clone(), weight.clone(), bias.clone(), gelu()));
///     assert_eq!(again.into_data(), y.clone().into_data());
/// }
/// assert_eq!(cache.floats(), 256 * 256);
/// ```
#[derive(Clone)]
pub struct WeightCache(Arc<Shared>);

struct Shared {
    capacity: usize,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    floats: usize,
    weights: HashMap<Key, Arc<CachedWeight>>,
}

/// Address of a weight's first float, and its rows and columns.
type Key = (usize, [usize; 2]);

/// A weight in the layout of products.
pub struct CachedWeight {
    /// Its layout.
    pub matrix: RightMatrix<'static>,
    /// The tensor, whose memory is neither freed nor written while it is held here.
    _tensor: Box<dyn Any + Send + Sync>,
}

thread_local! {
    static CURRENT: RefCell<Option<WeightCache>> = const { RefCell::new(None) };
}

impl WeightCache {
    /// Room for so many floats: those of all weights of the network. Weights beyond it are not kept.
    pub fn new(capacity: usize) -> Self {
        Self(Arc::new(Shared { capacity, entries: Mutex::default() }))
    }

    /// Does `work`, in which linear layers that this thread starts take the weights that are kept here, and leave theirs.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        /// Puts the former weights back, after a panic too.
        struct Restore(Option<WeightCache>);

        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }

        let _restore = Restore(CURRENT.replace(Some(self.clone())));
        work()
    }

    /// Number of the floats that there is room for.
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// Number of the floats that are kept.
    pub fn floats(&self) -> usize {
        self.with_entries(|entries| entries.floats)
    }

    fn with_entries<T>(&self, work: impl FnOnce(&mut Entries) -> T) -> T {
        work(&mut self.0.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The kept weight, packed if it is new; `None` where it is small, there is no room, or it lies otherwise than in rows.
    fn packed<H: HostBackend>(
        &self,
        tensor: &FloatTensor<H>,
        [steps, columns]: [usize; 2],
    ) -> Option<Arc<CachedWeight>> {
        let weight = H::borrow(tensor).filter(|weight| weight.len() >= LEAST)?;
        let key = (weight.as_ptr().addr(), [steps, columns]);
        let has_room = |entries: &Entries| entries.floats + weight.len() <= self.capacity();
        let (known, has_room_now) =
            self.with_entries(|entries| (entries.weights.get(&key).cloned(), has_room(entries)));
        if known.is_some() || !has_room_now {
            return known;
        }
        let tensor = tensor.clone();
        // A clone with memory of its own would not hold this address.
        H::borrow(&tensor).filter(|clone| clone.as_ptr() == weight.as_ptr())?;
        // Packing runs in parallel, and so without the lock.
        let matrix = RightMatrix::packed(chosen().tile() / 2, (weight, columns), [steps, columns]);
        let new = Arc::new(CachedWeight { matrix, _tensor: Box::new(tensor) });
        self.with_entries(|entries| {
            if !entries.weights.contains_key(&key) && has_room(entries) {
                entries.floats += weight.len();
                entries.weights.insert(key, new.clone());
            }
        });
        Some(new)
    }
}

/// The weight `[steps, columns]` in the cache of the [`during`](WeightCache::during) that this thread is in.
pub fn cached_weight<H: HostBackend>(
    tensor: &FloatTensor<H>,
    shape: [usize; 2],
) -> Option<Arc<CachedWeight>> {
    let cache = CURRENT.with_borrow(Clone::clone)?;
    cache.packed::<H>(tensor, shape)
}

impl fmt::Debug for WeightCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (capacity, floats) = (self.capacity(), self.floats());
        f.debug_struct("WeightCache").field("capacity", &capacity).field("floats", &floats).finish()
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;
    use burn::tensor::{Distribution, Tensor};

    use super::WeightCache;
    use crate::{Activation, LinearEpilogue, fused_linear};

    fn random<const D: usize>(shape: [usize; D]) -> Tensor<Flex, D> {
        Tensor::random(shape, Distribution::Default, &Default::default())
    }

    fn linear(x: &Tensor<Flex, 2>, weight: &Tensor<Flex, 2>) -> Vec<f32> {
        let bias = Tensor::ones([weight.dims()[1]], &Default::default());
        let plain = LinearEpilogue::Activation(Activation::Identity);
        fused_linear(x.clone(), weight.clone(), bias, plain).into_data().into_vec().unwrap()
    }

    #[test]
    fn a_weight_that_changes_is_another_one() {
        let (cache, x, mut weight) =
            (WeightCache::new(1 << 20), random([5, 300]), random([300, 250]));
        for changes in 1..4 {
            for _ in 0..2 {
                assert_eq!(cache.during(|| linear(&x, &weight)), linear(&x, &weight));
            }
            assert_eq!(cache.floats(), changes * 300 * 250);
            // In place, were the tensor not held.
            weight = weight.mul_scalar(1.5);
        }
    }

    #[test]
    fn a_weight_in_the_place_of_another_is_not_taken_for_it() {
        let (cache, x) = (WeightCache::new(1 << 22), random([5, 300]));
        for _ in 0..8 {
            let weight = random([300, 250]);
            assert_eq!(cache.during(|| linear(&x, &weight)), linear(&x, &weight));
        }
        assert_eq!(cache.floats(), 8 * 300 * 250);
    }

    #[test]
    fn small_weights_views_and_those_beyond_the_room_are_not_kept() {
        let cache = WeightCache::new(300 * 250);
        let floats_after = |weight: Tensor<Flex, 2>| {
            let x = random([2, weight.dims()[0]]);
            assert_eq!(cache.during(|| linear(&x, &weight)), linear(&x, &weight));
            cache.floats()
        };
        assert_eq!(floats_after(random([30, 20])), 0, "small");
        assert_eq!(floats_after(random([250, 300]).transpose()), 0, "a view");
        assert_eq!(floats_after(random([300, 250])), 300 * 250);
        assert_eq!(floats_after(random([300, 250])), 300 * 250, "no room");
    }

    #[test]
    fn weights_are_kept_inside_alone_and_a_panic_ends_it() {
        let (cache, x, weight) = (WeightCache::new(1 << 20), random([2, 300]), random([300, 250]));
        let caught = std::panic::catch_unwind(|| cache.during(|| panic!("as meant")));
        assert!(caught.is_err());
        linear(&x, &weight);
        assert_eq!(cache.floats(), 0);
        assert_eq!(format!("{cache:?}"), "WeightCache { capacity: 1048576, floats: 0 }");
    }
}
