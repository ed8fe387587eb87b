//! Memory: what is counted is exact, and training keeps what it has and no more.
#![recursion_limit = "256"]

use std::cell::Cell;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use burn::backend::Autodiff;
use burn::optim::Optimizer;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot::data::GlyphsConfig;
use fewshot::hardware::{
    Bytes, CountingAllocator, HardwareConfig, HardwareError, HardwareManager, MemoryScope,
    MemorySource, guarded, memory_stats, release,
};
use fewshot::learners::MetaLearner;
use fewshot::models::Conv4;
use fewshot::prelude::*;
use fewshot::train::Event;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const SIZE: usize = 8;
const WAYS: usize = 3;

fn encoder<B: Backend>() -> Conv4<B> {
    Conv4Config::new([1, SIZE, SIZE]).with_channels(4).with_blocks(2).init(&Default::default())
}

fn maml<B: Backend>(order: Order) -> Maml<B, Classifier<B, Conv4<B>>> {
    let classifier = Classifier::new(encoder(), 16, WAYS, &Default::default());
    Maml::new(classifier, InnerLoop::new(2, 0.1).with_order(order)).unwrap()
}

fn episodes() -> EpisodeSampler {
    let config = GlyphsConfig {
        train_alphabets: 1,
        validation_alphabets: 1,
        test_alphabets: 1,
        characters: 5,
        drawers: 4,
        size: SIZE,
        ..GlyphsConfig::default()
    };
    let protocol = Protocol::new(WAYS, 1).with_queries(2);
    Glyphs::generate(&config).train.sampler(protocol, 5).unwrap()
}

/// Steps after which memory is looked at, of which the least counts: what threads queue and throw
/// away is there for a while.
const LOOKS: u64 = 10;

/// The bytes in use after the steps up to each of these.
fn after_steps<B, L, O>(learner: L, optimizer: O, steps: [u64; 6]) -> [u64; 6]
where
    B: AutodiffBackend,
    L: MetaLearner<B>,
    O: Optimizer<L, B>,
{
    let seen = Rc::new(Cell::new([u64::MAX; 6]));
    let least = seen.clone();
    let observer = move |event: &Event| {
        let Event::Step { metrics, .. } = event else { return };
        let near = |last: &u64| (last - LOOKS + 1..=*last).contains(&metrics.step);
        if let Some(place) = steps.iter().position(near) {
            // How many buffers are kept depends on how threads met.
            release::<B>(&Default::default());
            let Bytes(in_use) = memory_stats::<B>(&Default::default()).in_use.unwrap();
            let mut all = least.get();
            all[place] = all[place].min(in_use);
            least.set(all);
        }
    };
    let trainer = MetaTrainer::new(learner, optimizer).episodes(episodes()).meta_batch(2);
    // Figures that are yet to be read are no leak.
    trainer.steps(steps[5]).read_every(1).observe(observer).fit::<B>().unwrap();
    seen.get()
}

/// Memory does not grow by more than `allowed` bytes in 60 steps: not in most of five times 60 steps.
///
/// Hash maps of Burn's graph double once their random hashes have it so, and queues of threads grow as
/// these meet: each at a few steps of all. A leak is there each time.
fn stays_flat<B, L, O>(what: &str, learner: L, optimizer: O, allowed: i64)
where
    B: AutodiffBackend,
    L: MetaLearner<B>,
    O: Optimizer<L, B>,
{
    let in_use = after_steps::<B, L, O>(learner, optimizer, [20, 80, 140, 200, 260, 320]);
    assert!(!in_use.contains(&u64::MAX), "{what}: not all were looked at");
    let mut left = [0, 1, 2, 3, 4].map(|at| in_use[at + 1] as i64 - in_use[at] as i64);
    left.sort_unstable();
    assert!(left[2] <= allowed, "{what}: {in_use:?} bytes after 60 steps each");
}

fn training_keeps_no_memory<B: Backend>(allowed: i64) {
    type Proto<B> = ProtoNet<Autodiff<B>, Conv4<Autodiff<B>>>;
    let proto: Proto<B> = ProtoNet::new(encoder());
    stays_flat::<Autodiff<B>, _, _>("ProtoNet", proto, Adam::new().init(), allowed);
    for order in [Order::First, Order::Second] {
        let what = format!("MAML, {order:?}");
        stays_flat::<Autodiff<B>, _, _>(&what, maml(order), Adam::new().init(), allowed);
    }
}

/// What is said of a tensor of so many numbers, which no device has room for.
fn refused<B: Backend>(device: &B::Device, floats: usize) -> HardwareError {
    guarded::<B, _>(device, || Tensor::<B, 1>::zeros([floats], device)).unwrap_err()
}

#[cfg(feature = "flex")]
mod flex {
    use std::sync::Barrier;

    use burn::backend::Flex;
    use burn::backend::flex::FlexDevice;
    use burn::tensor::TensorData;

    use super::*;

    const FLOATS: usize = 100_000;
    const BYTES: u64 = 4 * FLOATS as u64;
    /// 22 bytes a step. A tensor, or its handle alone, is more.
    const ALLOWED: i64 = 60 * 22;
    /// What a tensor takes beside its numbers: shape, handle, layout.
    const BESIDE: u64 = 2000;

    fn numbers() -> Tensor<Flex, 1> {
        Tensor::from_data(TensorData::new(vec![1.0f32; FLOATS], [FLOATS]), &Default::default())
    }

    /// The device, once the thread has what Burn keeps for each: the settings of its devices.
    fn device() -> FlexDevice {
        drop(numbers());
        FlexDevice
    }

    fn about(found: Bytes, expected: u64) {
        assert!((expected..expected + BESIDE).contains(&found.0), "{found:?}, not {expected}");
    }

    #[test]
    fn training_on_one_thread_keeps_no_memory() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        pool.install(|| super::training_keeps_no_memory::<Flex>(ALLOWED));
    }

    #[test]
    fn training_keeps_no_memory() {
        super::training_keeps_no_memory::<Flex>(ALLOWED);
    }

    #[test]
    fn the_allocator_counts_a_tensor_and_its_end() {
        let device = device();
        let stats = || memory_stats::<Flex>(&device);
        let before = stats();
        assert_eq!(before.source, MemorySource::Allocator);
        assert_eq!(before.reserved, None);
        assert!(before.free < before.total && before.host < before.total);
        let tensor = numbers();
        about(Bytes(stats().in_use.unwrap().0 - before.in_use.unwrap().0), BYTES);
        drop(tensor);
        assert_eq!(stats().in_use, before.in_use);
    }

    #[test]
    fn the_peak_of_a_computation_is_exact() {
        let device = device();
        let (sum, report) = MemoryScope::measure::<Flex, _>(&device, || {
            let [a, b] = [numbers(), numbers()];
            // Not in place: `a` is used again.
            let both = a.clone() + b;
            drop(a);
            both
        });
        assert_eq!(report.before.source, MemorySource::Allocator);
        // `a` and the sum, which is written over `b`; or a third, where it is not.
        let peak = report.peak.unwrap();
        let tensors = peak.0 / BYTES;
        assert!([2, 3].contains(&tensors), "{tensors} tensors at once");
        about(peak, tensors * BYTES);
        about(Bytes(report.left_behind.unwrap() as u64), BYTES);
        drop(sum);

        let ((), report) = MemoryScope::measure::<Flex, _>(&device, || drop(numbers()));
        about(report.peak.unwrap(), BYTES);
        assert_eq!(report.left_behind, Some(0));
        let tensor = numbers();
        let ((), report) = MemoryScope::measure::<Flex, _>(&device, || drop(tensor));
        about(Bytes(report.left_behind.unwrap().unsigned_abs()), BYTES);
        assert!(report.left_behind < Some(0) && report.peak < Some(Bytes(BESIDE)), "{report:?}");
    }

    /// Until none allocates for a while: those of an earlier test's pools may still be starting, and have
    /// memory of their own.
    fn wait_for_other_threads() {
        let changed = || {
            let before = memory_stats::<Flex>(&device()).in_use;
            thread::sleep(Duration::from_millis(50));
            memory_stats::<Flex>(&device()).in_use != before
        };
        while changed() {}
    }

    #[test]
    fn scopes_within_a_scope_leave_it_its_peak() {
        let device = device();
        let touch = |tensors: usize| {
            let all = (0..tensors).map(|_| numbers()).collect::<Vec<_>>();
            drop(all);
        };
        wait_for_other_threads();
        let (inner, outer) = MemoryScope::measure::<Flex, _>(&device, || {
            touch(3);
            let kept = numbers();
            let inner = MemoryScope::measure::<Flex, _>(&device, || touch(1)).1;
            drop(kept);
            inner
        });
        about(outer.peak.unwrap(), 3 * BYTES);
        about(inner.peak.unwrap(), BYTES);
        assert_eq!([inner.left_behind, outer.left_behind], [Some(0); 2]);
    }

    #[test]
    fn a_scope_sees_what_other_threads_allocate() {
        let device = device();
        let ((), report) = MemoryScope::measure::<Flex, _>(&device, || {
            let together = Barrier::new(4);
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let block = vec![1u8; 250_000];
                        together.wait();
                        assert_eq!(block[249_999], 1);
                    });
                }
            });
        });
        let peak = report.peak.unwrap().0;
        // Threads have names and handles of their own.
        assert!((1_000_000..1_020_000).contains(&peak), "{peak}");
    }

    #[test]
    fn a_probe_leaves_nothing_behind() {
        let detect = || drop(HardwareManager::<Flex>::detect(HardwareConfig::new()).unwrap());
        detect();
        let ((), report) = MemoryScope::measure::<Flex, _>(&device(), || {
            (0..20).for_each(|_| detect());
        });
        let left = report.left_behind.unwrap();
        assert!(left.abs() < 20 * 256, "{left} bytes after 20 probes");
    }

    #[test]
    fn a_refusal_tells_what_was_in_use_and_free() {
        let device = device();
        let kept = numbers();
        let error = refused::<Flex>(&device, 1 << 61);
        let HardwareError::OutOfMemory { request, in_use, free, .. } = error else {
            panic!("{error}")
        };
        // Rust's message of what no address can count has no number.
        assert_eq!(request, None);
        assert!(in_use.unwrap() >= Bytes(BYTES), "{in_use:?}");
        assert!(free.unwrap() > Bytes(0) && free < memory_stats::<Flex>(&device).total);
        drop(kept);
    }

    #[test]
    fn kept_buffers_are_given_back() {
        let device = device();
        let images = Tensor::<Flex, 4>::ones([8, 1, SIZE, SIZE], &device);
        drop(encoder::<Flex>().encode(images, BnStatistics::Batch));
        let before = memory_stats::<Flex>(&device).in_use.unwrap();
        release::<Flex>(&device);
        assert!(memory_stats::<Flex>(&device).in_use.unwrap() < before);
        release::<Flex>(&device);
    }
}

/// Laws of CubeCL's pools.
#[cfg(any(feature = "wgpu", feature = "cuda"))]
mod pools {
    use super::*;

    /// What is told to be free.
    pub fn a_refusal_tells_what_was_asked_for_and_in_use<B: Backend>() -> Option<Bytes> {
        let device = B::Device::default();
        let kept = Tensor::<B, 1>::ones([250_000], &device);
        let in_use = memory_stats::<B>(&device).in_use;
        assert!(in_use >= Some(Bytes(1_000_000)));
        let error = refused::<B>(&device, 1 << 40);
        let HardwareError::OutOfMemory { request, in_use: found, free, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((*request, *found), (Some(Bytes(4 << 40)), in_use));
        assert!(error.to_string().contains("(asked for 4.00 TiB, in use "), "{error}");
        drop(kept);
        *free
    }

    pub fn a_probe_leaves_nothing_behind<B: Backend>() {
        let detect = || drop(HardwareManager::<B>::detect(HardwareConfig::new()).unwrap());
        detect();
        let ((), report) = MemoryScope::measure::<B, _>(&Default::default(), || {
            (0..5).for_each(|_| detect());
        });
        assert_eq!(report.left_behind, Some(0));
    }

    /// What is told of the device's memory: all and free.
    pub fn a_pool_counts_a_tensor_and_gives_its_pages_back<B: Backend>() -> [Option<Bytes>; 2] {
        // CUDA's buffers are multiples of 512 bytes.
        const FLOATS: usize = 256_000;
        const BYTES: u64 = 4 * FLOATS as u64;
        let device = B::Device::default();
        let (tensor, report) =
            MemoryScope::measure::<B, _>(&device, || Tensor::<B, 1>::ones([FLOATS], &device));
        assert_eq!(report.after.source, MemorySource::Pool);
        assert_eq!(report.left_behind, Some(BYTES as i64));
        assert!(report.peak >= Some(Bytes(BYTES)));
        assert!(report.after.reserved >= report.after.in_use);
        drop(tensor);
        let before = memory_stats::<B>(&device);
        release::<B>(&device);
        let after = memory_stats::<B>(&device);
        assert!(after.reserved <= before.reserved, "{before} then {after}");
        assert_eq!(after.in_use, before.in_use);
        [report.after.total, report.after.free]
    }
}

/// wgpu does not tell what is free.
#[cfg(feature = "wgpu")]
mod wgpu {
    use burn::backend::Wgpu;

    use super::pools;

    #[test]
    fn training_keeps_no_memory() {
        super::training_keeps_no_memory::<Wgpu>(0);
    }

    #[test]
    fn a_refusal_tells_what_was_asked_for_and_in_use() {
        assert_eq!(pools::a_refusal_tells_what_was_asked_for_and_in_use::<Wgpu>(), None);
    }

    #[test]
    fn a_probe_leaves_nothing_behind() {
        pools::a_probe_leaves_nothing_behind::<Wgpu>();
    }

    #[test]
    fn a_pool_counts_a_tensor_and_gives_its_pages_back() {
        let told = pools::a_pool_counts_a_tensor_and_gives_its_pages_back::<Wgpu>();
        assert_eq!(told, [None; 2]);
    }
}

/// CUDA's driver tells what is free.
#[cfg(feature = "cuda")]
mod cuda {
    use burn::backend::Cuda;

    use super::{Bytes, pools};

    #[test]
    #[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
    fn training_keeps_no_memory() {
        super::training_keeps_no_memory::<Cuda>(0);
    }

    #[test]
    #[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
    fn a_refusal_tells_what_was_asked_for_in_use_and_free() {
        let free = pools::a_refusal_tells_what_was_asked_for_and_in_use::<Cuda>();
        assert!(free > Some(Bytes(0)));
    }

    #[test]
    #[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
    fn a_probe_leaves_nothing_behind() {
        pools::a_probe_leaves_nothing_behind::<Cuda>();
    }

    #[test]
    #[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
    fn a_pool_counts_a_tensor_and_gives_its_pages_back() {
        let [total, free] = pools::a_pool_counts_a_tensor_and_gives_its_pages_back::<Cuda>();
        assert!(free > Some(Bytes(0)) && free < total, "{free:?} of {total:?}");
    }
}
