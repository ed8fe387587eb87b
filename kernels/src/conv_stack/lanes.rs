//! Stacked tasks on the host: one stack for each lane.
//!
//! Lanes share nothing, so each is taken through its own stack, and all of them at once.

use std::borrow::Cow;

use burn::tensor::Shape;
use burn::tensor::ops::FloatTensor;
use fewshot_simd::buffers::{Buffer, CowBuffer};
use rayon::prelude::*;

use super::cpu::{
    self, IntermediateGrads, Parameters, Planned, Saved, SavedTangent, jvp, jvp_of_vjp,
};
use super::{StackCall, StackOptions};
use crate::host::{HostBackend, elements, write_shape};
use crate::parallel_lanes::map_lanes;
use crate::twice_differentiable::{
    ForwardOutput, Gradients, PrimalTensors, TangentTensors, TwiceDifferentiable, operand_tensors,
};

impl StackCall {
    /// Floats of one lane's image, and of its features.
    fn image_floats(&self) -> [usize; 2] {
        [self.shape.input() / self.shape.n, self.shape.output()[1..].iter().product()]
    }

    /// One lane's own images or features, of so many floats each.
    fn lane<'a>(&self, all: &'a [f32], image: usize, t: usize) -> CowBuffer<'a> {
        if self.options.lanes == 1 {
            return CowBuffer::Borrowed(all);
        }
        let mut lane = Buffer::stale(self.shape.n * image);
        let images = all.chunks_exact(self.options.lanes * image);
        for (to, from) in lane.chunks_exact_mut(image).zip(images) {
            to.copy_from_slice(&from[t * image..(t + 1) * image]);
        }
        lane.into()
    }

    /// All lanes' images or features, of so many floats each.
    fn join(&self, mut lanes: Vec<Vec<f32>>, image: usize) -> Vec<f32> {
        if lanes.len() == 1 {
            return lanes.swap_remove(0);
        }
        let mut all = Vec::with_capacity(lanes.iter().map(Vec::len).sum());
        for start in (0..self.shape.n * image).step_by(image) {
            lanes.iter().for_each(|lane| all.extend_from_slice(&lane[start..start + image]));
        }
        all
    }

    /// Lengths of the parts of one lane's parameters, four for each block.
    fn parts(&self) -> impl Iterator<Item = usize> {
        let blocks = self.shape.geometry().into_iter();
        blocks.flat_map(|of| [of.weight(), of.c_out, of.c_out, of.c_out])
    }

    /// Lengths of mean and variance of every block of one lane and one batch.
    fn moment_parts(&self) -> impl Iterator<Item = usize> {
        self.shape.blocks.iter().flat_map(|block| [block.channels_out; 2])
    }

    /// One lane's parameters, given the tensors of all lanes; of those that are not there, `zeros`.
    fn parameters<'a>(
        &self,
        all: impl Iterator<Item = Option<&'a [f32]>>,
        zeros: &'a [f32],
        t: usize,
    ) -> Vec<Parameters<'a>> {
        Parameters::from_parts(self.parts().zip(all).map(|(part, tensor)| match tensor {
            Some(tensor) => &tensor[t * part..(t + 1) * part],
            None => &zeros[..part],
        }))
    }

    /// One lane's running statistics, given those of all lanes.
    fn statistics(&self, running: &[Cow<'_, [f32]>], t: usize) -> Vec<f32> {
        let parts = self.moment_parts().zip(running);
        parts.flat_map(|(part, tensor)| &tensor[t * part..(t + 1) * part]).copied().collect()
    }
}

/// Operands are the images, then weight, bias, gamma and beta of every block. Auxiliary results are mean
/// and variance of every block; there are none for running statistics.
impl<H: HostBackend> TwiceDifferentiable<H> for StackCall {
    type Saved = Vec<Saved>;
    type IntermediateGrads = Vec<IntermediateGrads>;
    type SavedTangent = Vec<SavedTangent>;

    const READS_OPERANDS: bool = false;

    fn forward(
        &self,
        operands: &[FloatTensor<H>],
        keep: bool,
    ) -> ForwardOutput<FloatTensor<H>, Vec<Saved>> {
        let device = H::float_device(&operands[0]);
        let operands: Vec<_> = operands.iter().map(elements::<H>).collect();
        let images = &operands[0];
        let (parameters, running) = operands[1..].split_at(4 * self.shape.blocks.len());
        let [image, features] = self.image_floats();
        let StackOptions { epsilon, lanes, ghost_batches, precision } = self.options;
        let planned = Planned::new(&self.shape, precision);
        let run = |t: usize| {
            let given = self.running.then(|| self.statistics(running, t));
            let images = self.lane(images, image, t);
            let parameters = self.parameters(parameters.iter().map(|of| Some(&**of)), &[], t);
            let how = (given.as_deref(), epsilon as f32);
            let pass = cpu::Pass { keep, lanes, batches: ghost_batches };
            let output = cpu::forward(&planned, &images, &parameters, how, pass);
            ((output.y, output.moments), output.saved)
        };
        let all = (0..lanes).into_par_iter().with_max_len(1);
        let (values, saved): (Vec<_>, Vec<_>) = all.map(run).unzip();
        let (results, moments): (Vec<_>, Vec<_>) = values.into_iter().unzip();
        let mut end = 0;
        let of_all = |channels| {
            let part = ghost_batches * channels;
            end += part;
            let vector = moments.iter().flat_map(|lane| &lane[end - part..end]).copied();
            write_shape::<H>(vector.collect(), [lanes * part].into(), &device)
        };
        let aux = match self.running {
            true => Vec::new(),
            false => self.moment_parts().map(of_all).collect(),
        };
        let result = self.join(results, features);
        let result = write_shape::<H>(result, self.features().into(), &device);
        ForwardOutput { result, aux, saved: saved.into_iter().collect() }
    }

    fn vjp(
        &self,
        PrimalTensors { saved, device, .. }: PrimalTensors<'_, H, Self>,
        along: Option<TangentTensors<'_, H, Self>>,
        grad: Option<&FloatTensor<H>>,
        requires_grad: &[bool],
        keep: bool,
    ) -> Gradients<H, Vec<IntermediateGrads>> {
        let grad = grad.map(elements::<H>);
        let along = along.map(|along| (along.saved_tangent, along.intermediate_grads));
        let (gradients, intermediate) = self.gradients(requires_grad[0], |t, to| {
            let grad = grad.as_deref().map(|all| self.lane(all, self.image_floats()[1], t));
            let Some((tangents, grads)) = along else {
                let grad = grad.expect("the gradient of the features");
                return cpu::backward(&saved[t], &grad, (requires_grad[0], keep), to);
            };
            let grads = (&grads[t], grad.as_deref());
            (jvp_of_vjp(&saved[t], &tangents[t], grads, requires_grad[0], to), None)
        });
        let shape = |place| self.operand_shape(place);
        (
            operand_tensors::<H>(gradients, requires_grad, shape, device),
            intermediate.into_iter().collect(),
        )
    }

    fn jvp(
        &self,
        PrimalTensors { saved, device, .. }: PrimalTensors<'_, H, Self>,
        tangents: &[Option<FloatTensor<H>>],
    ) -> (FloatTensor<H>, Vec<SavedTangent>) {
        let [image, features] = self.image_floats();
        let tangents: Vec<_> =
            tangents.iter().map(|tangent| tangent.as_ref().map(elements::<H>)).collect();
        let zeros = match tangents[1..].iter().any(Option::is_none) {
            true => vec![0.0; self.parts().max().unwrap_or(0)],
            false => Vec::new(),
        };
        let run = |t: usize| {
            let images = tangents[0].as_deref().map(|images| self.lane(images, image, t));
            let parameters = self.parameters(tangents[1..].iter().map(Option::as_deref), &zeros, t);
            jvp(&saved[t], images.as_deref(), &parameters)
        };
        let all = (0..self.options.lanes).into_par_iter().with_max_len(1);
        let (results, lanes): (Vec<_>, Vec<_>) = all.map(run).unzip();
        let tangent = self.join(results, features);
        (write_shape::<H>(tangent, self.features().into(), device), lanes)
    }
}

impl StackCall {
    /// Shape of the operand in this place.
    pub(super) fn operand_shape(&self, place: usize) -> Shape {
        let Some(place) = place.checked_sub(1) else { return self.images().into() };
        let (block, part) = (place / 4, place % 4);
        let of = self.shape.geometry()[block];
        match part {
            0 => [self.options.lanes * of.c_out, of.c_in, 3, 3].into(),
            _ => [self.options.lanes * of.c_out].into(),
        }
    }

    /// The gradients of all operands, to which every lane writes its own but that of the images, which
    /// it returns with what else it has.
    fn gradients<T: Send>(
        &self,
        images: bool,
        lane: impl Fn(usize, &mut [&mut [f32]]) -> (Option<Vec<f32>>, T) + Send + Sync,
    ) -> (Vec<Option<Vec<f32>>>, Vec<T>) {
        let mut tensors: Vec<_> =
            self.parts().map(|part| vec![0.0; self.options.lanes * part]).collect();
        let all = (self.options.lanes, usize::MAX);
        let results = map_lanes(&mut tensors, all, || (), |(), index, to| lane(index, to));
        let (dx, rest): (Vec<_>, Vec<_>) = results.into_iter().unzip();
        let dx = dx.into_iter().collect::<Option<_>>().filter(|_| images);
        let dx = dx.map(|dx| self.join(dx, self.image_floats()[0]));
        ([dx].into_iter().chain(tensors.into_iter().map(Some)).collect(), rest)
    }
}
