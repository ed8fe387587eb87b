//! What a lease of a model that is there costs, from the call to the end of the lease.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use burn::tensor::DType;
use criterion::{Criterion, criterion_group, criterion_main};
use fewshot::hardware::{Bytes, DeviceKey, ModelKey, ModelPool};

/// A model that takes no time to use.
struct Nothing;

type Pool = ModelPool<String, Nothing>;

fn pool_of(models: usize) -> (Pool, Vec<ModelKey<String>>) {
    let device = DeviceKey::new("flex", 0);
    let pool = Pool::new([(device.clone(), Bytes(models as u64))], |_| Bytes(1));
    let key = |id| ModelKey::new(device.clone(), DType::F32, format!("model-{id}"));
    let keys: Vec<_> = (0..models).map(key).collect();
    for key in &keys {
        lease(&pool, key, || Ok(Nothing));
    }
    assert_eq!(pool.statistics().bytes, Bytes(models as u64));
    (pool, keys)
}

fn lease(pool: &Pool, key: &ModelKey<String>, load: fn() -> Result<Nothing, String>) {
    pool.get_or_load(key, Bytes(1), load).expect("the model is there");
}

/// Leases in a row, of one model after the other.
fn hits(pool: &Pool, keys: &[ModelKey<String>], leases: u64) {
    for key in keys.iter().cycle().take(leases as usize) {
        lease(pool, key, || Err("a hit loads nothing".to_owned()));
    }
}

/// The time that every one of `threads` threads takes for `leases` leases, at the same time.
fn side_by_side(pool: &Pool, keys: &[ModelKey<String>], threads: usize, leases: u64) -> Duration {
    let start = Barrier::new(threads + 1);
    thread::scope(|scope| {
        let work = || {
            start.wait();
            hits(pool, keys, leases);
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        start.wait();
        let began = Instant::now();
        for worker in workers {
            worker.join().expect("every lease is a hit");
        }
        began.elapsed()
    })
}

fn pool_hits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pool_hits");
    for models in [1, 1000] {
        let (pool, keys) = pool_of(models);
        group.bench_function(format!("one thread/{models}"), |bencher| {
            bencher.iter_custom(|leases| {
                let began = Instant::now();
                hits(&pool, &keys, leases);
                began.elapsed()
            });
        });
        group.bench_function(format!("two threads/{models}"), |bencher| {
            bencher.iter_custom(|leases| side_by_side(&pool, &keys, 2, leases));
        });
        assert_eq!(pool.statistics().misses, models as u64);
    }
    group.finish();
}

criterion_group!(benches, pool_hits);
criterion_main!(benches);
