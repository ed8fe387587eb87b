//! Convolutions on a device against those of plain operations on the host.

use burn::backend::Flex;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Distribution, FloatDType, Tensor, module};
use burn_cubecl::CubeBackend;
use cubecl::wgpu::WgpuRuntime;

use super::*;
use crate::host::{unwrap, wrap};

type Device = CubeBackend<WgpuRuntime, f32, i32, u32>;
type Map = Tensor<Flex, 4>;

fn drawn(shape: [usize; 4]) -> Map {
    Tensor::random(shape, Distribution::Uniform(-1.0, 1.0), &Default::default())
}

fn on_device(map: &Map, dtype: FloatDType) -> CubeTensor<WgpuRuntime> {
    let found = Tensor::<Device, 4>::from_data(map.to_data(), &Default::default());
    unwrap(found.cast(dtype))
}

fn read(found: CubeTensor<WgpuRuntime>) -> Vec<f32> {
    wrap::<Device, 4>(found).cast(FloatDType::F32).into_data().into_vec().expect("floats")
}

/// What Burn's own convolutions make of one term.
fn by_burn(wanted: Role, [first, second]: &[Map; 2], shape: &ConvShape) -> Map {
    let pair = |side| [side; 2];
    let (stride, padding) = (pair(shape.stride), pair(shape.padding));
    let options = ConvOptions::new(stride, padding, [1, 1], shape.lanes);
    let of = |role| {
        Tensor::<burn::backend::Autodiff<Flex>, 4>::zeros(shape.of(role), &Default::default())
    };
    let lift = |map: &Map| Tensor::from_inner(map.clone());
    let (x, weight) = match wanted {
        Role::Output => return module::conv2d(first.clone(), second.clone(), None, options),
        Role::Input => (of(Role::Input).require_grad(), lift(first)),
        Role::Weight => (lift(second), of(Role::Weight).require_grad()),
    };
    let dy = if wanted == Role::Input { second } else { first };
    let y = module::conv2d(x.clone(), weight.clone(), None, options);
    let found = (y * lift(dy)).sum().backward();
    let leaf = if wanted == Role::Input { x } else { weight };
    leaf.grad(&found).expect("a gradient")
}

fn shapes() -> Vec<ConvShape> {
    let of = |n, c, [h, w]: [usize; 2], o, (kernel, stride, padding), lanes| ConvShape {
        n,
        c,
        h,
        w,
        o,
        kernel,
        stride,
        padding,
        lanes,
    };
    vec![
        of(2, 1, [5, 7], 3, (3, 1, 1), 1),
        of(3, 5, [7, 6], 70, (3, 2, 1), 1),
        of(2, 4, [9, 9], 5, (1, 2, 0), 2),
        of(5, 3, [8, 5], 4, (3, 1, 1), 3),
        of(2, 3, [10, 9], 6, (5, 2, 2), 2),
        of(1, 66, [1, 1], 2, (3, 1, 1), 1),
        // A gradient of the weight in several parts.
        of(3, 2, [20, 21], 3, (3, 1, 1), 2),
        // Eight pixels a unit.
        of(17, 1, [64, 62], 2, (3, 1, 1), 1),
    ]
}

#[test]
fn every_derivative_is_that_of_burn() {
    for shape in shapes() {
        for wanted in [Role::Output, Role::Input, Role::Weight] {
            for terms in [1, 2] {
                let term =
                    |_| [wanted.next(), wanted.next().next()].map(|role| drawn(shape.of(role)));
                let terms: Vec<[Map; 2]> = (0..terms).map(term).collect();
                let each = terms.iter().map(|term| by_burn(wanted, term, &shape));
                let expected = each.reduce(|sum, more| sum + more).expect("a term");
                let on = |term: &[Map; 2]| [0, 1].map(|of| on_device(&term[of], FloatDType::F32));
                let given = terms.iter().map(on).collect();
                let found = read(convolution(wanted, given, &shape, DType::F32));
                let expected = expected.into_data().into_vec::<f32>().expect("floats");
                assert_eq!(found.len(), expected.len());
                let most = expected.iter().fold(1.0f32, |most, value| most.max(value.abs()));
                for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let error = (found - expected).abs() / most;
                    assert!(
                        error < 2e-6,
                        "{wanted:?} of {shape:?} at {place}: {found}, not {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_low_type_is_multiplied_in_f32() {
    let shape = shapes()[1];
    let round = |map: Map| map.cast(FloatDType::F16).cast(FloatDType::F32);
    let (x, weight) = (drawn(shape.of(Role::Input)), drawn(shape.of(Role::Weight)));
    let expected = by_burn(Role::Output, &[round(x.clone()), round(weight.clone())], &shape);
    // Weights of f32 are rounded to the type of the images.
    let given = [on_device(&x, FloatDType::F16), on_device(&weight, FloatDType::F32)];
    let found = read(convolution(Role::Output, vec![given], &shape, DType::F32));
    let expected = expected.into_data().into_vec::<f32>().expect("floats");
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-5, "{found}, not {expected}");
    }
}
