use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::hardware::pool::{Lease, PoolError, PoolStatistics};

type Loaded = Result<Lease<Block>, PoolError<Infallible>>;

fn load(pool: &ModelPool<usize, Block>, memory: &Memory, id: usize, bytes: u64) -> Loaded {
    pool.get_or_load(&key(id), Bytes(bytes), || Ok(memory.block(bytes)))
}

fn present(pool: &ModelPool<usize, Block>, ids: std::ops::Range<usize>) -> Vec<usize> {
    ids.filter(|&id| pool.contains(&key(id))).collect()
}

#[test]
fn models_of_another_device_or_type_are_others() {
    let memory = Memory::default();
    let pool = ModelPool::<usize, Block>::new([(cpu(0), Bytes(10)), (cpu(1), Bytes(10))], weigh);
    let keys = [
        ModelKey::new(cpu(0), DType::F32, 0),
        ModelKey::new(cpu(1), DType::F32, 0),
        ModelKey::new(cpu(1), DType::BF16, 0),
    ];
    let get = |key| pool.get_or_load(key, Bytes(5), || Ok::<_, String>(memory.block(5))).unwrap();
    let leases = keys.each_ref().map(get);
    assert_eq!(pool.statistics().loads, 3);
    assert!(!std::ptr::eq(&*leases[1], &*leases[2]));
    assert!(std::ptr::eq(&*leases[2], &*get(&keys[2])));
    let elsewhere = ModelKey::new(cpu(2), DType::F32, 0);
    let refused = pool.get_or_load(&elsewhere, Bytes(5), || Err("not called")).err().unwrap();
    assert_eq!(refused.to_string(), "the pool has no budget for flex:2. Usable: flex:0, flex:1");
    assert_eq!(keys[2].to_string(), "0 as bf16 on flex:1");
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_evicted_or_loaded() {
    let (pool, memory) = (pool(30), Memory::default());
    let held = load(&pool, &memory, 0, 12).unwrap();
    load(&pool, &memory, 1, 10).unwrap();
    for need in [19, 31, u64::MAX] {
        let refused = pool.get_or_load(&key(2), Bytes(need), || Err("not called")).err().unwrap();
        let (freeable, budget) = (Bytes(18), Bytes(30));
        let (device, need) = (cpu(0), Bytes(need));
        assert_eq!(refused, PoolError::WouldNotFit { device, need, freeable, budget });
    }
    assert_eq!(present(&pool, 0..3), [0, 1]);
    drop(held);
    let statistics = pool.statistics();
    assert_eq!((statistics.misses, statistics.evictions, statistics.loads_failed), (5, 0, 0));
    load(&pool, &memory, 2, 30).unwrap();
    assert_eq!(present(&pool, 0..3), [2]);
}

#[test]
fn a_failed_load_leaves_nothing_behind() {
    let (pool, memory) = (pool(30), Memory::default());
    let failed = pool.get_or_load(&key(0), Bytes(20), || Err("no such file")).err().unwrap();
    assert_eq!(failed, PoolError::Load("no such file"));
    assert_eq!(failed.to_string(), "the model could not be loaded: no such file");
    let statistics = pool.statistics();
    assert_eq!((statistics.bytes, statistics.loads_failed), (Bytes(0), 1));
    load(&pool, &memory, 0, 30).unwrap();
}

#[test]
fn a_load_that_asks_for_its_own_model_is_told_so() {
    let (pool, memory) = (pool(30), Memory::default());
    let outer = pool.get_or_load(&key(0), Bytes(10), || {
        load(&pool, &memory, 1, 10).map_err(|error| error.to_string())?;
        load(&pool, &memory, 0, 10).map(|_| memory.block(10)).map_err(|error| error.to_string())
    });
    let text = outer.err().unwrap().to_string();
    assert!(text.ends_with("its own loading asks for it"), "{text}");
    assert_eq!(present(&pool, 0..2), [1]);
}

#[test]
fn the_hook_is_called_once_for_all_that_go_at_once_and_after_they_went() {
    let calls = Arc::new(AtomicUsize::new(0));
    let (memory, seen) = (Memory::default(), calls.clone());
    let watched = memory.clone();
    let pool = pool(30).with_release(move |device| {
        assert_eq!((device, watched.now()), (&cpu(0), 0));
        seen.fetch_add(1, Ordering::SeqCst);
    });
    for id in 0..3 {
        load(&pool, &memory, id, 10).unwrap();
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    load(&pool, &memory, 3, 25).unwrap();
    assert_eq!((calls.load(Ordering::SeqCst), pool.statistics().evictions), (1, 3));
    assert_eq!((pool.evict_all(), pool.evict_all()), (1, 0));
    assert_eq!((calls.load(Ordering::SeqCst), memory.now()), (2, 0));
}

#[test]
fn leases_keep_a_model_beyond_eviction_and_the_pool_itself() {
    let (pool, memory) = (pool(30), Memory::default());
    let lease = load(&pool, &memory, 0, 10).unwrap();
    let clone = lease.clone();
    drop(lease);
    assert_eq!(pool.evict_all(), 0);
    assert!(pool.contains(&key(0)));
    drop(pool);
    assert_eq!((clone.bytes, memory.now()), (10, 10));
    drop(clone);
    assert_eq!(memory.now(), 0);
}

#[test]
fn statistics_read_back_from_json() {
    let (pool, memory) = (pool(30), Memory::default());
    for id in [0, 1, 0, 2, 3] {
        load(&pool, &memory, id, 10).unwrap();
    }
    let found = pool.statistics();
    assert_eq!((found.hits, found.misses, found.evictions, found.bytes), (1, 4, 1, Bytes(30)));
    let json = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<PoolStatistics>(&json).unwrap(), found);
}
