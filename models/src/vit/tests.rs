use std::fs;
use std::path::Path;

use burn::backend::Flex;
use serde_json::Value;

use super::*;
use crate::weights::Pretrained;

/// `values` of tests/golden/backbones.py under the name "positions".
fn value(index: u32) -> f32 {
    let key = b"positions"
        .iter()
        .fold(0x811C_9DC5u32, |key, byte| (key ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    let x = index.wrapping_add(key);
    let x = (x ^ (x >> 16)).wrapping_mul(0x7FEB_352D);
    let x = (x ^ (x >> 15)).wrapping_mul(0x846C_A68B);
    (f64::from(x ^ (x >> 16)) / 2f64.powi(31) - 1.0) as f32
}

/// Interpolated positions of the grid of 3 x 7, beside those of PyTorch.
fn check_positions(registers: usize, name: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/backbones.json");
    let golden: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let expected: Vec<f32> = serde_json::from_value(golden["positions"][name].clone()).unwrap();
    let device = Default::default();
    let config = VitConfig::new(VitFamily::DinoV2, 14, 5, 2, 0, 1).with_registers(registers);
    let mut network: Vit<Flex> = config.init(&device);
    let patches: Vec<_> = (0..50).map(value).collect();
    let tensor = |values: Vec<f32>| {
        let tokens = values.len() / 2;
        Tensor::<Flex, 3>::from_data(TensorData::new(values, [1, tokens, 2]), &device)
    };
    // The class token has a position, or none.
    for class in [vec![7.0, 8.0], vec![]] {
        let learned = tensor([&class[..], &patches[..]].concat());
        network.resize("pos_embed", &learned.dims());
        assert_eq!(network.pos_embed.dims(), learned.dims());
        network.pos_embed = Param::from_tensor(learned);
        let [of_class, same] = network.positions([5, 5]);
        same.into_data().assert_eq(&tensor(patches.clone()).into_data(), true);
        let none = vec![0.0, 0.0];
        let expected_class = if class.is_empty() { none } else { class };
        of_class.into_data().assert_eq(&tensor(expected_class).into_data(), true);
        let interpolated: Vec<f32> =
            network.positions([3, 7])[1].clone().into_data().into_vec().unwrap();
        assert_eq!(interpolated.len(), expected.len());
        let off =
            interpolated.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 1e-5, "{name} off by {off}");
    }
}

#[test]
fn positions_are_interpolated_as_pytorch_does_it() {
    check_positions(0, "values");
}

#[test]
fn positions_beside_registers_are_antialiased_as_pytorch_does_it() {
    check_positions(4, "antialiased");
}

#[test]
fn only_square_grids_are_taken_and_only_by_dinov2() {
    let device = Default::default();
    let taken = |family, shape: [usize; 3]| {
        let config = VitConfig::new(family, 14, 5, 2, 0, 1);
        let mut network: Vit<Flex> = config.init(&device);
        network.resize("pos_embed", &shape);
        network.pos_embed.dims() == shape
    };
    assert!(taken(VitFamily::DinoV2, [1, 17, 2]) && taken(VitFamily::DinoV2, [1, 16, 2]));
    assert!(!taken(VitFamily::DinoV2, [1, 18, 2]) && !taken(VitFamily::DinoV2, [1, 17, 4]));
    assert!(!taken(VitFamily::Clip, [1, 17, 2]));
}
