//! AMX where there is none.

// Beside the real ones.
#![allow(missing_docs)]

use std::convert::Infallible;

use super::amx_convolution::BlockProduct;

/// AMX, which is not here.
#[derive(Clone, Copy, Debug)]
pub struct Amx(Infallible);

impl Amx {
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Option<Self> {
        None
    }

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
