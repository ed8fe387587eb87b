//! The choice between the ways of a convolution, with their forms of the weight and their working memory.

use super::amx::Amx;
use super::amx_convolution::AmxConvolution;
use super::buffers::{Buffer, CowBuffer};
use super::convolution::{Convolution, Way, group};
use super::instruction_set::InstructionSet;
use super::winograd::{Scratch, Winograd};

impl Convolution {
    /// On tiles of AMX, with operands and outputs rounded to bf16, if it fits them.
    pub fn with_amx(mut self, amx: Option<Amx>) -> Self {
        let fits = |amx| AmxConvolution::fits(amx, self.from, self.out, self.stride, &self.taps);
        if let Some(amx) = amx.and_then(fits) {
            self.way = Way::Amx(amx);
        }
        self
    }

    /// Whether it reads operands and writes outputs as rounded to bf16, whatever they are.
    pub fn rounds(&self) -> bool {
        matches!(self.way, Way::Amx(_))
    }

    /// Whether it takes images as they lie, without working memory.
    pub fn is_direct(&self) -> bool {
        matches!(self.way, Way::Direct)
    }

    /// Winograd's convolution, where it takes all images at once.
    pub fn wide(&self) -> Option<&Winograd> {
        match &self.way {
            Way::Winograd(winograd) if winograd.is_wide() => Some(winograd),
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
        match &self.way {
            Way::Direct => packed,
            Way::Winograd(winograd) => winograd.expand(body, &packed).into(),
            Way::Amx(amx) => amx.prepare(&packed).into(),
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
        match &self.way {
            Way::Winograd(winograd) => winograd.expanded(),
            Way::Direct | Way::Amx(_) => self.packed(),
        }
    }

    /// The gradient of the packed weight, from what [`weight`](Self::weight) has added up.
    pub fn restore(&self, body: &dyn InstructionSet, prepared: Buffer) -> Buffer {
        match &self.way {
            Way::Winograd(winograd) => winograd.reduce(body, &prepared),
            Way::Direct | Way::Amx(_) => prepared,
        }
    }

    /// Images to take together.
    pub fn group(&self) -> usize {
        match &self.way {
            Way::Direct => group(&self.out),
            Way::Winograd(winograd) => winograd.group(),
            Way::Amx(amx) => amx.group(),
        }
    }

    /// Room for [`images`](Self::images) of so many terms, where any is needed.
    pub fn scratch(&self, terms: usize) -> Option<Scratch> {
        Scratch::of(&self.scratch_lengths(terms))
    }

    /// Lengths of the buffers in the [`scratch`](Self::scratch) of so many terms.
    pub fn scratch_lengths(&self, terms: usize) -> Vec<usize> {
        match &self.way {
            Way::Direct => Vec::new(),
            Way::Winograd(winograd) => winograd.scratch_lengths(terms),
            Way::Amx(amx) => amx.scratch_lengths(terms),
        }
    }
}
