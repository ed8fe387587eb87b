//! Models that share a budget of bytes, each loaded when it is asked for.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::sync::Arc;

use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Equivalent, Lifecycle, OptionsBuilder, Weighter};

use super::Bytes;

/// Models under a budget of bytes. A model is loaded when it is asked for, once for all who ask meanwhile,
/// and evicted when another needs its room.
///
/// A model in use stays: the pool evicts only models of which it holds the only reference, and drops
/// an evicted model before its key is loaded again. All methods take `&self`, from any thread.
///
/// # Conventions
/// A model is weighed once, after it is loaded. So memory exceeds the budget by the models that are
/// being loaded, and a model that grows keeps its first weight.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use fewshot::hardware::{Bytes, ModelPool, ModelProfile, PoolError};
/// use fewshot::models::{Conv4, Conv4Config};
///
/// # fn main() -> Result<(), PoolError<std::convert::Infallible>> {
/// let weigh = |model: &Conv4<Flex>| ModelProfile::of::<Flex, _>(model).bytes().bytes;
/// let pool = ModelPool::new(Bytes(1 << 20), weigh);
/// let load = || Ok(Conv4Config::omniglot().init(&Default::default()));
/// let model = pool.get_or_load(&"omniglot".to_owned(), load)?;
/// assert!(pool.get("omniglot").is_some());
/// drop(model); // from now on it may be evicted
/// # Ok(())
/// # }
/// ```
pub struct ModelPool<K, V> {
    models: Cache<K, Weighed<V>, ByBytes, DefaultHashBuilder, InUseStays>,
    budget: Bytes,
    weigh: fn(&V) -> Bytes,
}

/// Reason that a pool gives no model. `E` is the error of the caller's own loading.
#[derive(Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)]
pub enum PoolError<E: Debug + Display> {
    /// The model alone exceeds the budget.
    #[error("it takes {need}, all models together may take {budget}")]
    TooLarge { need: Bytes, budget: Bytes },
    /// The models in use leave no room for another one.
    #[error("it takes {need}, for which the models in use leave no room within {budget}")]
    Full { need: Bytes, budget: Bytes },
    /// The caller's own loading failed.
    #[error("{0}")]
    Load(E),
}

struct Weighed<V> {
    model: Arc<V>,
    bytes: u64,
}

impl<V> Clone for Weighed<V> {
    fn clone(&self) -> Self {
        Self { model: self.model.clone(), bytes: self.bytes }
    }
}

#[derive(Clone)]
struct ByBytes;

impl<K, V> Weighter<K, Weighed<V>> for ByBytes {
    fn weight(&self, _: &K, of: &Weighed<V>) -> u64 {
        of.bytes
    }
}

#[derive(Clone)]
struct InUseStays;

impl<K, V> Lifecycle<K, Weighed<V>> for InUseStays {
    type RequestState = ();

    fn is_pinned(&self, _: &K, of: &Weighed<V>) -> bool {
        Arc::strong_count(&of.model) > 1
    }

    fn begin_request(&self) {}

    /// Drops the model while the cache is locked: nobody loads it again before it is gone.
    fn on_evict(&self, (): &mut (), _: K, _: Weighed<V>) {}
}

/// Models that a pool is made for; more only cost the history of a few evictions.
const MODELS: usize = 64;

impl<K: Clone + Eq + Hash, V> ModelPool<K, V> {
    /// An empty pool. `weigh` counts the bytes that dropping a model gives back.
    pub fn new(budget: Bytes, weigh: fn(&V) -> Bytes) -> Self {
        let options = OptionsBuilder::new()
            .shards(1)
            .estimated_items_capacity(MODELS)
            .weight_capacity(budget.0)
            .build()
            .expect("both capacities are set");
        let hasher = DefaultHashBuilder::default();
        Self { models: Cache::with_options(options, ByBytes, hasher, InUseStays), budget, weigh }
    }

    /// The model `key`: the one in the pool, the one that another call is loading, or the result of `load`.
    /// It stays in the pool as long as the reference lives.
    ///
    /// # Errors
    /// - the error of `load`; a call that waited for it then loads for itself
    /// - the model exceeds the budget, alone or with those in use: it is dropped
    pub fn get_or_load<E: Debug + Display>(
        &self,
        key: &K,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, PoolError<E>> {
        let (mut own, budget) = (false, self.budget);
        let Weighed { model, bytes } = self.models.get_or_insert_with(key, || {
            own = true;
            let model = load().map_err(PoolError::Load)?;
            let need = (self.weigh)(&model);
            if need > budget {
                return Err(PoolError::TooLarge { need, budget });
            }
            Ok(Weighed { model: Arc::new(model), bytes: need.0 })
        })?;
        if own && self.models.weight() > budget.0 {
            self.models.remove(key);
            return Err(PoolError::Full { need: Bytes(bytes), budget });
        }
        Ok(model)
    }

    /// The model `key`, if it is in the pool.
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<Arc<V>> {
        self.models.get(key).map(|of| of.model)
    }

    /// Takes the model `key` out of the pool; the next call loads it again.
    pub fn remove(&self, key: &K) {
        self.models.remove(key);
    }

    /// Bytes of the models in the pool.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.models.weight())
    }

    /// Bytes that the models may take together.
    pub fn budget(&self) -> Bytes {
        self.budget
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::thread;

    use super::*;

    /// Bytes of the models that live, and their highest number.
    #[derive(Default)]
    struct Memory([AtomicU64; 2]);

    /// A model that takes a number of bytes of a memory while it lives.
    struct Block<'a>(&'a Memory, u64);

    impl Memory {
        fn block(&self, bytes: u64) -> Result<Block<'_>, Infallible> {
            let [now, peak] = &self.0;
            peak.fetch_max(now.fetch_add(bytes, SeqCst) + bytes, SeqCst);
            Ok(Block(self, bytes))
        }

        fn now(&self) -> u64 {
            self.0[0].load(SeqCst)
        }

        fn peak(&self) -> u64 {
            self.0[1].load(SeqCst)
        }
    }

    impl Drop for Block<'_> {
        fn drop(&mut self) {
            self.0.0[0].fetch_sub(self.1, SeqCst);
        }
    }

    fn pool(budget: u64) -> ModelPool<u64, Block<'static>> {
        ModelPool::new(Bytes(budget), |block| Bytes(block.1))
    }

    fn memory() -> &'static Memory {
        Box::leak(Box::default())
    }

    #[test]
    fn a_model_is_loaded_once_for_all_who_ask() {
        let (pool, memory, start) = (pool(10), memory(), Barrier::new(4));
        thread::scope(|scope| {
            let call = || {
                start.wait();
                let load = || {
                    thread::sleep(std::time::Duration::from_millis(20));
                    memory.block(10)
                };
                pool.get_or_load(&0, load).unwrap()
            };
            let calls = [(); 4].map(|()| scope.spawn(call));
            let models = calls.map(|call| call.join().unwrap());
            assert!(models.iter().all(|model| Arc::ptr_eq(model, &models[0])));
        });
        assert_eq!((memory.now(), pool.bytes()), (10, Bytes(10)));
    }

    #[test]
    fn models_in_use_stay_and_others_make_room() {
        let (pool, memory) = (pool(20), memory());
        let get = |key| pool.get_or_load(&key, || memory.block(10));
        let used = get(0).unwrap();
        for key in 1..5 {
            drop(get(key).unwrap());
            assert_eq!((memory.now(), pool.bytes()), (20, Bytes(20)));
        }
        assert!(Arc::ptr_eq(&used, &get(0).unwrap()), "it was not loaded again");
        let other = get(4).unwrap();
        let full = PoolError::Full { need: Bytes(10), budget: Bytes(20) };
        assert_eq!(get(5).err(), Some(full));
        assert_eq!((memory.now(), pool.get(&5).is_none()), (20, true));
        drop((used, other));
        assert!(get(5).is_ok());
        pool.remove(&5);
        assert_eq!((memory.now(), pool.bytes()), (10, Bytes(10)));
    }

    #[test]
    fn a_model_beyond_the_budget_is_refused_and_evicts_nothing() {
        let (pool, memory) = (pool(20), memory());
        pool.get_or_load(&0, || memory.block(20)).unwrap();
        let refused = pool.get_or_load(&1, || memory.block(21)).err();
        assert_eq!(refused, Some(PoolError::TooLarge { need: Bytes(21), budget: Bytes(20) }));
        assert_eq!((memory.now(), pool.get(&0).is_some()), (20, true));
    }

    #[test]
    fn a_load_that_fails_is_tried_again() {
        let (pool, memory) = (pool(10), memory());
        let failed = pool.get_or_load(&0, || Err(io::Error::other("the disk is gone")));
        assert_eq!(failed.err().unwrap().to_string(), "the disk is gone");
        assert!(pool.get_or_load(&0, || memory.block(1)).is_ok());
    }

    #[test]
    fn a_key_has_one_model_at_a_time_while_many_threads_hammer() {
        let (pool, start) = (pool(6), Barrier::new(4));
        let memories: Vec<_> = (0..12).map(|_| memory()).collect();
        let work = |thread: u64| {
            start.wait();
            for call in 0..2_000 {
                let key = (call * (thread + 1) + call / 7) % 12;
                let model = pool.get_or_load(&key, || memories[key as usize].block(1));
                if call % 3 == 0 {
                    thread::yield_now();
                }
                drop(model);
            }
        };
        let work = &work;
        thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || work(thread));
            }
        });
        let alive: u64 = memories.iter().map(|memory| memory.now()).sum();
        assert_eq!((Bytes(alive), alive), (pool.bytes(), 6));
        assert!(memories.iter().all(|memory| memory.peak() == 1));
    }
}
