mod accelerator;
mod effort;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, FloatDType, Tensor};
use fewshot_kernels::limits::{LaunchTime, LimitError, ProductTime, launch_time};
use serde::{Deserialize, Serialize};

use super::Bytes;
use super::capabilities::{Capabilities, FLOATS};
use accelerator::Accelerator;
pub use effort::Effort;

/// Speed of a device at simple operations, measured on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Seconds since 1970 when it was measured.
    pub measured: u64,
    /// Threads of the processor meanwhile.
    pub threads: usize,
    /// Matrix products by data type, in operations a second: the fastest of the sizes.
    pub products: BTreeMap<String, f64>,
    /// On accelerators, the size of the fastest product of a data type and the kernel that computed
    /// it, as `8192 x 8192, ordered_double_cmma`. A data type that is not in it was measured by
    /// Burn's own product.
    pub ways: BTreeMap<String, String>,
    /// Its copy of a large tensor, bytes read and written both counted, in bytes a second; on an
    /// accelerator of several copies in a row.
    pub copy: f64,
    /// Size of the tensor that was copied.
    pub copied: Bytes,
    /// Seconds that a tiny operation takes until it is done: by itself on a processor, one launch
    /// among many in a row on an accelerator.
    pub launch: f64,
    /// Seconds that the host needs to issue a launch, on an accelerator.
    pub issue: Option<f64>,
    /// Seconds that the `f32` product of two square matrices takes, by rows.
    pub squares: BTreeMap<usize, f64>,
}

impl Calibration {
    /// Measures `device`.
    ///
    /// # Panics
    /// If the device fails, as backends do.
    pub fn measure<B: Backend>(device: &B::Device, effort: Effort) -> Self {
        let able = Capabilities::of::<B>(device);
        let squares = effort.squares();
        let time = |size, dtype| (size, square::<B>(size, dtype, device));
        let f32s = squares.iter().map(|size| time(*size, FloatDType::F32));
        let f32s = f32s.collect::<BTreeMap<_, _>>();
        let mut calibration = Self {
            measured: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs()),
            threads: rayon::current_num_threads(),
            products: BTreeMap::from([("f32".to_owned(), fastest(&f32s))]),
            ways: BTreeMap::new(),
            copy: 0.0,
            copied: Bytes(0),
            launch: 0.0,
            issue: None,
            squares: f32s,
        };
        calibration.limits::<B>(effort, device).unwrap_or_else(|error| panic!("{error}"));
        for (name, dtype) in FLOATS.into_iter().filter(|(name, _)| able.dtype(name).arithmetic) {
            if !calibration.products.contains_key(name) {
                let largest = &squares[squares.len().saturating_sub(2)..];
                let times = largest.iter().map(|size| time(*size, dtype.into())).collect();
                calibration.products.insert(name.to_owned(), fastest(&times));
            }
        }
        calibration
    }

    /// Fills in what kernels alone do on an accelerator, or copies and launches of a processor.
    fn limits<B: Backend>(&mut self, effort: Effort, device: &B::Device) -> Result<(), LimitError> {
        match launch_time::<B>(device, effort.seconds()) {
            Ok(LaunchTime { issue, done }) => {
                (self.issue, self.launch) = (Some(issue), done);
                let accelerator = Accelerator::<B> { device, effort };
                let copied = accelerator.copy()?;
                (self.copied, self.copy) = (Bytes(copied.bytes), copied.rate());
                for (of, time) in accelerator.products()? {
                    let ProductTime { size, strategy, .. } = &time;
                    self.products.insert(of.to_string(), time.rate());
                    self.ways.insert(of.to_string(), format!("{size} x {size}, {strategy}"));
                }
                Ok(())
            }
            Err(LimitError::NoKernels) => {
                let floats = effort.floats();
                self.copied = Bytes(4 * floats as u64);
                self.copy = (2 * self.copied.0) as f64 / copy::<B>(floats, device);
                self.launch = launch::<B>(device);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The least time for so many operations of `dtype`, so many bytes to and from memory and so
    /// many operations of the backend, in seconds; `None` without a rate for the data type.
    ///
    /// Whichever of arithmetic and traffic takes longer hides the other. An estimate: good to rank,
    /// not to promise.
    pub fn seconds(&self, flops: f64, dtype: &str, bytes: Bytes, launches: u64) -> Option<f64> {
        let rate = self.products.get(dtype)?;
        let busy = (flops / rate).max(bytes.0 as f64 / self.copy);
        Some(busy + launches as f64 * self.launch)
    }

    /// From how many rows on the product of two square matrices is faster here than on `other`.
    pub fn crossover(&self, other: &Self) -> Option<usize> {
        let faster = |size: &usize| Some(self.squares.get(size)? < other.squares.get(size)?);
        let sizes = self.squares.keys().rev();
        sizes.take_while(|size| faster(size) == Some(true)).last().copied()
    }
}

fn fastest(times: &BTreeMap<usize, f64>) -> f64 {
    let rates = times.iter().map(|(size, seconds)| 2.0 * (*size as f64).powi(3) / seconds);
    rates.fold(0.0, f64::max)
}

fn square<B: Backend>(size: usize, dtype: FloatDType, device: &B::Device) -> f64 {
    let random = || {
        let full = Tensor::<B, 2>::random([size, size], Distribution::Default, device);
        full.cast(dtype)
    };
    let (left, right) = (random(), random());
    median::<B>(device, || drop(black_box(left.clone().matmul(right.clone()))))
}

fn copy<B: Backend>(floats: usize, device: &B::Device) -> f64 {
    let halves = vec![Tensor::<B, 1>::ones([floats / 2], device); 2];
    median::<B>(device, || drop(black_box(Tensor::cat(halves.clone(), 0))))
}

fn launch<B: Backend>(device: &B::Device) -> f64 {
    let one = Tensor::<B, 1>::ones([1], device);
    median::<B>(device, || drop(black_box(one.clone().add_scalar(1.0))))
}

/// The median time of `work` and of waiting for it, after a first time that does not count.
fn median<B: Backend>(device: &B::Device, work: impl Fn()) -> f64 {
    const LEAST: usize = 5;
    const MOST: usize = 200;
    const SECONDS: f64 = 0.1;
    let once = || {
        let start = Instant::now();
        work();
        B::sync(device).expect("the device answers");
        start.elapsed().as_secs_f64()
    };
    once();
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.len() < LEAST || (times.len() < MOST && begin.elapsed().as_secs_f64() < SECONDS) {
        times.push(once());
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calibration(squares: [f64; 3]) -> Calibration {
        Calibration {
            measured: 0,
            threads: 1,
            products: BTreeMap::from([("f32".to_owned(), 1e9)]),
            ways: BTreeMap::new(),
            copy: 1e9,
            copied: Bytes(1 << 20),
            launch: 1e-5,
            issue: None,
            squares: [64, 128, 256].into_iter().zip(squares).collect(),
        }
    }

    #[test]
    fn the_slower_of_arithmetic_and_traffic_counts() {
        let device = calibration([1.0; 3]);
        let close =
            |seconds: Option<f64>, expected: f64| (seconds.unwrap() - expected).abs() < 1e-12;
        assert!(close(device.seconds(2e9, "f32", Bytes(1_000), 0), 2.0));
        assert!(close(device.seconds(2e6, "f32", Bytes(3_000_000_000), 0), 3.0));
        assert!(close(device.seconds(0.0, "f32", Bytes(0), 100), 1e-3));
        assert_eq!(device.seconds(1.0, "bf16", Bytes(0), 0), None);
    }

    #[test]
    fn an_accelerator_wins_from_a_size_on_or_nowhere() {
        let cpu = calibration([1e-5, 1e-4, 1e-3]);
        assert_eq!(calibration([2e-5, 5e-5, 6e-5]).crossover(&cpu), Some(128));
        assert_eq!(calibration([5e-6, 5e-5, 6e-5]).crossover(&cpu), Some(64));
        assert_eq!(calibration([5e-6, 5e-4, 6e-3]).crossover(&cpu), None);
    }

    #[cfg(feature = "flex")]
    #[test]
    fn a_device_is_measured() {
        use burn::backend::Flex;
        let measured = Calibration::measure::<Flex>(&Default::default(), Effort::Quick);
        assert_eq!(measured.products.keys().collect::<Vec<_>>(), ["bf16", "f16", "f32", "f64"]);
        assert!(measured.products.values().all(|rate| *rate > 0.0 && rate.is_finite()));
        assert!(measured.copy > 0.0 && measured.launch > 0.0 && measured.squares.len() == 2);
        let text = serde_json::to_string(&measured).unwrap();
        assert_eq!(serde_json::from_str::<Calibration>(&text).unwrap(), measured);
    }
}
