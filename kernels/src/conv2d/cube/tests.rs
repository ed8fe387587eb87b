//! Convolutions on a device against those of plain operations on the host.

use burn::backend::Flex;
use burn::tensor::backend::{Backend, DTypeUsage};
use burn::tensor::ops::ConvOptions;
use burn::tensor::{FloatDType, Tensor, TensorData, module};
use burn_cubecl::CubeBackend;

use super::*;
use crate::cube::runtimes;
use crate::host::{unwrap, wrap};
use crate::noise::Noise;

type Device<R> = CubeBackend<R, f32, i32, u32>;
type Map = Tensor<Flex, 4>;

fn drawn(noise: &mut Noise, shape: [usize; 4]) -> Map {
    let values = noise.values(shape.iter().product());
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

fn on_device<R: CubeRuntime>(map: &Map, dtype: FloatDType) -> CubeTensor<R> {
    let found = Tensor::<Device<R>, 4>::from_data(map.to_data(), &Default::default());
    unwrap(found.cast(dtype))
}

fn read<R: CubeRuntime>(found: CubeTensor<R>) -> Vec<f32> {
    wrap::<Device<R>, 4>(found).cast(FloatDType::F32).into_data().into_vec().expect("floats")
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
        tf32: false,
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
        // Wide tiles, of four pixels a unit.
        of(9, 3, [31, 31], 70, (3, 1, 1), 1),
        of(9, 2, [31, 31], 3, (3, 2, 1), 2),
        // Eight pixels a unit.
        of(17, 1, [64, 62], 2, (3, 1, 1), 1),
    ]
}

/// Checks every derivative of one and of two terms of these shapes, of maps of this type, which every factor
/// is exactly.
fn every_derivative_is_that_of_burn<R: CubeRuntime>(dtype: FloatDType, tf32: bool) {
    // Of f16 and of TF32 10 binary digits.
    let exact = if tf32 { FloatDType::F16 } else { dtype };
    let rounded = |map: Map| map.cast(exact).cast(FloatDType::F32);
    let multiplied = if tf32 { TF32 } else { DType::from(dtype).into() };
    let by_cores = TensorCores::of(&R::client(&Default::default()), multiplied, 1).is_some();
    // Those of CUDA truncate sums.
    let bound = if by_cores { 1e-5 } else { 2e-6 };
    // Told at the end, so that a device gets every kernel whatever is wrong.
    let mut wrong = Vec::new();
    for shape in shapes() {
        let shape = ConvShape { tf32, ..shape };
        for wanted in [Role::Output, Role::Input, Role::Weight] {
            let roles = [wanted.next(), wanted.next().next()];
            // Weights stay f32, and are rounded to the type of the maps.
            let of = roles.map(|role| if role == Role::Weight { FloatDType::F32 } else { dtype });
            for terms in [1, 2] {
                let mut noise = Noise::new(1);
                let mut drawn = |role| rounded(drawn(&mut noise, shape.of(role)));
                let term = |_| roles.map(&mut drawn);
                let terms: Vec<[Map; 2]> = (0..terms).map(term).collect();
                let each = terms.iter().map(|term| by_burn(wanted, term, &shape));
                let expected = each.reduce(|sum, more| sum + more).expect("a term");
                let on =
                    |term: &[Map; 2]| [0, 1].map(|which| on_device::<R>(&term[which], of[which]));
                let given: Vec<_> = terms.iter().map(on).collect();
                let given: Vec<_> = given.iter().map(|term| term.each_ref()).collect();
                let found = read(convolution(wanted, &given, &shape, DType::F32));
                let expected = expected.into_data().into_vec::<f32>().expect("floats");
                assert_eq!(found.len(), expected.len());
                let most = expected.iter().fold(1.0f32, |most, value| most.max(value.abs()));
                let near = |(found, expected): &(f32, f32)| (found - expected).abs() < bound * most;
                let pairs = found.into_iter().zip(expected);
                if let Some((place, (found, expected))) =
                    pairs.enumerate().find(|(_, pair)| !near(pair))
                {
                    wrong.push(format!(
                        "{wanted:?} of {} terms of {shape:?} in {dtype:?} at {place}: {found}, not \
                         {expected}",
                        terms.len()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The same of maps of a low type, if the device computes with it.
fn every_derivative_of_low_maps<R: CubeRuntime>(dtype: FloatDType) {
    let usage = Device::<R>::dtype_usage(&Default::default(), dtype.into());
    match usage.is_superset(DTypeUsage::Storage | DTypeUsage::Arithmetic) {
        true => every_derivative_is_that_of_burn::<R>(dtype, false),
        false => eprintln!("skipped: the device does not compute with {dtype:?}"),
    }
}

mod laws {
    use super::*;

    pub fn every_derivative_in_f32_is_that_of_burn<R: CubeRuntime>() {
        every_derivative_is_that_of_burn::<R>(FloatDType::F32, false);
    }

    pub fn every_derivative_in_tf32_is_that_of_operands_of_as_many_digits<R: CubeRuntime>() {
        every_derivative_is_that_of_burn::<R>(FloatDType::F32, true);
    }

    pub fn every_derivative_of_f16_is_that_of_burn_in_f32<R: CubeRuntime>() {
        every_derivative_of_low_maps::<R>(FloatDType::F16);
    }

    pub fn every_derivative_of_bf16_is_that_of_burn_in_f32<R: CubeRuntime>() {
        every_derivative_of_low_maps::<R>(FloatDType::BF16);
    }

    pub fn weights_are_rounded_to_the_type_of_the_images<R: CubeRuntime>() {
        let shape = shapes()[1];
        let round = |map: Map| map.cast(FloatDType::F16).cast(FloatDType::F32);
        let mut noise = Noise::new(1);
        let [x, weight] = [Role::Input, Role::Weight].map(|role| drawn(&mut noise, shape.of(role)));
        let expected = by_burn(Role::Output, &[round(x.clone()), round(weight.clone())], &shape);
        let given = [on_device::<R>(&x, FloatDType::F16), on_device(&weight, FloatDType::F32)];
        let found = read(convolution(Role::Output, &[given.each_ref()], &shape, DType::F32));
        let expected = expected.into_data().into_vec::<f32>().expect("floats");
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-5, "{found}, not {expected}");
        }
    }

    pub fn tensor_cores_are_taken_where_the_device_has_them<R: CubeRuntime>() {
        let client = R::client(&Default::default());
        let properties = client.properties();
        let hardware = &properties.hardware;
        let sums = StorageType::from(DType::F32);
        for of in [DType::F16.into(), DType::BF16.into(), TF32] {
            let lists = |of| {
                let mut listed = properties.features.matmul.cmma.iter();
                listed.any(|config| config.a_type == of && config.cd_type == sums)
            };
            let is_real = R::name(&client) != "cuda" || of != DType::BF16.into() || lists(TF32);
            let has = lists(of) && is_real && hardware.plane_size_min == hardware.plane_size_max;
            for vectors in [1, 2] {
                assert_eq!(TensorCores::of(&client, of, vectors).is_some(), has, "{of:?}");
            }
            if !has {
                eprintln!("skipped: the device has no tensor cores for {of:?}");
            }
        }
    }
}

runtimes! {
    every_derivative_in_f32_is_that_of_burn
    every_derivative_in_tf32_is_that_of_operands_of_as_many_digits
    every_derivative_of_f16_is_that_of_burn_in_f32
    every_derivative_of_bf16_is_that_of_burn_in_f32
    weights_are_rounded_to_the_type_of_the_images
    tensor_cores_are_taken_where_the_device_has_them
}
