//! The layers as an operation on slices.

use burn::tensor::backend::Backend;
use burn::tensor::{Shape, Tensor};

use super::cpu::{self, Lane, Moves, Room};
use super::{LinearLayer, LinearStackError};
use crate::smooth::{Moved, Passed, Point, Smooth, by_lane};

/// What a fused body is told besides its tensors.
#[derive(Clone, Debug)]
pub struct LinearCall {
    lanes: usize,
    /// Examples of a lane.
    examples: usize,
    /// Inputs of the first layer, then outputs of every layer.
    widths: Vec<usize>,
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
        Ok(Self { lanes, examples, widths })
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

    /// Whether there are no examples.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes * self.examples == 0
    }

    fn lane<'a>(&'a self, operands: &'a [&'a [f32]], index: usize) -> Lane<'a> {
        let mut own = operands.iter().map(|all| part(all, index, self.lanes));
        let x = own.next().expect("the first operand");
        let mut layers = Vec::with_capacity(self.widths.len() - 1);
        while let (Some(weight), Some(bias)) = (own.next(), own.next()) {
            layers.push([weight, bias]);
        }
        Lane { examples: self.examples, widths: &self.widths, x, layers }
    }
}

fn part(all: &[f32], index: usize, lanes: usize) -> &[f32] {
    let length = all.len() / lanes;
    &all[index * length..(index + 1) * length]
}

/// Operands are `x`, then weight and bias of every layer.
impl Smooth for LinearCall {
    /// The hidden activations of every lane.
    type Tape = Vec<cpu::Hidden>;
    type Between = Vec<cpu::Between>;
    /// How the hidden activations move.
    type Tangent = Vec<cpu::Hidden>;

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
        [self.lanes, self.examples, self.widths[self.widths.len() - 1]].into()
    }

    fn forward(&self, operands: &[&[f32]], keep: bool) -> Passed<Self::Tape> {
        let mut result = [vec![0.0; self.result().num_elements()]];
        let hidden = by_lane(&mut result, self.work(1), Room::new, |room, index, to| {
            let hidden = cpu::forward(room, &self.lane(operands, index), to[0]);
            keep.then_some(hidden)
        });
        let [result] = result;
        Passed { result, aside: Vec::new(), tape: hidden.into_iter().collect() }
    }

    fn backward(
        &self,
        at: Point<'_, Self>,
        grad: &[f32],
        wanted: &[bool],
        keep: bool,
    ) -> (Vec<Option<Vec<f32>>>, Option<Self::Between>) {
        let mut gradients = self.places(wanted);
        let between = by_lane(&mut gradients, self.work(2), Room::new, |room, index, to| {
            let lane = self.lane(at.operands, index);
            let grad = part(grad, index, self.lanes);
            cpu::backward(room, &lane, &at.tape[index], grad, (wanted[0], keep), to)
        });
        (gradients.into_iter().map(Some).collect(), between.into_iter().collect())
    }

    fn forward_along(
        &self,
        at: Point<'_, Self>,
        direction: &[Option<&[f32]>],
    ) -> (Vec<f32>, Self::Tangent) {
        let mut change = [vec![0.0; self.result().num_elements()]];
        let moved = by_lane(&mut change, self.work(2), Room::new, |room, index, to| {
            let lane = self.lane(at.operands, index);
            let moves = self.directions(direction, index);
            cpu::forward_along(room, &lane, &at.tape[index], &moves, to[0])
        });
        let [change] = change;
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
            let lane = self.lane(at.operands, index);
            let moves = Moves {
                operands: &self.directions(moved.direction, index),
                hidden: &at.tape[index],
                moved: &moved.tangent[index],
                between: &moved.between[index],
            };
            let change = change.map(|all| part(all, index, self.lanes));
            cpu::backward_along(room, &lane, moves, change, wanted[0], to);
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

    /// How one lane's operands move.
    fn directions<'a>(&self, all: &[Option<&'a [f32]>], index: usize) -> Vec<Option<&'a [f32]>> {
        all.iter().map(|all| all.map(|all| part(all, index, self.lanes))).collect()
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
