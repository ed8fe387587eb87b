//! Stacked tasks on the host: one stack for each lane.
//!
//! Lanes share nothing, so each is taken through its own stack, and all of them at once.

use std::borrow::Cow;

use rayon::prelude::*;

use super::cpu::{
    self, Direction, Gradients, Saved, SavedTangent, Tangent, backward_along, forward_along,
};
use super::fused::StackCall;

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

    /// Every lane's own array.
    fn split<'a>(&self, flat: &'a [f32]) -> Vec<Cow<'a, [f32]>> {
        if self.lanes == 1 {
            return vec![Cow::Borrowed(flat)];
        }
        let mut lanes = vec![Vec::with_capacity(flat.len() / self.lanes); self.lanes];
        let mut rest = flat;
        for &part in &self.parts {
            for lane in &mut lanes {
                let (part, after) = rest.split_at(part);
                lane.extend_from_slice(part);
                rest = after;
            }
        }
        lanes.into_iter().map(Cow::Owned).collect()
    }

    /// The inverse of [`split`](Self::split).
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
    parameters: Vec<f32>,
    saved: Saved,
}

/// Tangents of what the forward pass saved, with the direction they are along.
pub struct TapeTangent {
    lanes: Vec<LaneTangent>,
}

struct LaneTangent {
    /// The direction of the parameters.
    parameters: Vec<f32>,
    saved: SavedTangent,
}

/// Runs every lane.
pub(super) fn forward(call: &StackCall, images: &[f32], parameters: &[f32], keep: bool) -> Forward {
    let images = call.input().split(images);
    let parameters = call.parameters().split(parameters);
    let running = call.running.as_ref().map(|running| call.moments().split(running));
    let run = |t: usize| {
        let statistics = match &running {
            Some(running) => cpu::Statistics::Running(&running[t]),
            None => cpu::Statistics::Batch,
        };
        let (images, parameters) = (&images[t], &parameters[t]);
        let how = (keep, call.lanes);
        let output = cpu::forward(&call.shape, images, parameters, statistics, call.epsilon, how);
        let lane = output.saved.map(|saved| Lane { parameters: parameters.to_vec(), saved });
        ((output.y, output.moments), lane)
    };
    let (values, lanes): (Vec<_>, Vec<_>) = (0..call.lanes).into_par_iter().map(run).unzip();
    let (features, moments): (Vec<_>, Vec<_>) = values.into_iter().unzip();
    let moments = match running {
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
        let dy = self.call.output().split(dy);
        self.gradients(|t| {
            let Lane { parameters, saved } = &self.lanes[t];
            cpu::backward(&self.call.shape, saved, parameters, &dy[t], images)
        })
    }

    /// The tangent of the features along a direction of the images and the parameters.
    pub(super) fn forward_along(
        &self,
        images: Option<&[f32]>,
        parameters: &[f32],
    ) -> (Vec<f32>, TapeTangent) {
        let images = images.map(|images| self.call.input().split(images));
        let parameters = self.call.parameters().split(parameters);
        let run = |t: usize| {
            let lane = &self.lanes[t];
            let images = images.as_ref().map(|images| &*images[t]);
            let direction = Direction { images, parameters: &parameters[t] };
            let Tangent { y, saved } = forward_along(&lane.saved, &lane.parameters, direction);
            (y, LaneTangent { parameters: parameters[t].to_vec(), saved })
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
        let dy = self.call.output().split(dy);
        let along = along.map(|along| self.call.output().split(along));
        self.gradients(|t| {
            let (Lane { parameters, saved }, moved) = (&self.lanes[t], &tangent.lanes[t]);
            let grads = (&*dy[t], along.as_ref().map(|along| &*along[t]));
            let moves = (&*moved.parameters, &moved.saved);
            backward_along(saved, parameters, moves, grads, images)
        })
    }

    /// The gradients of all lanes.
    fn gradients(&self, lane: impl Fn(usize) -> Gradients + Send + Sync) -> Gradients {
        let lanes = (0..self.lanes.len()).into_par_iter().map(lane);
        let (dparams, dx): (Vec<_>, Vec<_>) = lanes.map(|lane| (lane.dparams, lane.dx)).unzip();
        let dx = dx.into_iter().collect::<Option<_>>().map(|dx| self.call.input().join(dx));
        Gradients { dx, dparams: self.call.parameters().join(dparams) }
    }
}
