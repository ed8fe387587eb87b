use std::hint::black_box;

use burn::tensor::{Distribution, Tensor};
use fewshot::hardware::Calibration;
use fewshot::kernels::{Route, route};
use rayon::prelude::*;

use super::cases::{Case, Load, Scale};
use super::timing::Repeats;
use crate::prelude::*;
use crate::warnings::KernelCount;

/// The least time that a case takes.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    pub(super) seconds: f64,
    pub(super) by: &'static str,
    /// Kernel launches, on an accelerator.
    pub(super) launches: Option<usize>,
}

/// The limit of a load, and the units of its rate in a table and in JSON.
pub(super) fn load_names(load: Load) -> [&'static str; 3] {
    match load {
        Load::Products { .. } => ["matmul", "GFLOP/s", "gflop_per_s"],
        Load::Bytes(_) => ["copy", "GB/s", "gb_per_s"],
    }
}

/// Kernel launches of `work`, the second time that it runs.
fn launches(work: &mut dyn FnMut()) -> usize {
    let count = KernelCount::launched();
    work();
    let before = count.settled();
    work();
    count.settled() - before
}

/// The bound of a case: on an accelerator launches, arithmetic or memory traffic at its `limits`, whichever takes
/// longest; on a processor, whose speed others' work changes, the rate that it reaches at this moment.
pub(super) fn bound<B: Backend>(
    limits: &Calibration,
    case: &mut Case,
    scale: Scale,
    device: &B::Device,
) -> Bound {
    let load = case.load;
    if !matches!(route::<B>(), Route::Device(_)) {
        let seconds = load.amount() / limit_now::<B>(load, scale, device);
        return Bound { seconds, by: load_names(load)[0], launches: None };
    }
    let count = launches(&mut case.work);
    let (flops, bytes) = match load {
        Load::Products { flops, bytes } => (flops, bytes),
        Load::Bytes(bytes) => (0.0, bytes),
    };
    let mut times = [
        (flops / limits.products["f32"], "matmul"),
        (bytes / limits.copy, "copy"),
        (count as f64 * limits.launch, "launches"),
    ];
    times.sort_by(|one, other| one.0.total_cmp(&other.0));
    let [.., (seconds, by)] = times;
    Bound { seconds, by, launches: Some(count) }
}

/// Rate that bounds `load` at this moment, in operations or bytes a second.
fn limit_now<B: Backend>(load: Load, scale: Scale, device: &B::Device) -> f64 {
    let repeats = Repeats { rounds: 5, seconds: 0.0 };
    match load {
        Load::Products { .. } => {
            // The second one is a 3x3 convolution of 64 channels over 8192 pixels, unfolded.
            let full = [[1024; 3], [8192, 576, 64]];
            let sizes = scale.choose(full, [[64; 3], [256, 72, 16]]);
            let rates = sizes.map(|sizes| product::<B>(sizes, repeats, device));
            rates[0].max(rates[1])
        }
        Load::Bytes(_) => host_copy(scale.choose(1 << 25, 1 << 18), repeats),
    }
}

/// Operations a second of the backend's own product of `[m, k]` and `[k, n]`.
fn product<B: Backend>([m, k, n]: [usize; 3], repeats: Repeats, device: &B::Device) -> f64 {
    let random = |shape| Tensor::<B, 2>::random(shape, Distribution::Default, device);
    let (a, b) = (random([m, k]), random([k, n]));
    let spread = repeats.spread(&mut || {
        black_box(a.clone().matmul(b.clone()));
        B::sync(device).expect("the device answers");
    });
    2.0 * (m * k * n) as f64 / spread.median()
}

/// Bytes a second, read and written, from one block of host memory into another on all threads, both
/// written before.
fn host_copy(floats: usize, repeats: Repeats) -> f64 {
    const PIECE: usize = 1 << 16;
    let (from, mut to) = (vec![1f32; floats], vec![2f32; floats]);
    let spread = repeats.spread(&mut || {
        let pieces = to.par_chunks_mut(PIECE).zip(from.par_chunks(PIECE));
        pieces.for_each(|(to, from)| to.copy_from_slice(from));
        black_box(&mut to);
    });
    (4 * 2 * floats) as f64 / spread.median()
}
