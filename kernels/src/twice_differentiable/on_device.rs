//! The passes on a device against those on a host.

use burn::backend::Flex;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, TensorMetadata};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeRuntime};

use super::{PrimalTensors, TangentTensors, TwiceDifferentiable};
use crate::host::{elements, wrap, write_shape};
use crate::noise::Noise;

pub type Device<R> = CubeBackend<R, f32, i32, u32>;

/// Numbers between these.
pub fn drawn(noise: &mut Noise, shape: Shape, [low, high]: [f32; 2]) -> FloatTensor<Flex> {
    let values = noise.between(low, high, shape.num_elements());
    write_shape::<Flex>(values, shape, &Default::default())
}

pub fn lifted<R: CubeRuntime>(of: &FloatTensor<Flex>) -> CubeTensor<R> {
    let values = elements::<Flex>(of).into_owned();
    write_shape::<Device<R>>(values, of.shape(), &Default::default())
}

fn lifted_all<R: CubeRuntime>(of: &[Option<FloatTensor<Flex>>]) -> Vec<Option<CubeTensor<R>>> {
    of.iter().map(|of| of.as_ref().map(lifted)).collect()
}

/// The arguments of the passes of an operation.
pub struct Passes<S> {
    pub call: S,
    pub operands: Vec<FloatTensor<Flex>>,
    pub tangents: Vec<Option<FloatTensor<Flex>>>,
    pub requires_grad: Vec<bool>,
    pub grad: FloatTensor<Flex>,
    pub grad_tangent: FloatTensor<Flex>,
    /// Largest error of an element, as a share of the largest one.
    pub bound: f32,
}

impl<S> Passes<S> {
    fn assert_close<R: CubeRuntime>(
        &self,
        what: &str,
        device: &CubeTensor<R>,
        expected: &FloatTensor<Flex>,
    ) {
        let device: Vec<f32> =
            wrap::<Device<R>, 1>(device.clone()).into_data().into_vec().expect("floats");
        let expected = elements::<Flex>(expected);
        assert_eq!(device.len(), expected.len(), "{what}");
        let most = expected.iter().fold(1e-2f32, |most, value| most.max(value.abs()));
        for (place, (device, expected)) in device.iter().zip(&*expected).enumerate() {
            let error = (device - expected).abs() / most;
            assert!(error < self.bound, "{what}[{place}] is {device}, not {expected}");
        }
    }

    /// Asserts that both have what is wanted, and nothing else.
    fn assert_wanted_close<R: CubeRuntime>(
        &self,
        what: &str,
        device: &[Option<CubeTensor<R>>],
        expected: &[Option<FloatTensor<Flex>>],
    ) {
        for (place, &requires_grad) in self.requires_grad.iter().enumerate() {
            let (device, expected) = (&device[place], &expected[place]);
            let there = [device.is_some(), expected.is_some()];
            assert_eq!(there, [requires_grad; 2], "{what} {place} is there on device and host");
            if let (Some(device), Some(expected)) = (device, expected) {
                self.assert_close(&format!("{what} {place}"), device, expected);
            }
        }
    }

    /// Asserts that a device finds in all passes what a host does.
    pub fn check<R: CubeRuntime>(&self)
    where
        S: TwiceDifferentiable<Flex> + TwiceDifferentiable<Device<R>>,
    {
        let Self { call, operands, tangents, requires_grad, .. } = self;
        let (flex, there) = (Default::default(), Default::default());
        let device_operands: Vec<_> = operands.iter().map(lifted).collect();
        let device_tangents = lifted_all(tangents);
        let expected = TwiceDifferentiable::<Flex>::forward(call, operands, true);
        let device = TwiceDifferentiable::<Device<R>>::forward(call, &device_operands, true);
        self.assert_close("result", &device.result, &expected.result);
        assert_eq!(device.aux.len(), expected.aux.len());
        for (device, expected) in device.aux.iter().zip(&expected.aux) {
            self.assert_close("auxiliary result", device, expected);
        }

        let (host_saved, saved) = (expected.saved.expect("kept"), device.saved.expect("kept"));
        let host = || PrimalTensors::<Flex, S> { saved: &host_saved, operands, device: &flex };
        let here = || PrimalTensors::<Device<R>, S> {
            saved: &saved,
            operands: &device_operands,
            device: &there,
        };
        let (expected, host_grads) = TwiceDifferentiable::<Flex>::vjp(
            call,
            host(),
            None,
            Some(&self.grad),
            requires_grad,
            true,
        );
        let grad = lifted(&self.grad);
        let (device, grads) = TwiceDifferentiable::<Device<R>>::vjp(
            call,
            here(),
            None,
            Some(&grad),
            requires_grad,
            true,
        );
        self.assert_wanted_close("gradient", &device, &expected);
        let (host_grads, grads) = (host_grads.expect("kept"), grads.expect("kept"));

        let (expected, host_saved_tangent) =
            TwiceDifferentiable::<Flex>::jvp(call, host(), tangents);
        let (device, saved_tangent) =
            TwiceDifferentiable::<Device<R>>::jvp(call, here(), &device_tangents);
        self.assert_close("result tangent", &device, &expected);

        for grad_tangent in [None, Some(&self.grad_tangent)] {
            let along = TangentTensors::<Flex, S> {
                tangents,
                saved_tangent: &host_saved_tangent,
                intermediate_grads: &host_grads,
            };
            let (expected, _) = TwiceDifferentiable::<Flex>::vjp(
                call,
                host(),
                Some(along),
                grad_tangent,
                requires_grad,
                false,
            );
            let along = TangentTensors::<Device<R>, S> {
                tangents: &device_tangents,
                saved_tangent: &saved_tangent,
                intermediate_grads: &grads,
            };
            let (device, _) = TwiceDifferentiable::<Device<R>>::vjp(
                call,
                here(),
                Some(along),
                grad_tangent.map(lifted).as_ref(),
                requires_grad,
                false,
            );
            self.assert_wanted_close("gradient tangent", &device, &expected);
        }
    }
}
