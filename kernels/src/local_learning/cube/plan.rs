//! What a kernel is compiled for, and the sizes and places that it is told.

use cubecl::prelude::*;

use crate::local_learning::{Activation, Aggregate, RuleKind};

impl RuleKind {
    /// Whether it takes sums over neurons before the weight changes.
    pub fn sums_columns(self) -> bool {
        matches!(self, Self::Subspace | Self::Sanger)
    }
}

/// What is known when the kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    pub kind: RuleKind,
    pub aggregate: Aggregate,
    pub activation: Activation,
    pub learns: bool,
    pub relative: bool,
    pub top_down: bool,
    pub returns_outputs: bool,
    /// Whether there is one sequence.
    pub alone: bool,
    pub units: u32,
}

/// The sizes of a layer and the places of its memory.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Layer {
    pub neurons: usize,
    pub inputs: usize,
    /// Length of an output below.
    pub below: usize,
    pub period: usize,
    pub period_below: usize,
    pub ratio: usize,
    /// Firings of these ticks, and before them.
    pub firings: usize,
    pub before: usize,
    pub numbers: usize,
    pub seen: usize,
    pub held: usize,
    pub gain: usize,
    pub of_inputs: usize,
    pub of_neurons: usize,
}

/// Numbers of a whole launch.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Call {
    /// The first tick of the inputs.
    pub start: usize,
    /// Ticks of the inputs, of which these are done: from `first` on, as far as `last`.
    pub ticks: usize,
    pub first: usize,
    pub last: usize,
    pub sequences: usize,
    pub rate: f32,
    pub decay: f32,
    pub tau: f32,
    pub power_tau: f32,
    pub top_down: f32,
    /// Places of the workspace: what is left of rows, right and left factors of the change, and sums.
    pub kept: usize,
    pub pre: usize,
    pub post: usize,
    pub sums: usize,
}
