//! Statistics of gradients on a device: partial sums of all gradients into one buffer, one read.
//!
//! Gradients are f32, f16 or bf16; they are scaled and measured in f32, as they are written.

use burn::tensor::DType;
use burn::tensor::ops::FloatTensor;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::prelude::*;

use super::{GradParts, GradPartsCall, GradStatsCall, PART};
use crate::cube::{
    ShareList, Shares, array, arrays, cube_max, cube_sum, empty, empty_like, into_contiguous,
    lane_sum, launch, load, most_tensors, share, store, vector_size, wide,
};
use crate::lists::grouped;
use crate::registry::Runs;

/// Adds up `factor * input`, in parts that end with 0 if all elements were finite, 1 if some were
/// infinite, 2 if some were no numbers; written to `output` where `scaled`; the two may be one. Parts are those
/// from the cube `before` on.
#[cube(launch_unchecked)]
fn part_kernel<F: Float, N: Size>(
    input: &Sequence<Array<Vector<F, N>>>,
    output: &mut Sequence<Array<Vector<F, N>>>,
    parts: &mut Array<f32>,
    shares: &ShareList,
    factor: f32,
    before: usize,
    #[comptime] scaled: bool,
    #[comptime] units: u32,
    #[define(F)] _dtype: StorageType,
) {
    let share = share(shares, units);
    let mut largest = 0.0f32;
    let mut unfit = 0.0f32;
    let mut at = share.start;
    while at < share.vectors {
        let mut values = load::<Vector<F, N>>(input, share.of, at);
        if scaled {
            values = Vector::cast_from(wide(values) * Vector::new(factor));
            store(output, share.of, at, values);
        }
        let values = wide(values);
        #[unroll]
        for lane in 0..N::value() {
            let value = values[lane];
            if value.is_nan() {
                unfit = 2.0f32;
            } else if value.is_inf() {
                unfit = max(unfit, 1.0f32);
            } else {
                largest = max(largest, value.abs());
            }
        }
        at += share.step;
    }
    let largest = cube_max(largest, units);
    let unfit = cube_max(unfit, units);
    let mut sum = 0.0f32;
    if largest > 0.0f32 {
        let mut at = share.start;
        while at < share.vectors {
            let mut values = load::<Vector<F, N>>(input, share.of, at);
            if scaled {
                // What this unit wrote itself.
                values = load::<Vector<F, N>>(output, share.of, at);
            }
            let small = wide(values) / Vector::new(largest);
            sum += lane_sum(small * small);
            at += share.step;
        }
    }
    let sum = cube_sum(sum, units);
    if UNIT_POS == 0 {
        let part = (before + CUBE_POS) * comptime!(PART);
        parts[part] = largest;
        parts[part + 1] = sum;
        parts[part + 2] = unfit;
    }
}

/// Elements of a gradient that are read one by one.
const SMALL: usize = 4096;

/// A gradient, with where its product goes.
struct Scaled<R: CubeRuntime> {
    input: CubeTensor<R>,
    output: CubeTensor<R>,
    destination: Destination,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Destination {
    /// The gradient stays as it is.
    None,
    /// To where the gradient lies.
    InPlace,
    /// To memory of its own.
    New,
}

impl<R: CubeRuntime> Scaled<R> {
    fn new(gradient: CubeTensor<R>, factor: f64) -> Self {
        let input = into_contiguous(gradient);
        let destination = match factor {
            1.0 => Destination::None,
            _ if input.can_mut() => Destination::InPlace,
            _ => Destination::New,
        };
        let output =
            if destination == Destination::New { empty_like(&input) } else { input.clone() };
        Self { input, output, destination }
    }

    fn length(&self) -> usize {
        self.input.meta.num_elements()
    }
}

/// Writes parts of gradients of one type that divide into vectors of one width and go the same way, from
/// the one with number `before` on.
fn write_parts<R: CubeRuntime>(
    of: &[&Scaled<R>],
    (width, shares): (usize, &Shares),
    parts: &CubeTensor<R>,
    before: usize,
    factor: f64,
) {
    let Scaled { input, destination, .. } = of[0];
    let written = match destination {
        Destination::None => SequenceArg::new(),
        // The arrays that the kernel has in these places already.
        Destination::InPlace => {
            let alias = |(place, one): (usize, &&Scaled<R>)| -> ArrayArg<R> {
                ArrayArg::Alias { input_pos: place, length: [one.length()] }
            };
            of.iter().enumerate().map(alias).collect()
        }
        Destination::New => arrays(of.iter().map(|one| &one.output)),
    };
    // SAFETY: every array has the vectors of its gradient, where its cubes stop; `parts` has
    // `PART` floats for each of the cubes from `before` on. Memory is overwritten only where
    // nothing else holds it.
    unsafe {
        launch!(part_kernel, shares.launch(&input.client), width;;
            arrays(of.iter().map(|one| &one.input)), written, array(parts),
            shares.arg(), factor as f32, before, *destination != Destination::None, shares.units,
            input.dtype.into());
    }
}

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> Runs<GradStatsCall>
    for CubeBackend<R, F, I, BT>
{
    fn run(
        gradients: Vec<FloatTensor<Self>>,
        &GradStatsCall { factor }: &GradStatsCall,
    ) -> (Vec<FloatTensor<Self>>, f64) {
        let [scaled, parts] = scaled_with_parts(gradients, factor);
        let read =
            |parts| burn_cubecl::ops::into_data_sync(parts).into_vec::<f32>().expect("floats");
        let sum = |parts: Vec<f32>| parts.chunks_exact(PART).map(squares).sum::<f64>();
        (scaled, parts.into_iter().map(read).map(sum).sum())
    }
}

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> Runs<GradPartsCall>
    for CubeBackend<R, F, I, BT>
{
    fn run(gradients: Vec<FloatTensor<Self>>, _: &GradPartsCall) -> GradParts<Self> {
        let [_, parts] = scaled_with_parts(gradients, 1.0);
        (parts, squares)
    }
}

/// Every gradient times `factor`, and the parts of each device, of which nothing is read.
fn scaled_with_parts<R: CubeRuntime>(
    gradients: Vec<CubeTensor<R>>,
    factor: f64,
) -> [Vec<CubeTensor<R>>; 2] {
    let scaled: Vec<_> = gradients.into_iter().map(|one| Scaled::new(one, factor)).collect();
    let devices = grouped(&scaled, |one| one.input.device.clone());
    let parts = devices.iter().map(|(_, of)| parts(of, factor)).collect();
    [scaled.into_iter().map(|one| one.output).collect(), parts]
}

/// The parts of the gradients of one device, at least one.
fn parts<R: CubeRuntime>(of: &[&Scaled<R>], factor: f64) -> CubeTensor<R> {
    let client = &of[0].input.client;
    // Each by its own width, so that its sum is the same whatever else there is. Small ones, of which few
    // lengths are whole vectors, have one launch.
    let width = |one: &Scaled<R>| match one.length() {
        ..=SMALL => 1,
        length => vector_size(client, length, one.input.elem_size()),
    };
    let groups = grouped(of.iter().copied(), |one| (one.input.dtype, one.destination, width(one)));
    let batches = groups.iter().flat_map(|((_, destination, width), of)| {
        let arrays = if *destination == Destination::New { 2 } else { 1 };
        of.chunks(most_tensors(client, arrays, 1)).map(move |of| {
            let vectors = of.iter().map(|one| one.length() / width);
            (of, (*width, Shares::of(client, vectors)))
        })
    });
    let batches: Vec<_> = batches.collect();
    let total: usize = batches.iter().map(|(_, (_, shares))| shares.total).sum();
    let parts = empty(&of[0].input, [total * PART], DType::F32);
    let mut before = 0;
    for (of, (width, shares)) in batches {
        write_parts(of, (width, &shares), &parts, before, factor);
        before += shares.total;
    }
    parts
}

fn squares(part: &[f32]) -> f64 {
    match part[2] {
        0.0 => f64::from(part[0]).powi(2) * f64::from(part[1]),
        1.0 => f64::INFINITY,
        _ => f64::NAN,
    }
}
