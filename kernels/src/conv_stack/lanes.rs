//! Stacked tasks on the host: one stack for each lane.
//!
//! Lanes share nothing, so each is taken through its own stack, and all of them at once.

use std::ops::Deref;

use burn::tensor::Shape;
use rayon::prelude::*;

use super::cpu::{
    self, InputTangents, IntermediateGrads, JvpOutput, Planned, Saved, SavedTangent, jvp,
    jvp_of_vjp,
};
use super::fused::StackCall;
use crate::cpu::buffers::Buffer;
use crate::parallel_lanes::map_lanes;
use crate::twice_differentiable::{
    ForwardOutput, HostTwiceDifferentiable, PrimalSlices, TangentSlices,
};

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

    /// The segments of a flat array.
    fn split(&self, mut flat: &[f32]) -> Vec<Vec<f32>> {
        let segment = |&part: &usize| {
            let (own, rest) = flat.split_at(self.lanes * part);
            flat = rest;
            own.to_vec()
        };
        self.parts.iter().map(segment).collect()
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

impl StackCall {
    fn input(&self) -> Segments {
        Segments::images(self.lanes, self.shape.n, self.shape.input() / self.shape.n)
    }

    fn output(&self) -> Segments {
        let image = self.shape.output()[1..].iter().product();
        Segments::images(self.lanes, self.shape.n, image)
    }

    /// Lengths of the parts of one lane's parameters, four for each block.
    fn parts(&self) -> impl Iterator<Item = usize> {
        let blocks = self.shape.blocks.iter();
        let outputs = blocks.clone().map(|block| block.channels_out);
        let inputs = std::iter::once(self.shape.c).chain(outputs.clone());
        inputs.zip(outputs).flat_map(|(c_in, out)| [9 * c_in * out, out, out, out])
    }

    /// One lane's parameters, given the tensors of all lanes; zeros for those that are not there.
    fn parameters<'a>(&self, all: impl Iterator<Item = Option<&'a [f32]>>, t: usize) -> Buffer {
        let mut lane = Buffer::stale(self.shape.parameters());
        let mut rest = &mut lane[..];
        for (part, tensor) in self.parts().zip(all) {
            let to = rest.split_off_mut(..part).expect("as long as its parts");
            match tensor {
                Some(tensor) => to.copy_from_slice(&tensor[t * part..(t + 1) * part]),
                None => to.fill(0.0),
            }
        }
        lane
    }

    fn moments(&self) -> Segments {
        let parts = self.shape.blocks.iter().flat_map(|block| [block.channels_out; 2]).collect();
        Segments { lanes: self.lanes, parts }
    }
}

/// What the forward pass of a lane saved.
pub struct Lane {
    parameters: Buffer,
    saved: Saved,
}

/// Tangents of what the forward pass of a lane saved, and of its parameters.
pub struct LaneTangent {
    /// Tangents of the parameters.
    parameters: Buffer,
    saved: SavedTangent,
}

/// Operands are the images, then weight, bias, gamma and beta of every block. Auxiliary results are mean
/// and variance of every block; there are none for running statistics.
impl HostTwiceDifferentiable for StackCall {
    type Saved = Vec<Lane>;
    type IntermediateGrads = Vec<IntermediateGrads>;
    type SavedTangent = Vec<LaneTangent>;

    const READS_OPERANDS: bool = false;

    fn operand_shape(&self, place: usize) -> Shape {
        let Some(place) = place.checked_sub(1) else { return self.images().into() };
        let (block, part) = (place / 4, place % 4);
        let out = self.shape.blocks[block].channels_out;
        let c_in = block.checked_sub(1).map_or(self.shape.c, |k| self.shape.blocks[k].channels_out);
        match part {
            0 => [self.lanes * out, c_in, 3, 3].into(),
            _ => [self.lanes * out].into(),
        }
    }

    fn result_shape(&self) -> Shape {
        self.features().into()
    }

    fn forward(&self, operands: &[&[f32]], keep: bool) -> ForwardOutput<Vec<f32>, Vec<Lane>> {
        let images = operands[0];
        let (parameters, running) = operands[1..].split_at(4 * self.shape.blocks.len());
        let running = self.running.then(|| running.concat());
        let planned = Planned::new(&self.shape, self.precision);
        let run = |t: usize| {
            let running = running.as_ref().map(|running| self.moments().lane(running, t));
            let statistics = match &running {
                Some(running) => cpu::Statistics::Running(running),
                None => cpu::Statistics::Batch,
            };
            let images = self.input().lane(images, t);
            let parameters = self.parameters(parameters.iter().copied().map(Some), t);
            let (how, pass) = ((statistics, self.epsilon), cpu::Pass { keep, lanes: self.lanes });
            let output = cpu::forward(&planned, &images, &parameters, how, pass);
            let lane = output.saved.map(|saved| Lane { parameters, saved });
            ((output.y, output.moments), lane)
        };
        let all = (0..self.lanes).into_par_iter().with_max_len(1);
        let (values, lanes): (Vec<_>, Vec<_>) = all.map(run).unzip();
        let (features, moments): (Vec<_>, Vec<_>) = values.into_iter().unzip();
        let aux = match self.running {
            true => Vec::new(),
            false => self.moments().split(&self.moments().join(moments)),
        };
        let saved = lanes.into_iter().collect();
        ForwardOutput { result: self.output().join(features), aux, saved }
    }

    fn vjp(
        &self,
        primal: PrimalSlices<'_, Self>,
        dy: &[f32],
        wanted: &[bool],
        keep: bool,
    ) -> (Vec<Option<Vec<f32>>>, Option<Vec<IntermediateGrads>>) {
        let (gradients, intermediate_grads) = self.gradients(wanted[0], |t, to| {
            let Lane { parameters, saved } = &primal.saved[t];
            let dy = self.output().lane(dy, t);
            cpu::backward(&self.shape, saved, parameters, &dy, (wanted[0], keep), to)
        });
        (gradients, intermediate_grads.into_iter().collect())
    }

    fn jvp(
        &self,
        primal: PrimalSlices<'_, Self>,
        tangents: &[Option<&[f32]>],
    ) -> (Vec<f32>, Vec<LaneTangent>) {
        let run = |t: usize| {
            let lane = &primal.saved[t];
            let images = tangents[0].map(|images| self.input().lane(images, t));
            let parameters = self.parameters(tangents[1..].iter().copied(), t);
            let tangents = InputTangents { images: images.as_deref(), parameters: &parameters };
            let JvpOutput { y, saved } = jvp(&lane.saved, &lane.parameters, tangents);
            (y, LaneTangent { parameters, saved })
        };
        let all = (0..self.lanes).into_par_iter().with_max_len(1);
        let (features, lanes): (Vec<_>, Vec<_>) = all.map(run).unzip();
        (self.output().join(features), lanes)
    }

    fn jvp_of_vjp(
        &self,
        primal: PrimalSlices<'_, Self>,
        tangent: TangentSlices<'_, Self>,
        grad_tangent: Option<&[f32]>,
        wanted: &[bool],
    ) -> Vec<Option<Vec<f32>>> {
        let (gradients, _) = self.gradients(wanted[0], |t, to| {
            let Lane { parameters, saved } = &primal.saved[t];
            let LaneTangent { parameters: tangents, saved: saved_tangent } =
                &tangent.saved_tangent[t];
            let grad_tangent = grad_tangent.map(|all| self.output().lane(all, t));
            let grads = (&tangent.intermediate_grads[t], grad_tangent.as_deref());
            let tangents = (&**tangents, saved_tangent);
            (jvp_of_vjp(saved, parameters, tangents, grads, wanted[0], to), ())
        });
        gradients
    }
}

impl StackCall {
    /// The gradients of all operands, to which every lane writes its own but that of the images, which
    /// it returns with what else it has.
    fn gradients<T: Send>(
        &self,
        images: bool,
        lane: impl Fn(usize, &mut [&mut [f32]]) -> (Option<Vec<f32>>, T) + Send + Sync,
    ) -> (Vec<Option<Vec<f32>>>, Vec<T>) {
        let mut tensors: Vec<_> = self.parts().map(|part| vec![0.0; self.lanes * part]).collect();
        let all = (self.lanes, usize::MAX);
        let found = map_lanes(&mut tensors, all, || (), |(), index, to| lane(index, to));
        let (dx, rest): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let dx = dx.into_iter().collect::<Option<_>>().filter(|_| images);
        let dx = dx.map(|dx| self.input().join(dx));
        ([dx].into_iter().chain(tensors.into_iter().map(Some)).collect(), rest)
    }
}
