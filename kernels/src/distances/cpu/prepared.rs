//! The prototypes of a task as the contractions want them.

use super::{Dims, lengths};
use crate::cpu::buffers::Buffer;
use crate::cpu::instruction_set::InstructionSet;
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
pub fn pack(rows: &[f32], d: usize, tile: usize, packed: &mut [f32]) {
    let n = rows.len() / d.max(1);
    for (row, from) in rows.chunks_exact(d.max(1)).enumerate() {
        for (i, from) in from.chunks(tile).enumerate() {
            let to = &mut packed[(i * n + row) * tile..][..tile];
            to[..from.len()].copy_from_slice(from);
            to[from.len()..].fill(0.0);
        }
    }
}
