//! Form of the weight, groups of images and working memory, by the algorithm of a convolution.

use super::amx::Amx;
use super::amx_convolution::AmxConvolution;
use super::buffers::{Buffer, CowBuffer};
use super::convolution::{Algorithm, Convolution, group};
use super::instruction_set::InstructionSet;
use super::winograd::{Scratch, Winograd};

impl Convolution {
    /// On tiles of AMX, with operands and outputs rounded to bf16, if it fits them.
    pub fn with_amx(mut self, amx: Option<Amx>) -> Self {
        let fits = |amx| AmxConvolution::fits(amx, self.from, self.out, self.stride, &self.taps);
        if let Some(amx) = amx.and_then(fits) {
            self.algorithm = Algorithm::Amx(amx);
        }
        self
    }

    /// True if the convolution rounds operands and outputs to bf16 by itself.
    pub fn rounds(&self) -> bool {
        matches!(self.algorithm, Algorithm::Amx(_))
    }

    /// True if the convolution takes images as they lie, without working memory.
    pub fn is_direct(&self) -> bool {
        matches!(self.algorithm, Algorithm::Direct)
    }

    /// Winograd's convolution, where it takes all images at once.
    pub fn wide(&self) -> Option<&Winograd> {
        match &self.algorithm {
            Algorithm::Winograd(winograd) if winograd.is_wide() => Some(winograd),
            _ => None,
        }
    }

    /// The form of the packed weight that this convolution takes; that of a direct one is the same.
    pub fn prepare<'a>(
        &self,
        body: &dyn InstructionSet,
        packed: impl Into<CowBuffer<'a>>,
    ) -> CowBuffer<'a> {
        let packed = packed.into();
        match &self.algorithm {
            Algorithm::Direct => packed,
            Algorithm::Winograd(winograd) => winograd.expand(body, &packed).into(),
            Algorithm::Amx(amx) => amx.prepare(&packed).into(),
        }
    }

    /// Floats of the packed weight.
    pub fn packed(&self) -> usize {
        self.out.tiles() * self.tile_floats()
    }

    /// Length of what [`prepare`](Self::prepare) returns.
    pub fn prepared(&self) -> usize {
        let halves = if self.rounds() { 2 } else { 1 };
        self.gradient_floats() / halves
    }

    /// Length of the gradient that [`weight`](Self::weight) adds to.
    pub fn gradient_floats(&self) -> usize {
        match &self.algorithm {
            Algorithm::Winograd(winograd) => winograd.expanded(),
            Algorithm::Direct | Algorithm::Amx(_) => self.packed(),
        }
    }

    /// The gradient of the packed weight, from what [`weight`](Self::weight) has added up.
    pub fn restore(&self, body: &dyn InstructionSet, prepared: Buffer) -> Buffer {
        match &self.algorithm {
            Algorithm::Winograd(winograd) => winograd.reduce(body, &prepared),
            Algorithm::Direct | Algorithm::Amx(_) => prepared,
        }
    }

    /// Images to take together.
    pub fn group(&self) -> usize {
        match &self.algorithm {
            Algorithm::Direct => group(&self.out),
            Algorithm::Winograd(winograd) => winograd.group(),
            Algorithm::Amx(amx) => amx.group(),
        }
    }

    /// Room for [`images`](Self::images) of so many terms, where any is needed.
    pub fn scratch(&self, terms: usize) -> Option<Scratch> {
        Scratch::new(&self.scratch_lengths(terms))
    }

    /// Lengths of the buffers in the [`scratch`](Self::scratch) of so many terms.
    pub fn scratch_lengths(&self, terms: usize) -> Vec<usize> {
        match &self.algorithm {
            Algorithm::Direct => Vec::new(),
            Algorithm::Winograd(winograd) => winograd.scratch_lengths(terms),
            Algorithm::Amx(amx) => amx.scratch_lengths(terms),
        }
    }
}
