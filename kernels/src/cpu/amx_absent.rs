//! AMX where there is none.

use std::convert::Infallible;

/// AMX, which is not here.
#[derive(Clone, Copy, Debug)]
pub struct Amx(Infallible);

/// Rows, steps and columns of a block of a product.
pub const BLOCK: usize = 32;

/// Blocks of a product.
#[allow(dead_code, reason = "nothing multiplies them here")]
pub struct BlockProduct<'a> {
    pub a: &'a [u16],
    pub a_row: usize,
    pub b: &'a [u16],
    pub blocks: &'a [[usize; 2]],
    pub steps: &'a [[usize; 2]],
    pub accumulate: bool,
}

impl Amx {
    pub fn blocks(self, _: &BlockProduct<'_>, _: &mut [f32]) {
        match self.0 {}
    }

    pub fn narrow(self, _: &[f32], _: &mut [u16]) {
        match self.0 {}
    }

    pub fn round_to(self, _: &[f32], _: &mut [f32]) {
        match self.0 {}
    }

    pub fn pairs(self, _: &[f32], _: &mut [u16]) {
        match self.0 {}
    }

    pub fn transposed(self, _: &[f32], _: &mut [u16], _: usize) {
        match self.0 {}
    }
}
