use std::hint::black_box;

use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};
use fewshot::hardware::{self, Bytes, Calibration};
use rayon::prelude::*;
use serde_json::{Value, json};

use super::case::{Case, Load, Scale};
use super::timing::{Effort, Spread};
use crate::cli::hardware::calibration_text;
use crate::cli::report::rounded;
use crate::cli::warnings::KernelCount;

/// What the machine and the backend can do at best.
#[derive(Default)]
pub(super) struct Limits {
    rates: Vec<Rate>,
    /// What kernels alone do, on an accelerator.
    kernels: Option<Calibration>,
}

/// The least time that a case takes.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    pub(super) seconds: f64,
    /// What takes it.
    pub(super) by: &'static str,
    /// Of kernels, on an accelerator.
    pub(super) launches: Option<usize>,
}

/// The launches of some work, which waits for the device, after a first time that does not count.
fn launches(work: &mut dyn FnMut()) -> usize {
    let count = KernelCount::launched();
    work();
    let before = count.settled();
    work();
    count.settled() - before
}

/// How fast something simple goes.
struct Rate {
    what: String,
    /// Operations or bytes of one run.
    load: Load,
    spread: Spread,
}

impl Rate {
    /// Thousand millions a second.
    fn giga(&self) -> f64 {
        self.load.amount() / self.spread.median() / 1e9
    }
}

impl Limits {
    pub(super) fn measure<B: Backend>(scale: Scale, device: &B::Device) -> Self {
        let effort = scale.choose(Effort { rounds: 5, seconds: 1.5 }, scale.effort());
        let floats = floats(scale);
        let copies = [copy::<B>(floats, effort, device), host_copy(floats, effort)];
        let products = products::<B>(scale, effort, device);
        Self { rates: products.into_iter().chain(copies).collect(), kernels: None }
    }

    /// Of an accelerator, where all operations are kernels.
    pub(super) fn of_kernels<B: Backend>(scale: Scale, device: &B::Device) -> Self {
        let effort = scale.choose(hardware::Effort::Full, hardware::Effort::Quick);
        Self { kernels: Some(Calibration::measure::<B>(device, effort)), ..Self::default() }
    }

    /// What bounds a case. On an accelerator its launches, its arithmetic or its traffic of memory,
    /// whichever takes longest; else what bounds it at this moment, because a machine that others use too
    /// has good and bad minutes.
    pub(super) fn of<B: Backend>(
        &self,
        case: &mut Case,
        scale: Scale,
        device: &B::Device,
    ) -> Bound {
        let load = case.load;
        let Some(kernels) = &self.kernels else {
            let seconds = load.amount() / limit_now::<B>(load, scale, device);
            return Bound { seconds, by: load.names()[0], launches: None };
        };
        let count = launches(&mut case.work);
        let (flops, bytes) = match load {
            Load::Flops(flops) => (flops, 0),
            Load::Bytes(bytes) => (0.0, bytes as u64),
        };
        let busy = kernels.seconds(flops, "f32", Bytes(bytes), 0);
        let busy = busy.expect("products of f32 are always measured");
        let launching = count as f64 * kernels.launch;
        let by = if launching > busy { "launches" } else { load.names()[0] };
        Bound { seconds: busy.max(launching), by, launches: Some(count) }
    }

    pub(super) fn table(&self) -> String {
        if let Some(kernels) = &self.kernels {
            return calibration_text(kernels) + "\n";
        }
        let mut text = format!("{:<16}{:<31}{:>21}\n", "limit", "size", "ms (quartiles)");
        for rate in &self.rates {
            let ([name, unit, _], giga) = (rate.load.names(), rate.giga());
            let (what, ms) = (&rate.what, rate.spread.text());
            text += &format!("{name:<16}{what:<31}{ms:>21}{giga:>9.1} {unit}\n");
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let all = |limit: &str| -> Vec<Value> {
            let of_limit = self.rates.iter().filter(|rate| rate.load.names()[0] == limit);
            let one = |rate: &Rate| {
                let (ms, giga) = (rate.spread.json(), rounded(rate.giga(), 4));
                json!({ "size": rate.what, "ms": ms, rate.load.names()[2]: giga })
            };
            of_limit.map(one).collect()
        };
        json!({ "matmul": all("matmul"), "copy": all("copy"), "kernels": self.kernels })
    }
}

/// What bounds `load`, in operations or bytes a second, at this moment.
fn limit_now<B: Backend>(load: Load, scale: Scale, device: &B::Device) -> f64 {
    let effort = Effort { rounds: 5, seconds: 0.0 };
    let giga = match load {
        Load::Flops(_) => {
            products::<B>(scale, effort, device).iter().map(Rate::giga).fold(0.0, f64::max)
        }
        Load::Bytes(_) => host_copy(floats(scale), effort).giga(),
    };
    giga * 1e9
}

/// Length of what is copied.
fn floats(scale: Scale) -> usize {
    scale.choose(1 << 25, 1 << 18)
}

fn products<B: Backend>(scale: Scale, effort: Effort, device: &B::Device) -> [Rate; 2] {
    // The second one is a 3x3 convolution of 64 channels over 8192 pixels, unfolded.
    let sizes = scale.choose([[1024; 3], [8192, 576, 64]], [[64; 3], [256, 72, 16]]);
    sizes.map(|sizes| product::<B>(sizes, effort, device))
}

/// The backend's own product of `[m, k]` and `[k, n]`.
fn product<B: Backend>([m, k, n]: [usize; 3], effort: Effort, device: &B::Device) -> Rate {
    let random = |shape| Tensor::<B, 2>::random(shape, Distribution::Default, device);
    let (a, b) = (random([m, k]), random([k, n]));
    let mut work = || {
        black_box(a.clone().matmul(b.clone()));
        B::sync(device).expect("the device answers");
    };
    let spread = effort.spread(&mut work);
    Rate { what: format!("{m}x{k}x{n}"), load: Load::Flops(2.0 * (m * k * n) as f64), spread }
}

/// The backend's own copy: two halves into one fresh tensor.
fn copy<B: Backend>(floats: usize, effort: Effort, device: &B::Device) -> Rate {
    let half = || Tensor::<B, 1>::ones([floats / 2], device);
    let halves = vec![half(), half()];
    let mut work = || {
        black_box(Tensor::cat(halves.clone(), 0));
        B::sync(device).expect("the device answers");
    };
    let spread = effort.spread(&mut work);
    Rate {
        what: format!("{} MiB, fresh tensor", floats >> 18),
        load: Load::floats(2 * floats),
        spread,
    }
}

/// From one block of host memory into another on all threads, both written before.
fn host_copy(floats: usize, effort: Effort) -> Rate {
    const PIECE: usize = 1 << 16;
    let (from, mut to) = (vec![1f32; floats], vec![2f32; floats]);
    let mut work = || {
        let pieces = to.par_chunks_mut(PIECE).zip(from.par_chunks(PIECE));
        pieces.for_each(|(to, from)| to.copy_from_slice(from));
        black_box(&mut to);
    };
    let spread = effort.spread(&mut work);
    Rate {
        what: format!("{} MiB, host memory", floats >> 18),
        load: Load::floats(2 * floats),
        spread,
    }
}
