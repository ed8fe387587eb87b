//! The pool against one that is a list, over random operations.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::*;
use crate::hardware::pool::{Lease, PoolError, PoolStatistics, PoolUsage};

/// What a call is expected to end with.
#[derive(Debug, PartialEq)]
enum End {
    Leased,
    WouldNotFit { need: u64, freeable: u64 },
    Load,
}

#[derive(Clone, Debug)]
struct Model {
    key: ModelKey<usize>,
    bytes: u64,
    leases: usize,
    /// When it was used last.
    since: u64,
}

/// A pool of two devices that does everything by going through lists.
struct Reference {
    budgets: [u64; 2],
    peaks: [u64; 2],
    models: Vec<Model>,
    now: u64,
    counted: PoolStatistics,
}

impl Reference {
    fn new(budgets: [u64; 2]) -> Self {
        let counted = PoolStatistics::default();
        Self { budgets, peaks: [0; 2], models: Vec::new(), now: 0, counted }
    }

    fn used(&self, device: usize) -> u64 {
        let there = self.models.iter().filter(|model| model.key.device.index == device);
        there.map(|model| model.bytes).sum()
    }

    fn idle(&self, device: usize) -> Vec<usize> {
        let idle = |&index: &usize| {
            let model = &self.models[index];
            model.key.device.index == device && model.leases == 0
        };
        let mut found: Vec<usize> = (0..self.models.len()).filter(idle).collect();
        found.sort_by_key(|&index| self.models[index].since);
        found
    }

    /// Evicts until `used + held + need` fit; what could be free where they cannot.
    fn make_room(&mut self, device: usize, held: u64, need: u64) -> Result<(), u64> {
        let budget = self.budgets[device];
        let idle: u64 = self.idle(device).iter().map(|&index| self.models[index].bytes).sum();
        let stay = self.used(device) - idle + held;
        if stay + need > budget {
            return Err(budget - stay);
        }
        while self.used(device) + held + need > budget {
            let oldest = self.idle(device)[0];
            self.evict(oldest);
        }
        let (mine, other) = (self.used(device) + held + need, self.used(1 - device));
        self.peaks[device] = self.peaks[device].max(mine);
        self.counted.peak_bytes = self.counted.peak_bytes.max(Bytes(mine + other));
        Ok(())
    }

    fn evict(&mut self, index: usize) {
        self.models.remove(index);
        self.counted.evictions += 1;
    }

    fn get(&mut self, key: &ModelKey<usize>, planned: u64, loaded: Option<u64>) -> End {
        if let Some(model) = self.models.iter_mut().find(|model| model.key == *key) {
            model.leases += 1;
            self.counted.hits += 1;
            return End::Leased;
        }
        self.counted.misses += 1;
        let device = key.device.index;
        if let Err(freeable) = self.make_room(device, 0, planned) {
            return End::WouldNotFit { need: planned, freeable };
        }
        let Some(bytes) = loaded else {
            self.counted.loads_failed += 1;
            return End::Load;
        };
        let more = bytes.saturating_sub(planned);
        if more > 0
            && let Err(freeable) = self.make_room(device, planned, more)
        {
            self.counted.loads_failed += 1;
            return End::WouldNotFit { need: bytes, freeable: freeable + planned };
        }
        self.counted.loads += 1;
        self.models.push(Model { key: key.clone(), bytes, leases: 1, since: 0 });
        End::Leased
    }

    fn end_lease(&mut self, key: &ModelKey<usize>) {
        self.now += 1;
        let model = self.models.iter_mut().find(|model| model.key == *key).unwrap();
        model.leases -= 1;
        model.since = self.now;
    }

    fn evict_all(&mut self) -> usize {
        let before = self.models.len();
        for device in 0..2 {
            while let Some(&oldest) = self.idle(device).first() {
                self.evict(oldest);
            }
        }
        before - self.models.len()
    }

    fn statistics(&self) -> PoolStatistics {
        let usage = |budget, bytes, peak, models| PoolUsage {
            budget: Bytes(budget),
            bytes: Bytes(bytes),
            peak_bytes: Bytes(peak),
            models,
        };
        let devices = [0, 1].map(|index| {
            let models = self.models.iter().filter(|model| model.key.device.index == index);
            let (budget, peak) = (self.budgets[index], self.peaks[index]);
            (cpu(index), usage(budget, self.used(index), peak, models.count()))
        });
        PoolStatistics {
            bytes: Bytes(self.used(0) + self.used(1)),
            devices: devices.into(),
            ..self.counted.clone()
        }
    }
}

struct Run {
    rng: ChaCha8Rng,
    pool: ModelPool<usize, Block>,
    reference: Reference,
    memory: Memory,
    leases: Vec<(ModelKey<usize>, Lease<Block>)>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let budgets = [40 + below(&mut rng, 40), 20 + below(&mut rng, 20)];
        let places = [0, 1].map(|index| (cpu(index), Bytes(budgets[index])));
        let (pool, reference) = (ModelPool::new(places, weigh), Reference::new(budgets));
        Self { rng, pool, reference, memory: Memory::default(), leases: Vec::new() }
    }

    fn step(&mut self) {
        match below(&mut self.rng, 100) {
            0 => assert_eq!(self.pool.evict_all(), self.reference.evict_all()),
            1..50 => self.end_lease(),
            _ => self.get(),
        }
    }

    fn end_lease(&mut self) {
        if !self.leases.is_empty() {
            let index = below(&mut self.rng, self.leases.len() as u64) as usize;
            let (key, lease) = self.leases.swap_remove(index);
            drop(lease);
            self.reference.end_lease(&key);
        }
    }

    fn get(&mut self) {
        let (device, id) = (below(&mut self.rng, 2) as usize, below(&mut self.rng, 8) as usize);
        let dtype = [DType::F32, DType::F16][below(&mut self.rng, 2) as usize];
        let key = ModelKey::new(cpu(device), dtype, id);
        let planned = 1 + below(&mut self.rng, 20);
        let loaded = match below(&mut self.rng, 8) {
            0 => None,
            1 => Some(planned + below(&mut self.rng, 25)),
            2 => Some(planned - below(&mut self.rng, planned)),
            _ => Some(planned),
        };
        let memory = &self.memory;
        let load = || loaded.map(|bytes| memory.block(bytes)).ok_or("no");
        let end = match self.pool.get_or_load(&key, Bytes(planned), load) {
            Ok(lease) => {
                self.leases.push((key.clone(), lease));
                End::Leased
            }
            Err(PoolError::WouldNotFit { need, freeable, .. }) => {
                End::WouldNotFit { need: need.0, freeable: freeable.0 }
            }
            Err(PoolError::Load("no")) => End::Load,
            Err(other) => panic!("{other}"),
        };
        assert_eq!(end, self.reference.get(&key, planned, loaded));
        if end == End::Leased {
            let found = &self.leases[self.leases.len() - 1].1;
            let expected = self.reference.models.iter().find(|model| model.key == key).unwrap();
            assert_eq!(found.bytes, expected.bytes);
        }
    }

    fn check(&self) {
        assert_eq!(self.pool.statistics(), self.reference.statistics());
        assert_eq!(self.memory.now(), self.reference.used(0) + self.reference.used(1));
        for model in &self.reference.models {
            assert!(self.pool.contains(&model.key), "{} is gone", model.key);
        }
    }
}

fn below(rng: &mut ChaCha8Rng, bound: u64) -> u64 {
    rng.next_u64() % bound
}

#[test]
fn the_pool_does_what_a_list_does() {
    for seed in 0..12 {
        let mut run = Run::new(seed);
        for step in 0..2_000 {
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                run.step();
                run.check();
            }));
            assert!(checked.is_ok(), "seed {seed}, step {step}");
        }
        let counted = run.pool.statistics();
        assert!(counted.hits > 50 && counted.evictions > 50, "seed {seed}: {counted:?}");
        assert!(counted.loads_failed > 20, "seed {seed}: {counted:?}");
    }
}
