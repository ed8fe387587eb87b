//! Shapes of a stack of blocks.

use serde::{Deserialize, Serialize};

use fewshot_simd::filter::Filter;

/// One block: a 3x3 convolution with padding 1, batch-norm, ReLU and, if `pool`, a 2x2 max-pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockShape {
    /// Number of output channels.
    pub channels_out: usize,
    /// Stride of the convolution: 1 or 2.
    pub stride: usize,
    /// True if a 2x2 max-pool with stride 2 follows; odd sizes drop the last row and column.
    pub pool: bool,
}

/// A stack of blocks applied to `n` images of `c` channels and `h` by `w` pixels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackShape {
    /// Images.
    pub n: usize,
    /// Input channels.
    pub c: usize,
    /// Input height.
    pub h: usize,
    /// Input width.
    pub w: usize,
    /// The blocks, first to last.
    pub blocks: Vec<BlockShape>,
}

/// Sizes of one block inside its stack.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    pub c_in: usize,
    pub h_in: usize,
    pub w_in: usize,
    pub c_out: usize,
    pub stride: usize,
    pub pool: bool,
}

impl Geometry {
    /// Height and width of the convolution's output.
    pub fn conv(&self) -> (usize, usize) {
        let size = |side: usize| (side - 1) / self.stride + 1;
        (size(self.h_in), size(self.w_in))
    }

    /// Height and width of the block's output.
    pub fn out(&self) -> (usize, usize) {
        let (h, w) = self.conv();
        if self.pool { (h / 2, w / 2) } else { (h, w) }
    }

    /// Length of the block's weight.
    pub fn weight(&self) -> usize {
        self.filter().weights()
    }

    /// The block's weight.
    pub fn filter(&self) -> Filter {
        Filter { o: self.c_out, i: self.c_in, side: 3 }
    }

    /// Length of the block's weight, bias, gamma and beta.
    pub fn parameters(&self) -> usize {
        self.weight() + 3 * self.c_out
    }
}

impl StackShape {
    /// Shape `[n, c, h, w]` of the output.
    ///
    /// # Panics
    /// If the stack is empty, a size is zero, or a stride is neither 1 nor 2.
    pub fn output(&self) -> [usize; 4] {
        let last = *self.geometry().last().expect("geometry refuses an empty stack");
        let (h, w) = last.out();
        [self.n, last.c_out, h, w]
    }

    /// Length of the flat parameters: per block weight `[o, i, 3, 3]`, bias, gamma, beta `[o]`.
    pub fn parameters(&self) -> usize {
        self.geometry().iter().map(Geometry::parameters).sum()
    }

    /// Length of the flat input `[n, c, h, w]`.
    pub fn input(&self) -> usize {
        self.n * self.c * self.h * self.w
    }

    /// Sizes of every block.
    pub(in crate::conv_stack) fn geometry(&self) -> Vec<Geometry> {
        assert!(self.n > 0 && self.c > 0, "a stack needs images and channels, got {self:?}");
        assert!(!self.blocks.is_empty(), "a stack needs at least one block, got {self:?}");
        let mut side = (self.c, self.h, self.w);
        let follow = |block: &BlockShape| {
            let (c_in, h_in, w_in) = side;
            assert!(h_in > 0 && w_in > 0, "a block is left without pixels in {self:?}");
            assert!(matches!(block.stride, 1 | 2), "the stride is 1 or 2, got {block:?}");
            assert!(block.channels_out > 0, "a block needs output channels, got {block:?}");
            let (c_out, stride, pool) = (block.channels_out, block.stride, block.pool);
            let geometry = Geometry { c_in, h_in, w_in, c_out, stride, pool };
            let (h, w) = geometry.out();
            assert!(h > 0 && w > 0, "a block is left without pixels in {self:?}");
            side = (c_out, h, w);
            geometry
        };
        self.blocks.iter().map(follow).collect()
    }
}
