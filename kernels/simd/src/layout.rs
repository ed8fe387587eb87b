//! Layout of feature maps in memory.

use std::ops::Range;

use super::instruction_set::InstructionSet;

/// Pixels of a tile computed before the next pass over them: 16 KiB of eight-lane tiles.
pub const STRIP_PIXELS: usize = 256;

/// Rows of a map, a strip at a time; only the last strip may have an odd number.
pub fn strips(h: usize, w: usize) -> impl Iterator<Item = Range<usize>> {
    let rows = (STRIP_PIXELS / w).max(2) & !1;
    (0..h).step_by(rows).map(move |start| start..(start + rows).min(h))
}

/// Layout of one image's feature map: `[tiles, ring + h + ring, ring + w + ring, lane]`.
///
/// The ring is zeros, so a convolution needs no special case at the border: one of 3x3 reads a map
/// with a ring of one pixel, one of 1x1 a map without. The lanes of the last tile beyond `channels`
/// are never read as scalars, so what they hold does not matter.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// Channels without padding.
    pub channels: usize,
    /// Adjacent channels in a tile.
    pub lane: usize,
    /// Height without the ring.
    pub h: usize,
    /// Width without the ring.
    pub w: usize,
    /// Pixels of zeros on every side.
    pub ring: usize,
}

/// One weight position seen from an output pixel.
#[derive(Clone, Copy, Debug)]
pub struct Tap {
    /// Input channel.
    pub channel: usize,
    /// Row and column in the window.
    pub at: [usize; 2],
    /// Distance from the window's first corner in the map.
    pub offset: usize,
}

impl Map {
    /// Number of channel tiles.
    #[inline]
    pub fn tiles(&self) -> usize {
        self.channels.div_ceil(self.lane)
    }

    /// Floats in a row of a tile.
    #[inline]
    pub fn row(&self) -> usize {
        (self.w + 2 * self.ring) * self.lane
    }

    /// Floats in a tile.
    #[inline]
    pub fn plane(&self) -> usize {
        (self.h + 2 * self.ring) * self.row()
    }

    /// Floats in an image.
    #[inline]
    pub fn image(&self) -> usize {
        self.tiles() * self.plane()
    }

    /// Floats in an image `[c, h, w]`, without ring and padding.
    #[inline]
    pub fn dense(&self) -> usize {
        self.channels * self.h * self.w
    }

    /// Start of pixel `(row, 0)` inside the ring of `tile`.
    #[inline]
    pub fn start(&self, tile: usize, row: usize) -> usize {
        tile * self.plane() + (row + self.ring) * self.row() + self.ring * self.lane
    }

    /// Channels of `tile` that are not padding.
    fn real(&self, tile: usize) -> usize {
        self.lane.min(self.channels - tile * self.lane)
    }

    /// Side of the windows of a convolution that keeps the size of this map.
    #[inline]
    pub fn window(&self) -> usize {
        2 * self.ring + 1
    }

    /// Start of the window of every output pixel.
    pub fn windows(&self, h: usize, w: usize, stride: usize) -> Vec<usize> {
        let mut windows = Vec::with_capacity(h * w);
        for row in 0..h {
            let start = row * stride * self.row();
            windows.extend((0..w).map(|column| start + column * stride * self.lane));
        }
        windows
    }

    /// The taps of a window in the order of the packed weights.
    pub fn taps(&self) -> Vec<Tap> {
        let side = self.window();
        let mut taps = Vec::with_capacity(side * side * self.channels);
        for tile in 0..self.tiles() {
            for (row, column) in (0..side * side).map(|k| (k / side, k % side)) {
                for c in 0..self.real(tile) {
                    let offset = tile * self.plane() + row * self.row() + column * self.lane + c;
                    taps.push(Tap { channel: tile * self.lane + c, at: [row, column], offset });
                }
            }
        }
        taps
    }

    /// Position in the packed weight of a channel's first tap, and the distance to its next.
    pub fn tap(&self, channel: usize) -> (usize, usize) {
        let tile = channel / self.lane;
        (tile * self.window().pow(2) * self.lane + channel % self.lane, self.real(tile))
    }

    /// Zeroes the ring of `image`.
    pub fn clear_ring(&self, image: &mut [f32]) {
        let (row, edge) = (self.row(), self.ring * self.lane);
        for plane in image.chunks_exact_mut(self.plane()) {
            // The right edge of a row and the left one of the next lie side by side.
            let (first, last) = (self.ring * row + edge, (self.h + self.ring) * row - edge);
            plane[..first].fill(0.0);
            plane[last..].fill(0.0);
            for line in plane[first..last].chunks_mut(row) {
                line[row - 2 * edge..].fill(0.0);
            }
        }
    }

    /// Where the pixels of a tile lie, from its first one on; nothing where no tile is whole.
    fn places(&self, body: &dyn InstructionSet) -> Vec<usize> {
        let whole = self.channels >= body.tile();
        if whole { self.windows(self.h, self.w, 1) } else { Vec::new() }
    }

    /// Copies `nchw [c, h, w]` into `image`, its ring and padding excepted, whole tiles at once.
    pub fn pack(&self, body: &dyn InstructionSet, nchw: &[f32], image: &mut [f32]) {
        let (plane, places) = (self.h * self.w, self.places(body));
        for (tile, planes) in nchw.chunks(self.lane * plane).enumerate() {
            let to = &mut image[self.start(tile, 0)..];
            if planes.len() == body.tile() * plane {
                body.interleave(planes, &places, to);
                continue;
            }
            for (c, plane) in planes.chunks_exact(plane).enumerate() {
                for (row, line) in plane.chunks_exact(self.w).enumerate() {
                    let to = to[row * self.row() + c..].iter_mut().step_by(self.lane);
                    to.zip(line).for_each(|(to, from)| *to = *from);
                }
            }
        }
    }

    /// [`pack`](Self::pack) of adjacent images `[n, c, h, w]`.
    pub fn pack_all(&self, body: &dyn InstructionSet, nchw: &[f32], images: &mut [f32]) {
        let pairs = nchw.chunks_exact(self.dense()).zip(images.chunks_exact_mut(self.image()));
        pairs.for_each(|(nchw, image)| self.pack(body, nchw, image));
    }

    /// Copies `image` into `nchw [c, h, w]`, whole tiles at once.
    pub fn unpack(&self, body: &dyn InstructionSet, image: &[f32], nchw: &mut [f32]) {
        let (plane, places) = (self.h * self.w, self.places(body));
        for (tile, planes) in nchw.chunks_mut(self.lane * plane).enumerate() {
            let from = &image[self.start(tile, 0)..];
            if planes.len() == body.tile() * plane {
                body.separate(from, &places, planes);
                continue;
            }
            for (c, plane) in planes.chunks_exact_mut(plane).enumerate() {
                for (row, line) in plane.chunks_exact_mut(self.w).enumerate() {
                    let from = from[row * self.row() + c..].iter().step_by(self.lane);
                    line.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                }
            }
        }
    }
}
