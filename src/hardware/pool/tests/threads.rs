use std::collections::VecDeque;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use burn::backend::Flex;
use fewshot_models::Conv4;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::*;
use crate::hardware::pool::state::Slot;
use crate::hardware::pool::{Lease, PoolError, PoolStatistics};

/// Returns when `others` calls wait for the load of model 0.
fn wait_for_waiters(pool: &ModelPool<usize, Block>, others: usize) {
    loop {
        let waiting = match pool.lock().slots.get(&key(0)) {
            // The slot and the call that loads refer to it too.
            Some(Slot::Loading(in_flight)) => Arc::strong_count(in_flight) - 2,
            _ => panic!("model 0 is not loading"),
        };
        if waiting == others {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_pool_and_its_leases_go_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<ModelPool<String, Conv4<Flex>>>();
    shared::<Lease<Block>>();
}

#[test]
fn calls_for_one_model_load_it_once() {
    let (pool, memory) = (pool(10), Memory::default());
    let load = || {
        wait_for_waiters(&pool, 3);
        Ok::<_, String>(memory.block(10))
    };
    let call = || pool.get_or_load(&key(0), Bytes(10), load).unwrap();
    thread::scope(|scope| {
        let calls = [(); 4].map(|()| scope.spawn(call));
        let leases = calls.map(|call| call.join().unwrap());
        assert!(leases.iter().all(|lease| std::ptr::eq(&**lease, &*leases[0])));
    });
    let statistics = pool.statistics();
    assert_eq!((statistics.loads, statistics.misses, statistics.hits), (1, 1, 3));
    assert_eq!((memory.peak(), pool.evict_all()), (10, 1), "no lease is left over");
}

#[test]
fn those_who_wait_for_a_load_that_fails_are_told_why() {
    let (pool, memory) = (pool(10), Memory::default());
    let fail = || {
        wait_for_waiters(&pool, 2);
        Err("the disk is gone")
    };
    thread::scope(|scope| {
        let call = || pool.get_or_load(&key(0), Bytes(10), fail).err().unwrap();
        let mut errors = [(); 3].map(|()| scope.spawn(call)).map(|call| call.join().unwrap());
        errors.sort_by_key(|error| !matches!(error, PoolError::Load(_)));
        assert_eq!(errors[0], PoolError::Load("the disk is gone"));
        for error in &errors[1..] {
            assert_eq!(
                error.to_string(),
                "0 as f32 on flex:0 was being loaded by another call, which failed: the model could \
                 not be loaded: the disk is gone"
            );
        }
    });
    let statistics = pool.statistics();
    assert_eq!((statistics.misses, statistics.loads_failed, statistics.bytes), (3, 1, Bytes(0)));
    pool.get_or_load(&key(0), Bytes(10), || Ok::<_, String>(memory.block(10))).unwrap();
}

#[test]
fn a_load_that_panics_wedges_nobody() {
    let (pool, memory) = (pool(10), Memory::default());
    thread::scope(|scope| {
        let (began, begun) = channel();
        let pool = &pool;
        let loading = scope.spawn(move || {
            pool.get_or_load(&key(0), Bytes(10), || -> Result<Block, String> {
                began.send(()).unwrap();
                wait_for_waiters(pool, 2);
                panic!("on purpose")
            })
        });
        begun.recv().unwrap();
        let call = || pool.get_or_load(&key(0), Bytes(10), || Err("not called")).err().unwrap();
        let waiting = [(); 2].map(|()| scope.spawn(call)).map(|call| call.join().unwrap());
        assert!(loading.join().is_err(), "the panic passes through");
        for error in waiting {
            let expected = PoolError::OtherLoad {
                key: "0 as f32 on flex:0".to_owned(),
                reason: "it panicked".to_owned(),
            };
            assert_eq!(error, expected);
        }
    });
    let statistics = pool.statistics();
    assert_eq!((statistics.loads_failed, statistics.bytes), (1, Bytes(0)));
    pool.get_or_load(&key(0), Bytes(10), || Ok::<_, String>(memory.block(10))).unwrap();
}

#[test]
fn a_hook_that_panics_gives_the_room_back() {
    let memory = Memory::default();
    let fuse = AtomicU64::new(0);
    let pool = pool(10).with_release(move |_| {
        assert!(fuse.fetch_add(1, Ordering::SeqCst) > 0, "on purpose");
    });
    let load = |id| pool.get_or_load(&key(id), Bytes(10), || Ok::<_, String>(memory.block(10)));
    load(0).unwrap();
    let panicked = thread::scope(|scope| scope.spawn(|| load(1).map(drop)).join().is_err());
    assert!(panicked);
    assert_eq!((pool.statistics().bytes, memory.now()), (Bytes(0), 0));
    load(1).unwrap();
}

#[test]
fn loads_of_several_models_overlap() {
    let (pool, memory) = (pool(20), Memory::default());
    let both = Barrier::new(2);
    thread::scope(|scope| {
        for id in 0..2 {
            let (pool, both, memory) = (&pool, &both, &memory);
            scope.spawn(move || {
                pool.get_or_load(&key(id), Bytes(10), || {
                    both.wait();
                    Ok::<_, String>(memory.block(10))
                })
                .unwrap();
            });
        }
    });
    assert_eq!(pool.statistics().loads, 2);
}

#[test]
fn a_model_that_is_there_is_leased_while_others_are_evicted() {
    let (entered, evicting) = channel();
    let (proceed, go) = channel::<()>();
    let gates = Mutex::new((entered, go));
    let pool = pool(20).with_release(move |_| {
        let (entered, go) = &*gates.lock().unwrap();
        entered.send(()).unwrap();
        go.recv().unwrap();
    });
    let memory = Memory::default();
    let load = |id| pool.get_or_load(&key(id), Bytes(10), || Ok::<_, String>(memory.block(10)));
    drop((load(0).unwrap(), load(1).unwrap()));
    thread::scope(|scope| {
        let third = scope.spawn(|| load(2).map(drop));
        evicting.recv().unwrap();
        let kept = (0..2).filter(|&id| pool.contains(&key(id))).collect::<Vec<_>>();
        assert_eq!(kept.len(), 1);
        load(kept[0]).unwrap();
        let statistics = pool.statistics();
        assert_eq!((statistics.hits, statistics.bytes), (1, Bytes(20)), "charged until gone");
        proceed.send(()).unwrap();
        third.join().unwrap().unwrap();
    });
}

fn within_budgets(statistics: &PoolStatistics) {
    let device = statistics.devices[&cpu(0)];
    assert!(device.bytes <= device.budget, "{statistics:?}");
    // A model on its way out is neither there nor counted as evicted.
    assert!(statistics.loads >= statistics.evictions + device.models as u64, "{statistics:?}");
}

#[test]
fn no_budget_is_exceeded_while_many_threads_hammer() {
    const BUDGET: u64 = 50;
    let (pool, memory) = (pool(BUDGET), Memory::default());
    let refused = AtomicU64::new(0);
    let start = Barrier::new(6);
    let work = |seed| {
        start.wait();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut held = VecDeque::new();
        for _ in 0..2_000 {
            let id = rng.next_u32() as usize % 16;
            let bytes = 5 + id as u64 % 7;
            let planned = Bytes(bytes + u64::from(rng.next_u32() % 3));
            let fails = rng.next_u32().is_multiple_of(16);
            let made = || {
                thread::yield_now();
                if fails { Err("no") } else { Ok(memory.block(bytes)) }
            };
            match pool.get_or_load(&key(id), planned, made) {
                Ok(lease) => {
                    assert_eq!(lease.bytes, bytes);
                    held.push_back(lease);
                }
                Err(PoolError::WouldNotFit { .. }) => {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
                Err(PoolError::Load(_) | PoolError::OtherLoad { .. }) => {}
                Err(other) => panic!("{other}"),
            }
            if held.len() > rng.next_u32() as usize % 3 {
                held.pop_front();
            }
            // Leases of several threads are to be held at once, on one processor too.
            thread::yield_now();
            if rng.next_u32().is_multiple_of(64) {
                pool.evict_all();
            }
            if rng.next_u32().is_multiple_of(8) {
                within_budgets(&pool.statistics());
            }
        }
    };
    thread::scope(|scope| {
        let threads = [1, 2, 3, 4, 5, 6].map(|seed| scope.spawn(move || work(seed)));
        for thread in threads {
            thread.join().unwrap();
        }
    });
    let statistics = pool.statistics();
    assert!(memory.peak() <= BUDGET, "{} bytes were alive at once", memory.peak());
    assert_eq!(statistics.bytes.0, memory.now());
    assert_eq!(statistics.hits + statistics.misses, 6 * 2_000);
    let there = statistics.devices[&cpu(0)].models as u64;
    assert_eq!(statistics.loads, statistics.evictions + there);
    assert!(statistics.hits > 100 && statistics.evictions > 100, "{statistics:?}");
    assert!(refused.into_inner() > 0, "the budget was never tight");
    pool.evict_all();
    assert_eq!((pool.statistics().bytes, memory.now()), (Bytes(0), 0));
}
