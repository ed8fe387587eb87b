//! The choice between the ways of a convolution, with their forms of the weight and their working memory.

use super::amx::Amx;
use super::amx_convolution::AmxConvolution;
use super::buffers::{Buffer, CowBuffer};
use super::convolution::{Convolution, group};
use super::instruction_set::InstructionSet;
use super::winograd::{Scratch, Winograd};

impl Convolution {
    /// On tiles of AMX, with operands and outputs rounded to bf16, if it fits them.
    pub fn with_amx(mut self, amx: Option<Amx>) -> Self {
        let fits = |amx| AmxConvolution::fits(amx, self.from, self.out, self.stride, &self.taps);
        self.amx = amx.and_then(fits);
        self.winograd = self.winograd.filter(|_| self.amx.is_none());
        self
    }

    /// Whether it reads operands and writes outputs as rounded to bf16, whatever they are.
    pub fn rounds(&self) -> bool {
        self.amx.is_some()
    }

    /// Whether it takes images as they lie, without working memory.
    pub fn is_direct(&self) -> bool {
        self.winograd.is_none() && self.amx.is_none()
    }

    /// The form of the packed weight that this convolution takes; that of a direct one is the same.
    pub fn prepare<'a>(
        &self,
        body: &dyn InstructionSet,
        packed: impl Into<CowBuffer<'a>>,
    ) -> CowBuffer<'a> {
        let packed = packed.into();
        match (&self.amx, &self.winograd) {
            (Some(amx), _) => amx.prepare(&packed).into(),
            (None, Some(winograd)) => winograd.expand(body, &packed).into(),
            (None, None) => packed,
        }
    }

    /// Floats of the packed weight.
    pub fn packed(&self) -> usize {
        self.out.tiles() * self.tile_floats()
    }

    /// Length of what [`prepare`](Self::prepare) returns.
    pub fn prepared(&self) -> usize {
        let halves = if self.amx.is_some() { 2 } else { 1 };
        self.gradient_floats() / halves
    }

    /// Length of the gradient that [`weight`](Self::weight) adds to.
    pub fn gradient_floats(&self) -> usize {
        self.winograd.as_ref().map_or(self.packed(), Winograd::expanded)
    }

    /// The gradient of the packed weight, from what [`weight`](Self::weight) has added up.
    pub fn restore(&self, body: &dyn InstructionSet, prepared: Buffer) -> Buffer {
        match &self.winograd {
            Some(winograd) => winograd.reduce(body, &prepared),
            None => prepared,
        }
    }

    /// Images to take together.
    pub fn group(&self) -> usize {
        match (&self.amx, &self.winograd) {
            (Some(amx), _) => amx.group(),
            (None, Some(winograd)) => winograd.group(),
            (None, None) => group(&self.out),
        }
    }

    /// Room for [`images`](Self::images) of so many terms, where any is needed.
    pub fn scratch(&self, terms: usize) -> Option<Scratch> {
        Scratch::of(&self.scratch_lengths(terms))
    }

    /// Lengths of the buffers in the [`scratch`](Self::scratch) of so many terms.
    pub fn scratch_lengths(&self, terms: usize) -> Vec<usize> {
        match (&self.amx, &self.winograd) {
            (Some(amx), _) => amx.scratch_lengths(terms),
            (None, Some(winograd)) => winograd.scratch_lengths(terms),
            (None, None) => Vec::new(),
        }
    }
}
