//! Stacked tasks on the host: one stack for each lane.
//!
//! Lanes share nothing, so each is taken through its own stack, and all of them at once.

use std::ops::Deref;

use rayon::prelude::*;

use super::cpu::{
    self, Direction, Gradients, Saved, SavedTangent, Tangent, backward_along, forward_along,
};
use super::fused::StackCall;
use crate::cpu::buffers::Buffer;

/// A flat array of segments, each of which holds one part for every lane.
struct Segments {
    lanes: usize,
    /// Length of one lane's part of every segment.
    parts: Vec<usize>,
}

impl Segments {
    /// Images `[n, lanes * c, h, w]`, of `image` floats in a lane.
    fn images(lanes: usize, n: usize, image: usize) -> Self {
        Self { lanes, parts: vec![image; n] }
    }

    /// One lane's own array.
    fn lane<'a>(&self, flat: &'a [f32], t: usize) -> Part<'a> {
        if self.lanes == 1 {
            return Part::All(flat);
        }
        let mut lane = Buffer::stale(self.parts.iter().sum());
        let (mut start, mut from) = (0, 0);
        for &part in &self.parts {
            let own = from + t * part..from + (t + 1) * part;
            lane[start..start + part].copy_from_slice(&flat[own]);
            start += part;
            from += self.lanes * part;
        }
        Part::Own(lane)
    }

    /// Every lane's parts, to be written.
    fn split_mut<'a>(&self, mut flat: &'a mut [f32]) -> Vec<Vec<&'a mut [f32]>> {
        let mut lanes: Vec<_> = (0..self.lanes).map(|_| Vec::new()).collect();
        for &part in &self.parts {
            for lane in &mut lanes {
                lane.push(flat.split_off_mut(..part).expect("as long as its segments"));
            }
        }
        lanes
    }

    /// All lanes' own arrays, segment by segment.
    fn join(&self, mut lanes: Vec<Vec<f32>>) -> Vec<f32> {
        if lanes.len() == 1 {
            return lanes.swap_remove(0);
        }
        let mut flat = Vec::with_capacity(lanes.iter().map(Vec::len).sum());
        let mut start = 0;
        for &part in &self.parts {
            lanes.iter().for_each(|lane| flat.extend_from_slice(&lane[start..start + part]));
            start += part;
        }
        flat
    }
}

/// One lane's array: all that there is, or gathered from the segments.
enum Part<'a> {
    All(&'a [f32]),
    Own(Buffer),
}

impl Deref for Part<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Part::All(flat) => flat,
            Part::Own(lane) => lane,
        }
    }
}

impl Part<'_> {
    fn into_own(self) -> Buffer {
        match self {
            Part::All(flat) => {
                let mut own = Buffer::stale(flat.len());
                own.copy_from_slice(flat);
                own
            }
            Part::Own(lane) => lane,
        }
    }
}

impl StackCall {
    fn input(&self) -> Segments {
        Segments::images(self.lanes, self.shape.n, self.shape.input() / self.shape.n)
    }

    fn output(&self) -> Segments {
        let image = self.shape.output()[1..].iter().product();
        Segments::images(self.lanes, self.shape.n, image)
    }

    fn parameters(&self) -> Segments {
        let mut c_in = self.shape.c;
        let block = |block: &cpu::BlockShape| {
            let (from, out) = (c_in, block.channels_out);
            c_in = out;
            [9 * from * out, out, out, out]
        };
        let parts = self.shape.blocks.iter().flat_map(block).collect();
        Segments { lanes: self.lanes, parts }
    }

    fn moments(&self) -> Segments {
        let parts = self.shape.blocks.iter().flat_map(|block| [block.channels_out; 2]).collect();
        Segments { lanes: self.lanes, parts }
    }
}

/// What the forward pass returns.
pub(super) struct Forward {
    /// `[n, lanes * c', h', w']`
    pub features: Vec<f32>,
    /// The moments of every block, mean and variance; empty for running statistics.
    pub moments: Vec<f32>,
    /// What the backward passes need, if it was asked for.
    pub tape: Option<Tape>,
}

/// What the forward pass saved.
pub struct Tape {
    pub(super) call: StackCall,
    lanes: Vec<Lane>,
}

struct Lane {
    parameters: Buffer,
    saved: Saved,
}

/// Tangents of what the forward pass saved, with the direction they are along.
pub struct TapeTangent {
    lanes: Vec<LaneTangent>,
}

struct LaneTangent {
    /// The direction of the parameters.
    parameters: Buffer,
    saved: SavedTangent,
}

/// Runs every lane.
pub(super) fn forward(call: &StackCall, images: &[f32], parameters: &[f32], keep: bool) -> Forward {
    let run = |t: usize| {
        let running = call.running.as_ref().map(|running| call.moments().lane(running, t));
        let statistics = match &running {
            Some(running) => cpu::Statistics::Running(running),
            None => cpu::Statistics::Batch,
        };
        let images = call.input().lane(images, t);
        let parameters = call.parameters().lane(parameters, t);
        let pass = cpu::Pass { keep, lanes: call.lanes, precision: call.precision };
        let (shape, epsilon) = (&call.shape, call.epsilon);
        let output = cpu::forward(shape, &images, &parameters, statistics, epsilon, pass);
        let lane = output.saved.map(|saved| Lane { parameters: parameters.into_own(), saved });
        ((output.y, output.moments), lane)
    };
    let (values, lanes): (Vec<_>, Vec<_>) = (0..call.lanes).into_par_iter().map(run).unzip();
    let (features, moments): (Vec<_>, Vec<_>) = values.into_iter().unzip();
    let moments = match call.running {
        Some(_) => Vec::new(),
        None => call.moments().join(moments),
    };
    let lanes = lanes.into_iter().collect::<Option<_>>();
    let tape = lanes.map(|lanes| Tape { call: call.clone(), lanes });
    Forward { features: call.output().join(features), moments, tape }
}

impl Tape {
    /// The gradients of the parameters, and of the images if they are wanted.
    pub(super) fn backward(&self, dy: &[f32], images: bool) -> Gradients {
        self.gradients(|t, to| {
            let Lane { parameters, saved } = &self.lanes[t];
            let dy = self.call.output().lane(dy, t);
            cpu::backward(&self.call.shape, saved, parameters, &dy, images, to)
        })
    }

    /// The tangent of the features along a direction of the images and the parameters.
    pub(super) fn forward_along(
        &self,
        images: Option<&[f32]>,
        parameters: &[f32],
    ) -> (Vec<f32>, TapeTangent) {
        let run = |t: usize| {
            let lane = &self.lanes[t];
            let images = images.map(|images| self.call.input().lane(images, t));
            let parameters = self.call.parameters().lane(parameters, t);
            let direction = Direction { images: images.as_deref(), parameters: &parameters };
            let Tangent { y, saved } = forward_along(&lane.saved, &lane.parameters, direction);
            (y, LaneTangent { parameters: parameters.into_own(), saved })
        };
        let (features, lanes): (Vec<_>, Vec<_>) =
            (0..self.lanes.len()).into_par_iter().map(run).unzip();
        (self.call.output().join(features), TapeTangent { lanes })
    }

    /// The tangents of the gradients, where that of the output changes by `along`, or stays.
    pub(super) fn backward_along(
        &self,
        tangent: &TapeTangent,
        (dy, along): (&[f32], Option<&[f32]>),
        images: bool,
    ) -> Gradients {
        self.gradients(|t, to| {
            let (Lane { parameters, saved }, moved) = (&self.lanes[t], &tangent.lanes[t]);
            let dy = self.call.output().lane(dy, t);
            let along = along.map(|along| self.call.output().lane(along, t));
            let (grads, moves) = ((&*dy, along.as_deref()), (&*moved.parameters, &moved.saved));
            backward_along(saved, parameters, moves, grads, images, to)
        })
    }

    /// The gradients of all lanes, each of which writes its own of the parameters.
    fn gradients(
        &self,
        lane: impl Fn(usize, &mut [&mut [f32]]) -> Option<Vec<f32>> + Send + Sync,
    ) -> Gradients {
        let mut dparams = vec![0.0; self.call.parameter_count()];
        let parts = self.call.parameters().split_mut(&mut dparams).into_par_iter();
        let dx: Vec<_> = parts.enumerate().map(|(t, mut parts)| lane(t, &mut parts)).collect();
        let dx = dx.into_iter().collect::<Option<_>>().map(|dx| self.call.input().join(dx));
        Gradients { dx, dparams }
    }
}
