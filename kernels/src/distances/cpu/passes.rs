//! The pass over all queries of all tasks.

use std::ops::Range;

use fewshot_simd::buffers::Buffer;
use fewshot_simd::instruction_set::InstructionSet;
use rayon::prelude::*;

use super::block::{Block, Prepared, pull};
use super::{BLOCK, Dims, lengths};
use crate::distances::Metric;

/// Settings of a pass, beside the use of the products.
#[derive(Clone, Copy)]
pub struct PassOptions {
    /// The scores, and their factor.
    pub scoring: (Metric, f32),
    /// Floats returned for each query.
    pub width: usize,
    /// True if the products are replaced by a gradient.
    pub gradient: bool,
    /// True if the use of the products sees the lengths of queries; they are of length one to it otherwise.
    pub with_lengths: bool,
    /// True if the gradient by queries has a term of the queries themselves.
    pub with_queries: bool,
}

/// The memory that is written for a block of queries.
pub struct QueryBuffers<'a> {
    /// In tiles of prototypes, see [`Block::at`].
    pub products: &'a mut [f32],
    /// The square of the length of each query and its inverse length.
    pub lengths: &'a [(f32, f32)],
    /// `[n, width]`.
    pub out: &'a mut [f32],
    /// Sums of the gradient by the score, for cosines times the score, of each query.
    pub row_sums: &'a mut [f32],
    /// These sums of each prototype, to be added to.
    pub column_sums: &'a mut [f32],
}

/// The result of a pass.
pub struct PassOutput {
    /// `[tasks, queries, width]`.
    pub out: Vec<f32>,
    /// Gradients by queries and by prototypes, where wanted.
    pub gradients: Option<[Vec<f32>; 2]>,
}

/// The memory of one slot.
struct Slot<'a> {
    task: usize,
    queries: Range<usize>,
    out: &'a mut [f32],
    by_queries: &'a mut [f32],
    /// `[tiles of d, ways, TILE]`.
    by_prototypes: &'a mut [f32],
    column_sums: &'a mut [f32],
}

/// Takes `queries` `[tasks, queries, d]` to `prototypes` `[tasks, ways, d]`; `finish` turns the products
/// of some queries into what is wanted, given their range among those of all tasks.
pub fn pass(
    body: &dyn InstructionSet,
    [queries, prototypes]: [&[f32]; 2],
    dims: Dims,
    options: PassOptions,
    finish: impl Fn(Range<usize>, &Block<'_>, QueryBuffers<'_>) + Sync,
) -> PassOutput {
    let (tile, d, gradient) = (body.tile(), dims.features, options.gradient);
    let prepare = |task: usize| {
        let rows = &prototypes[task * dims.ways * d..(task + 1) * dims.ways * d];
        Prepared::new(body, rows, dims, options.scoring, gradient)
    };
    let prepared: Vec<Prepared> = if dims.in_parallel() && dims.tasks > 1 {
        (0..dims.tasks).into_par_iter().map(prepare).collect()
    } else {
        (0..dims.tasks).map(prepare).collect()
    };

    let all = dims.tasks * dims.queries;
    let mut out = vec![0.0; all * options.width];
    let mut by_queries = vec![0.0; if gradient { all * d } else { 0 }];
    let ranges = dims.slots();
    let padded = dims.ways.next_multiple_of(tile);
    let part = if gradient { d.next_multiple_of(tile) * dims.ways } else { 0 };
    let mut parts = Buffer::zeros(dims.tasks * ranges.len() * part);
    let mut sums = Buffer::zeros(dims.tasks * ranges.len() * padded);

    let memory = [&mut out[..], &mut by_queries[..], &mut parts[..], &mut sums[..]];
    let slots = slots(dims, options, &ranges, [part, padded], memory);
    let run = |slot: Slot<'_>| {
        let rows = &queries[slot.task * dims.queries * d..];
        run_slot(body, rows, &prepared[slot.task], (dims, options), &finish, slot);
    };
    if dims.in_parallel() {
        slots.into_par_iter().for_each(run);
    } else {
        slots.into_iter().for_each(run);
    }
    let gradients = gradient.then(|| {
        let mut by_prototypes = vec![0.0; prototypes.len()];
        for (task, prepared) in prepared.iter().enumerate() {
            let slots = task * ranges.len()..(task + 1) * ranges.len();
            let parts = &parts[slots.start * part..slots.end * part];
            let sums = &sums[slots.start * padded..slots.end * padded];
            let rows = task * dims.ways * d..(task + 1) * dims.ways * d;
            let out = &mut by_prototypes[rows.clone()];
            join(dims, tile, (parts, sums), &prototypes[rows], prepared, out);
        }
        [by_queries, by_prototypes]
    });
    PassOutput { out, gradients }
}

/// The slots of all tasks with their parts of the memory; a slot has `part` floats for its gradient by prototypes
/// and `padded` column sums.
fn slots<'a>(
    dims: Dims,
    options: PassOptions,
    ranges: &[Range<usize>],
    [part, padded]: [usize; 2],
    [mut out, mut by_queries, mut parts, mut sums]: [&'a mut [f32]; 4],
) -> Vec<Slot<'a>> {
    let width = if options.gradient { dims.features } else { 0 };
    let of_task = |task| ranges.iter().cloned().map(move |queries| (task, queries));
    let slot = |(task, queries): (usize, Range<usize>)| Slot {
        out: cut(&mut out, queries.len() * options.width),
        by_queries: cut(&mut by_queries, queries.len() * width),
        by_prototypes: cut(&mut parts, part),
        column_sums: cut(&mut sums, padded),
        task,
        queries,
    };
    (0..dims.tasks).flat_map(of_task).map(slot).collect()
}

/// Takes the first `len` floats away.
fn cut<'a>(rest: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    rest.split_off_mut(..len).expect("as many floats as all slots have")
}

/// `queries` are all of the task.
fn run_slot(
    body: &dyn InstructionSet,
    queries: &[f32],
    prepared: &Prepared,
    (dims, options): (Dims, PassOptions),
    finish: &impl Fn(Range<usize>, &Block<'_>, QueryBuffers<'_>),
    slot: Slot<'_>,
) {
    let (tile, d) = (body.tile(), dims.features);
    let most = slot.queries.len().min(BLOCK);
    let mut products = Buffer::stale(most * prepared.scale.len());
    let needed = if options.gradient { most * d.next_multiple_of(tile) } else { 0 };
    let mut packed = Buffer::stale(needed);
    let mut sums = Buffer::stale(most * tile);
    let (mut lengths_of, mut row_sums) = (Vec::with_capacity(most), vec![0.0; most]);
    for first in slot.queries.clone().step_by(BLOCK) {
        let rows = first..(first + BLOCK).min(slot.queries.end);
        let within = first - slot.queries.start..rows.end - slot.queries.start;
        let of = &queries[rows.start * d..rows.end * d];
        let block =
            Block { body, prepared, queries: of, count: rows.len(), features: d, ways: dims.ways };
        let products = &mut products[..rows.len() * prepared.scale.len()];
        block.products(products);
        lengths_of.clear();
        lengths_of.extend((0..rows.len()).map(|row| match options.with_lengths {
            true => lengths(&of[row * d..(row + 1) * d]),
            false => (1.0, 1.0),
        }));
        let width = options.width;
        let task = slot.task * dims.queries;
        let buffers = QueryBuffers {
            products,
            lengths: &lengths_of,
            out: &mut slot.out[within.start * width..within.end * width],
            row_sums: &mut row_sums[..rows.len()],
            column_sums: slot.column_sums,
        };
        finish(task + rows.start..task + rows.end, &block, buffers);
        if options.gradient {
            let out = &mut slot.by_queries[within.start * d..within.end * d];
            block.by_queries(products, &mut sums[..rows.len() * tile], out);
            if options.with_queries {
                let (metric, factor) = options.scoring;
                let of_rows = row_sums.iter_mut().zip(&lengths_of);
                of_rows.for_each(|(sum, &lengths)| *sum *= pull(metric, factor, lengths));
                block.add_queries(&row_sums[..rows.len()], out);
            }
            block.by_prototypes(products, &mut packed, slot.by_prototypes);
        }
    }
}

/// Adds what the slots of a task have found, in their order.
fn join(
    dims: Dims,
    tile: usize,
    (parts, sums): (&[f32], &[f32]),
    prototypes: &[f32],
    prepared: &Prepared,
    out: &mut [f32],
) {
    let (d, padded) = (dims.features, prepared.scale.len());
    let part = d.next_multiple_of(tile) * dims.ways;
    let row = |(way, out): (usize, &mut [f32])| {
        for part in parts.chunks_exact(part.max(1)) {
            for (i, out) in out.chunks_mut(tile).enumerate() {
                let from = &part[(i * dims.ways + way) * tile..];
                out.iter_mut().zip(from).for_each(|(to, from)| *to += from);
            }
        }
        let sum: f32 = sums.chunks_exact(padded).map(|sums| sums[way]).sum();
        let beta = sum * prepared.pull[way];
        let row = &prototypes[way * d..(way + 1) * d];
        out.iter_mut().zip(row).for_each(|(to, x)| *to += beta * x);
    };
    if dims.in_parallel() {
        out.par_chunks_mut(d.max(1)).enumerate().for_each(row);
    } else {
        out.chunks_mut(d.max(1)).enumerate().for_each(row);
    }
}
