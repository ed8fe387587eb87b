//! The weight of a convolution and its packed forms.

use super::buffers::Buffer;
use super::layout::Tap;

/// Shape of a weight `[o, i, side, side]`.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    /// Output channels.
    pub o: usize,
    /// Input channels.
    pub i: usize,
    /// Side of the window.
    pub side: usize,
}

impl Filter {
    /// Number of weights.
    pub fn len(&self) -> usize {
        self.o * self.i * self.side * self.side
    }

    /// The weight for the convolution: `[o tiles, taps, tile]`.
    pub fn pack(&self, weight: &[f32], taps: &[Tap], tile: usize) -> Buffer {
        let mut packed = Buffer::zeros(self.o.div_ceil(tile) * taps.len() * tile);
        for o in 0..self.o {
            let start = o / tile * taps.len() * tile + o % tile;
            for (k, tap) in taps.iter().enumerate() {
                packed[start + k * tile] = weight[self.position(o, tap.channel, tap.at)];
            }
        }
        packed
    }

    /// The weight for the gradient of the input, `[i tiles, taps, tile]`: the window turned by 180
    /// degrees, over the output's channels.
    pub fn pack_turned(&self, weight: &[f32], taps: &[Tap], tile: usize) -> Buffer {
        let mut packed = Buffer::zeros(self.i.div_ceil(tile) * taps.len() * tile);
        for i in 0..self.i {
            let start = i / tile * taps.len() * tile + i % tile;
            for (k, tap) in taps.iter().enumerate() {
                let turned = tap.at.map(|at| self.side - 1 - at);
                packed[start + k * tile] = weight[self.position(tap.channel, i, turned)];
            }
        }
        packed
    }

    /// Copies a packed gradient `[o tiles, taps, tile]` into `weight`.
    pub fn unpack(&self, packed: &[f32], taps: &[Tap], tile: usize, weight: &mut [f32]) {
        for o in 0..self.o {
            let start = o / tile * taps.len() * tile + o % tile;
            for (k, tap) in taps.iter().enumerate() {
                weight[self.position(o, tap.channel, tap.at)] = packed[start + k * tile];
            }
        }
    }

    fn position(&self, o: usize, i: usize, [row, column]: [usize; 2]) -> usize {
        ((o * self.i + i) * self.side + row) * self.side + column
    }
}
