//! The prototypes of a task as contractions want them, and the contractions of one block of queries.

use fewshot_simd::buffers::Buffer;
use fewshot_simd::contract::{Contraction, RowOffsets, Run};
use fewshot_simd::instruction_set::InstructionSet;

use super::{Dims, lengths};
use crate::distances::Metric;
use crate::distances::reference::LEAST_SQUARE;

/// The prototypes of one task.
pub struct Prepared {
    /// Transposed, `[tiles of ways, d, TILE]`: what products contract with.
    pub columns: Buffer,
    /// `[tiles of d, ways, TILE]`: what the gradient by queries contracts with, where it is wanted.
    pub rows: Buffer,
    /// Factor of each product, up to a whole tile of ways.
    pub scale: Vec<f32>,
    /// Term of each score; negative infinity behind the last.
    pub shift: Vec<f32>,
    /// `beta`, for a sum of one by column.
    pub pull: Vec<f32>,
}

impl Prepared {
    pub fn new(
        body: &dyn InstructionSet,
        prototypes: &[f32],
        dims: Dims,
        (metric, factor): (Metric, f32),
        gradient: bool,
    ) -> Self {
        let (tile, d) = (body.tile(), dims.features);
        let padded = dims.ways.next_multiple_of(tile);
        let mut prepared = Self {
            columns: Buffer::zeros(padded * d),
            rows: Buffer::zeros(if gradient { d.next_multiple_of(tile) * dims.ways } else { 0 }),
            scale: vec![0.0; padded],
            shift: vec![f32::NEG_INFINITY; padded],
            pull: vec![0.0; dims.ways],
        };
        if gradient {
            pack(prototypes, d, tile, &mut prepared.rows);
        }
        for way in 0..dims.ways {
            let row = &prototypes[way * d..(way + 1) * d];
            let (square, inverse) = lengths(row);
            (prepared.scale[way], prepared.shift[way]) = match metric {
                Metric::SquaredEuclidean => (2.0 * factor, -factor * square),
                Metric::Cosine => (factor * inverse, 0.0),
            };
            prepared.pull[way] = pull(metric, factor, (square, inverse));
            let columns = &mut prepared.columns;
            let lane = way / tile * d * tile + way % tile;
            columns[lane..].iter_mut().step_by(tile).zip(row).for_each(|(to, x)| *to = *x);
        }
        prepared
    }
}

/// The factor of a vector in the gradient by itself, for a sum of one of the gradient by its scores,
/// for cosines times the score.
pub fn pull(metric: Metric, factor: f32, (square, inverse): (f32, f32)) -> f32 {
    match metric {
        Metric::SquaredEuclidean => -2.0 * factor,
        Metric::Cosine if square >= LEAST_SQUARE as f32 => -inverse * inverse,
        // So short that it was divided by a constant.
        Metric::Cosine => 0.0,
    }
}

/// Packs rows `[n, d]` as `[tiles of d, n, TILE]`, with zeros behind the last column.
fn pack(rows: &[f32], d: usize, tile: usize, packed: &mut [f32]) {
    let n = rows.len() / d.max(1);
    for (row, from) in rows.chunks_exact(d.max(1)).enumerate() {
        for (i, from) in from.chunks(tile).enumerate() {
            let to = &mut packed[(i * n + row) * tile..][..tile];
            to[..from.len()].copy_from_slice(from);
            to[from.len()..].fill(0.0);
        }
    }
}

/// Some queries of one task.
pub struct Block<'a> {
    pub body: &'a dyn InstructionSet,
    pub prepared: &'a Prepared,
    /// `[n, d]`.
    pub queries: &'a [f32],
    pub count: usize,
    pub features: usize,
    pub ways: usize,
}

impl Block<'_> {
    /// Where row `row` of column `column` lies in what is in tiles of columns.
    pub fn at(&self, row: usize, column: usize) -> usize {
        let tile = self.body.tile();
        (column / tile * self.count + row) * tile + column % tile
    }

    /// The products of queries with prototypes, `[tiles of ways, n, TILE]`.
    pub fn products(&self, out: &mut [f32]) {
        let (tile, d) = (self.body.tile(), self.features);
        let rows: Vec<usize> = (0..self.count).map(|row| row * d).collect();
        let panels = self.prepared.columns.chunks_exact(d * tile);
        for (b, out) in panels.zip(out.chunks_exact_mut(rows.len() * tile)) {
            let runs = &[Run { a: 0, b: 0, len: d }];
            let (a, rows, accumulate) = (self.queries, &rows[..], false);
            let (a_step, b_step, to) = (1, tile, RowOffsets::Strided(tile));
            let job = Contraction { a, rows, b, runs, a_step, b_step, to, accumulate };
            self.body.contract(&job, out);
        }
    }

    /// The gradient by queries `[n, d]` that comes from the gradient `g` by the products.
    pub fn by_queries(&self, g: &[f32], sums: &mut [f32], out: &mut [f32]) {
        let (tile, d, ways) = (self.body.tile(), self.features, self.ways);
        let rows: Vec<usize> = (0..self.count).map(|row| row * tile).collect();
        let run = |first: usize| {
            let len = tile.min(ways - first);
            Run { a: first * self.count, b: first * tile, len }
        };
        let runs: Vec<Run> = (0..ways).step_by(tile).map(run).collect();
        let whole = d / tile * tile;
        for (i, b) in self.prepared.rows.chunks_exact(ways * tile).enumerate() {
            let first = i * tile;
            let (rows, runs, accumulate) = (&rows[..], &runs[..], false);
            let to = RowOffsets::Strided(if first < whole { d } else { tile });
            let (a_step, b_step) = (1, tile);
            let job = Contraction { a: g, rows, b, runs, a_step, b_step, to, accumulate };
            if first < whole {
                self.body.contract(&job, &mut out[first..]);
            } else {
                self.body.contract(&job, sums);
                let rows = out.chunks_exact_mut(d).zip(sums.chunks_exact(tile));
                rows.for_each(|(out, sum)| out[first..].copy_from_slice(&sum[..d - first]));
            }
        }
    }

    /// Adds to the gradient by queries each query times its `alpha`.
    pub fn add_queries(&self, alpha: &[f32], out: &mut [f32]) {
        let rows =
            out.chunks_exact_mut(self.features).zip(self.queries.chunks_exact(self.features));
        for ((out, query), alpha) in rows.zip(alpha) {
            out.iter_mut().zip(query).for_each(|(out, query)| *out += alpha * query);
        }
    }

    /// Adds the gradient by prototypes, without `beta`: `[tiles of d, ways, TILE]`.
    pub fn by_prototypes(&self, g: &[f32], packed: &mut [f32], out: &mut [f32]) {
        let (tile, d, count) = (self.body.tile(), self.features, self.count);
        let packed = &mut packed[..d.next_multiple_of(tile) * count];
        pack(self.queries, d, tile, packed);
        let rows: Vec<usize> = (0..self.ways).map(|way| self.at(0, way)).collect();
        let tiles = packed.chunks_exact(count * tile);
        for (b, out) in tiles.zip(out.chunks_exact_mut(self.ways * tile)) {
            let runs = &[Run { a: 0, b: 0, len: count }];
            let (rows, accumulate) = (&rows[..], true);
            let (a_step, b_step, to) = (tile, tile, RowOffsets::Strided(tile));
            let job = Contraction { a: g, rows, b, runs, a_step, b_step, to, accumulate };
            self.body.contract(&job, out);
        }
    }
}
