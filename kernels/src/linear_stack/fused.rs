//! The layers as an operation on slices.

use burn::tensor::backend::Backend;
use burn::tensor::{Shape, Tensor};

use super::cpu::{self, Lane, Moves, Parts, Room, part};
use super::{LinearLayer, LinearStackError};
use crate::by_lane::by_lane;
use crate::smooth::{Moved, Passed, Point, Smooth};

/// What a fused body is told besides its tensors.
#[derive(Clone, Debug)]
pub struct LinearCall {
    lanes: usize,
    /// Examples of a lane.
    examples: usize,
    /// Inputs of the first layer, then outputs of every layer.
    widths: Vec<usize>,
    /// Whether a layer has a bias; without, its place has any numbers on a device and zeros on a host.
    #[cfg_attr(not(feature = "cube"), allow(dead_code))]
    biased: Vec<bool>,
}

impl LinearCall {
    /// Whether the layers fit each other and `x`.
    ///
    /// # Errors
    /// A [`LinearStackError`] that says what does not.
    pub(super) fn new<B: Backend>(
        [lanes, examples, features]: [usize; 3],
        layers: &[LinearLayer<B>],
    ) -> Result<Self, LinearStackError> {
        if layers.is_empty() {
            return Err(LinearStackError::Empty);
        }
        let mut widths = vec![features];
        for (layer, LinearLayer { weight, bias }) in layers.iter().enumerate() {
            let (features, found) = (widths[layer], weight.dims());
            if found[0] != lanes * features {
                return Err(LinearStackError::Weight { layer, lanes, features, found });
            }
            if features == 0 || found[1] == 0 {
                return Err(LinearStackError::NoFeatures { layer });
            }
            let wanted = lanes * found[1];
            match bias.as_ref().map(Tensor::dims) {
                Some([found]) if found != wanted => {
                    return Err(LinearStackError::Bias { layer, wanted, found });
                }
                _ => widths.push(found[1]),
            }
        }
        let biased = layers.iter().map(|layer| layer.bias.is_some()).collect();
        Ok(Self { lanes, examples, widths, biased })
    }

    /// Lanes, which share nothing.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Examples of every lane.
    pub fn examples(&self) -> usize {
        self.examples
    }

    /// Inputs of the first layer, then outputs of every layer.
    pub fn widths(&self) -> &[usize] {
        &self.widths
    }

    /// Whether a layer has a bias.
    #[cfg(feature = "cube")]
    pub(super) fn is_biased(&self, layer: usize) -> bool {
        self.biased[layer]
    }

    /// Whether there are no examples.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes * self.examples == 0
    }

    /// Shape of what the last layer gives.
    pub(super) fn outputs(&self) -> [usize; 3] {
        [self.lanes, self.examples, self.widths[self.widths.len() - 1]]
    }

    fn lane<'a>(&'a self, operands: &'a [&'a [f32]], index: usize) -> Lane<'a> {
        let operands = self.parts(operands, index);
        Lane { examples: self.examples, widths: &self.widths, operands }
    }

    /// What is one lane's.
    fn parts<'a, T>(&self, all: &'a [T], index: usize) -> Parts<'a, T> {
        Parts { all, lane: (index, self.lanes) }
    }

    fn part<'a>(&self, all: &'a [f32], index: usize) -> &'a [f32] {
        part(all, (index, self.lanes))
    }

    /// Room for the outputs of all layers but so many at the end.
    fn between(&self, but: usize) -> Vec<f32> {
        let widths: usize = self.widths[1..self.widths.len() - but].iter().sum();
        vec![0.0; self.lanes * self.examples * widths]
    }
}

/// Operands are `x`, then weight and bias of every layer.
impl Smooth for LinearCall {
    /// The hidden activations.
    type Tape = Vec<f32>;
    /// The gradients of all layers' outputs before ReLU.
    type Between = Vec<f32>;
    /// How the hidden activations move.
    type Tangent = Vec<f32>;

    const READS_OPERANDS: bool = true;

    fn operand(&self, place: usize) -> Shape {
        let Some(place) = place.checked_sub(1) else {
            return [self.lanes, self.examples, self.widths[0]].into();
        };
        let [inputs, outputs] = [self.widths[place / 2], self.widths[place / 2 + 1]];
        match place % 2 {
            0 => [self.lanes * inputs, outputs].into(),
            _ => [self.lanes * outputs].into(),
        }
    }

    fn result(&self) -> Shape {
        self.outputs().into()
    }

    fn forward(&self, operands: &[&[f32]], keep: bool) -> Passed<Vec<f32>, Self::Tape> {
        let mut found = vec![vec![0.0; self.result().num_elements()]];
        found.extend(keep.then(|| self.between(1)));
        by_lane(&mut found, self.work(1), Room::new, |room, index, to| {
            let (y, hidden) = to.split_first_mut().expect("the result");
            let hidden = hidden.first_mut().map(|hidden| &mut **hidden);
            cpu::forward(room, self.lane(operands, index), hidden, y);
        });
        let mut found = found.into_iter();
        let result = found.next().expect("the result");
        Passed { result, aside: Vec::new(), tape: found.next() }
    }

    fn backward(
        &self,
        at: Point<'_, Self>,
        grad: &[f32],
        wanted: &[bool],
        keep: bool,
    ) -> (Vec<Option<Vec<f32>>>, Option<Self::Between>) {
        let mut found = self.places(wanted);
        found.extend(keep.then(|| self.between(0)));
        by_lane(&mut found, self.work(2), Room::new, |room, index, to| {
            let (lane, hidden) = (self.lane(at.operands, index), self.part(at.tape, index));
            let (to, between) = to.split_at_mut(wanted.len());
            let between = between.first_mut().map(|between| &mut **between);
            cpu::backward(room, lane, hidden, self.part(grad, index), between, wanted[0], to);
        });
        let between = if keep { found.pop() } else { None };
        (found.into_iter().map(Some).collect(), between)
    }

    fn forward_along(
        &self,
        at: Point<'_, Self>,
        direction: &[Option<&[f32]>],
    ) -> (Vec<f32>, Self::Tangent) {
        let mut found = [vec![0.0; self.result().num_elements()], self.between(1)];
        by_lane(&mut found, self.work(2), Room::new, |room, index, to| {
            let (lane, hidden) = (self.lane(at.operands, index), self.part(at.tape, index));
            let [y, moved] = to else { unreachable!("two tensors have two parts") };
            cpu::forward_along(room, lane, hidden, self.parts(direction, index), moved, y);
        });
        let [change, moved] = found;
        (change, moved)
    }

    fn backward_along(
        &self,
        at: Point<'_, Self>,
        moved: Moved<'_, Self>,
        change: Option<&[f32]>,
        wanted: &[bool],
    ) -> Vec<Option<Vec<f32>>> {
        let mut gradients = self.places(wanted);
        by_lane(&mut gradients, self.work(4), Room::new, |room, index, to| {
            let moves = Moves {
                operands: self.parts(moved.direction, index),
                hidden: self.part(at.tape, index),
                moved: self.part(moved.tangent, index),
                between: self.part(moved.between, index),
            };
            let change = change.map(|all| self.part(all, index));
            cpu::backward_along(room, self.lane(at.operands, index), moves, change, wanted[0], to);
        });
        gradients.into_iter().map(Some).collect()
    }
}

impl LinearCall {
    /// The lanes, and the multiply-adds of so many passes.
    fn work(&self, passes: usize) -> (usize, usize) {
        let weights: usize = self.widths.windows(2).map(|sides| sides[0] * sides[1]).sum();
        (self.lanes, passes * self.lanes * self.examples * weights)
    }

    /// Zeros for every operand; nothing for an `x` that is not wanted.
    fn places(&self, wanted: &[bool]) -> Vec<Vec<f32>> {
        let zeros = |place| match place == 0 && !wanted[0] {
            true => Vec::new(),
            false => vec![0.0; self.operand(place).num_elements()],
        };
        (0..wanted.len()).map(zeros).collect()
    }
}
