//! Networks under the prefixes and in the dictionaries of others.

use super::*;
use fewshot_models::{ResNet12, WeightsError};

fn config() -> ResNet12Config {
    ResNet12Config::new().with_widths([2, 3, 4, 5])
}

/// Parameters of the small ResNet-12, by PyTorch's names.
fn parameters() -> Vec<(String, Vec<usize>)> {
    let norm = |name: &str| name.contains(".bn") || name.contains("downsample.1");
    let network = config().init::<Flex>(&Default::default());
    let all = network.collect(None, None, false).into_iter().map(|of| {
        let name = of.full_path();
        let published = match norm(&name) {
            true => name.replace("gamma", "weight").replace("beta", "bias"),
            false => name,
        };
        (published, of.shape.to_vec())
    });
    all.collect()
}

fn load(tensors: &Tensors) -> Result<ResNet12<Flex>, WeightsError> {
    let folder = TempDir::new().unwrap();
    config().init(&Default::default()).load_weights(&file_of(&folder, tensors))
}

fn features(network: &ResNet12<Flex>) -> Vec<f32> {
    network.encode(images([32, 32]), BnStatistics::Running).into_data().into_vec().unwrap()
}

fn changed(mut tensors: Tensors) -> Tensors {
    tensors[0].2[0] += 1.0;
    tensors
}

#[test]
fn a_network_is_found_under_any_prefix() {
    let own = features(&load(&tensors("", &parameters())).unwrap());
    for prefix in [
        "_orig_mod.",
        "teacher.backbone.",
        "net.",
        "encoder_q.",
        "model_ema.",
        "module.model.",
        "params.module.encoder.",
        "state_dict.model._orig_mod.",
        "feature.module.",
        "dinov2.",
    ] {
        let network = load(&tensors(prefix, &parameters())).unwrap();
        assert_eq!(features(&network), own, "{prefix}");
    }
}

#[test]
fn what_lies_beside_the_network_is_not_looked_at() {
    let own = features(&load(&tensors("", &parameters())).unwrap());
    let beside = |name: &str| (name.to_owned(), vec![3], vec![1.0; 3]);
    let others = ["optimizer.momentum", "head.0.weight", "net2.layer1.0.conv1.weight", "epoch"];
    let others = others.map(beside).to_vec();
    let network = load(&[tensors("net.", &parameters()), others].concat()).unwrap();
    assert_eq!(features(&network), own);
    // Beside its parameters: a head, and how many batches its norms saw.
    let known = ["net.fc.weight", "net.layer1.0.bn1.num_batches_tracked"].map(beside).to_vec();
    load(&[tensors("net.", &parameters()), known].concat()).unwrap();
}

#[test]
fn of_two_networks_in_a_file_none_is_chosen_in_silence() {
    let [first, second] = ["student.", "teacher."].map(|prefix| tensors(prefix, &parameters()));
    let error = load(&[first.clone(), changed(second.clone())].concat()).unwrap_err();
    let says =
        "has the network 2 times with different weights, under \"student.\" and \"teacher.\"";
    assert!(error.to_string().contains(says), "{error}");
    let own = features(&load(&first).unwrap());
    // Two that are equal are one, and so is one that is whole beside one that is not.
    let network = load(&[first.clone(), second.clone()].concat()).unwrap();
    assert_eq!(features(&network), own);
    let network = load(&[&first[..], &changed(second)[1..]].concat()).unwrap();
    assert_eq!(features(&network), own);
    let mut narrow = tensors("other.", &parameters());
    narrow[0].1 = vec![narrow[0].2.len()];
    assert_eq!(features(&load(&[first, narrow].concat()).unwrap()), own);
}

/// In f16, too, which becomes f32.
#[test]
fn half_precision_is_no_obstacle() {
    let folder = TempDir::new().unwrap();
    let halves: Vec<_> = tensors("backbone.", &parameters())
        .into_iter()
        .map(|(name, shape, values)| {
            let data = TensorData::new(values, shape).convert_dtype(burn::tensor::DType::F16);
            (name, data)
        })
        .collect();
    let views = halves.iter().map(|(name, data)| {
        let shape = data.shape.to_vec();
        (name.clone(), TensorView::new(Dtype::F16, shape, data.as_bytes()).unwrap())
    });
    let path = folder.path().join("half.safetensors");
    safetensors::serialize_to_file(views, None, &path).unwrap();
    let network = config().init::<Flex>(&Default::default()).load_weights(&path).unwrap();
    let own = features(&load(&tensors("", &parameters())).unwrap());
    assert_within(0.01, "halves", &features(&network), &own);
}
