//! The step over slices of host memory.

use rayon::prelude::*;

use super::factors::{self, Factors};
use crate::cpu::body::Body;
use crate::cpu::steps::{Adapting, Averages, Descent, Following, Ratio, Turning};

/// Floats of one slice in a chunk: a task of a thread, and a summand of a norm.
const CHUNK: usize = 1 << 14;

/// Floats over all parameters from which it pays to wake another thread.
const PARALLEL: usize = 1 << 18;

/// A parameter, its gradient, and the tensors that its rule remembers; the others are empty.
pub struct Elements<'a> {
    pub factors: Factors,
    pub p: &'a mut [f32],
    pub g: &'a [f32],
    pub state: [&'a mut [f32]; 2],
}

/// Moves all parameters in place.
///
/// Chunks do not depend on the number of threads, so neither does the result.
pub fn step(body: &dyn Body, of: Vec<Elements<'_>>) {
    let mut squares = vec![[0.0; 2]; of.len()];
    let mut chunks = Vec::new();
    for (tensor, elements) in of.into_iter().enumerate() {
        elements.cut(tensor, &mut chunks);
    }
    for_each(&mut chunks, |chunk| chunk.run(body));
    if !chunks.iter().any(Chunk::turns) {
        return;
    }
    for chunk in &chunks {
        let sums = &mut squares[chunk.tensor];
        *sums = [sums[0] + chunk.squares[0], sums[1] + chunk.squares[1]];
    }
    for_each(&mut chunks, |chunk| chunk.advance(body, squares[chunk.tensor]));
}

fn for_each<'a>(chunks: &mut [Chunk<'a>], run: impl Fn(&mut Chunk<'a>) + Send + Sync) {
    if chunks.iter().map(|chunk| chunk.p.len()).sum::<usize>() < PARALLEL {
        chunks.iter_mut().for_each(run);
    } else {
        chunks.par_iter_mut().for_each(run);
    }
}

/// Factors as the inner loops take them.
#[derive(Clone, Copy)]
enum Motion {
    Descend(Descent),
    Follow(Following),
    Adapt(Adapting),
    Turn(Turning, f64),
}

impl Motion {
    fn new(factors: Factors) -> Self {
        match factors {
            Factors::Sgd { decay, velocity, rate } => {
                let descent = descent(decay, rate);
                match velocity {
                    None => Self::Descend(descent),
                    Some(by) => Self::Follow(Following {
                        descent,
                        old: by.old as f32,
                        new: by.new as f32,
                        ahead: (by.now != 0.0).then_some(by.ahead as f32),
                    }),
                }
            }
            Factors::Adam { decay, moments, rate } => Self::Adapt(Adapting {
                descent: descent(decay, rate),
                averages: averages(&moments),
                ratio: ratio(&moments),
            }),
            Factors::Lamb { pull, moments, rate } => {
                let (averages, ratio) = (averages(&moments), ratio(&moments));
                Self::Turn(Turning { averages, ratio, pull: pull as f32 }, rate)
            }
        }
    }
}

fn descent(decay: factors::Decay, rate: f64) -> Descent {
    Descent { l2: decay.l2 as f32, keep: decay.keep as f32, rate: rate as f32 }
}

fn averages(of: &factors::Moments) -> Averages {
    let old = [of.beta_1, of.beta_2];
    Averages { old: old.map(|old| old as f32), new: old.map(|old| (1.0 - old) as f32) }
}

fn ratio(of: &factors::Moments) -> Ratio {
    Ratio { first: of.first as f32, root: of.root as f32, epsilon: of.epsilon as f32 }
}

struct Chunk<'a> {
    tensor: usize,
    motion: Motion,
    p: &'a mut [f32],
    g: &'a [f32],
    state: [&'a mut [f32]; 2],
    /// Of the parameter and of its direction, where a norm is wanted.
    squares: [f64; 2],
}

impl<'a> Elements<'a> {
    fn cut(self, tensor: usize, chunks: &mut Vec<Chunk<'a>>) {
        let Self { factors, p, g, state } = self;
        let motion = Motion::new(factors);
        let mut states = state.map(|state| state.chunks_mut(CHUNK));
        for (p, g) in p.chunks_mut(CHUNK).zip(g.chunks(CHUNK)) {
            let state = states.each_mut().map(|state| state.next().unwrap_or_default());
            chunks.push(Chunk { tensor, motion, p, g, state, squares: [0.0; 2] });
        }
    }
}

impl Chunk<'_> {
    fn run(&mut self, body: &dyn Body) {
        let [first, second] = &mut self.state;
        match &self.motion {
            Motion::Descend(by) => body.descend(by, self.g, self.p),
            Motion::Follow(by) => body.follow(by, self.g, self.p, first),
            Motion::Adapt(by) => body.adapt(by, self.g, self.p, [first, second]),
            Motion::Turn(by, _) => {
                body.turn(by, [self.g, self.p], [first, second], &mut self.squares);
            }
        }
    }

    fn turns(&self) -> bool {
        matches!(self.motion, Motion::Turn(..))
    }

    /// Moves along the direction, given the sums of squares over the whole parameter.
    fn advance(&mut self, body: &dyn Body, [parameter, direction]: [f64; 2]) {
        let Motion::Turn(by, rate) = &self.motion else { return };
        let defined = parameter > 0.0 && direction > 0.0;
        let trust = if defined { (parameter / direction).sqrt() } else { 1.0 };
        let [m, v] = &self.state;
        body.advance(by, (rate * trust) as f32, [m, v], self.p);
    }
}
