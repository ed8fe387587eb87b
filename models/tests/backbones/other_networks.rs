//! Files of other networks, some of which have all of a network's parameters.

use super::*;
use fewshot_models::WeightsError;

type Parameters = Vec<(String, Vec<usize>)>;

fn parameters(network: &str) -> Parameters {
    golden().networks.remove(network).unwrap().parameters
}

/// The error of a file with these tensors, which are zeros.
fn refused<E: Pretrained<Flex>>(network: E, parameters: &Parameters) -> WeightsError {
    let folder = TempDir::new().unwrap();
    let tensors: Tensors = parameters
        .iter()
        .map(|(name, shape)| (name.clone(), shape.clone(), vec![0.0; shape.iter().product()]))
        .collect();
    network.load_weights(&file_of(&folder, &tensors)).err().unwrap()
}

fn resnet(config: &ResNetConfig, parameters: &Parameters) -> WeightsError {
    refused(config.init(&Default::default()), parameters)
}

/// More parameters beside those that a network has: those of each block, which are named in it.
fn and_in_blocks(mut parameters: Parameters, block: &str, more: &[&str]) -> Parameters {
    let ends = |name: &str| name.strip_suffix(block).map(str::to_owned);
    let blocks: Vec<_> = parameters.iter().filter_map(|(name, _)| ends(name)).collect();
    let names = blocks.iter().flat_map(|of| more.iter().map(move |name| format!("{of}{name}")));
    parameters.extend(names.map(|name| (name, vec![4])));
    parameters
}

fn assert_unknown(error: WeightsError, count: usize, listed: &[&str]) {
    let text = error.to_string();
    let WeightsError::Unknown { names, unknown, .. } = error else { panic!("{text}") };
    assert_eq!((unknown, names.len()), (count, count.min(5)), "{text}");
    assert!(listed.iter().all(|name| text.contains(name)), "{text}");
    assert!(text.contains(&format!("{count} of its tensors are not in this one: ")), "{text}");
    assert_eq!(text.ends_with(", …"), count > 5, "{text}");
}

#[test]
fn squeeze_and_excitation_is_no_plain_resnet() {
    let more = ["se.fc1.weight", "se.fc1.bias", "se.fc2.weight", "se.fc2.bias"];
    let se = and_in_blocks(parameters("resnet50"), "bn3.weight", &more);
    let error = resnet(&ResNetConfig::resnet50(), &se);
    assert_unknown(error, 16 * 4, &["layer1.0.se.fc1.bias", "layer1.0.se.fc2.weight"]);
}

#[test]
fn an_anti_aliased_resnet_is_no_plain_one() {
    let mut blurred = parameters("resnet50");
    blurred.push(("maxpool.1.filt".to_owned(), vec![64, 1, 4, 4]));
    assert_unknown(resnet(&ResNetConfig::resnet50(), &blurred), 1, &["maxpool.1.filt"]);
}

#[test]
fn efficientnet_b0_is_no_lite0() {
    let more = ["_se_reduce.weight", "_se_reduce.bias", "_se_expand.weight", "_se_expand.bias"];
    let b0 = and_in_blocks(parameters("efficientnet-lite0"), "_project_conv.weight", &more);
    let error = refused(EfficientNetLiteConfig::new().init(&Default::default()), &b0);
    assert_unknown(error, 16 * 4, &["_blocks.0._se_reduce.bias"]);
}

#[test]
fn registers_and_gates_are_no_plain_dinov2() {
    let dinov2 = || VitConfig::dinov2_s14().init(&Default::default());
    let mut registers = parameters("dinov2-s14");
    registers.push(("register_tokens".to_owned(), vec![1, 4, 384]));
    assert_unknown(refused(dinov2(), &registers), 1, &["register_tokens"]);
    let gates = and_in_blocks(parameters("dinov2-s14"), "mlp.fc2.weight", &["mlp.gate.weight"]);
    assert_unknown(refused(dinov2(), &gates), 12, &["blocks.0.mlp.gate.weight"]);
    // The other way round the registers are missing, and eight of them are not four.
    let with = || VitConfig::dinov2_s14_reg().init(&Default::default());
    let error = refused(with(), &parameters("dinov2-s14")).to_string();
    assert!(error.contains("register_tokens is missing; 1 of the network's"), "{error}");
    registers.last_mut().unwrap().1[1] = 8;
    let error = refused(with(), &registers);
    assert!(matches!(error, WeightsError::Shape { .. }), "{error}");
    // 18 is one more than no square, and a deeper network has more blocks.
    let mut positions = parameters("dinov2-s14");
    positions.iter_mut().find(|(name, _)| name == "pos_embed").unwrap().1[1] = 19;
    let error = refused(dinov2(), &positions).to_string();
    assert!(error.contains("pos_embed has the shape [1, 19, 384]"), "{error}");
    let deeper = parameters("dinov2-s14").into_iter().flat_map(|(name, shape)| {
        let twin = name
            .starts_with("blocks.")
            .then(|| (name.replace("blocks.", "blocks.1"), shape.clone()));
        [Some((name, shape)), twin].into_iter().flatten()
    });
    let mut deeper: Parameters = deeper.collect();
    deeper.sort();
    deeper.dedup();
    assert!(matches!(refused(dinov2(), &deeper), WeightsError::Unknown { .. }));
}

#[test]
fn heads_of_each_network_are_passed_over_and_those_of_others_refused() {
    for (name, head, config) in [
        ("resnet18", "fc.weight", ResNetConfig::resnet18()),
        ("resnet34", "fc.bias", ResNetConfig::resnet34()),
    ] {
        let folder = TempDir::new().unwrap();
        let mut all = parameters(name);
        all.push((head.to_owned(), vec![10]));
        all.push(("layer1.0.bn2.num_batches_tracked".to_owned(), vec![1]));
        let network = config.init::<Flex>(&Default::default());
        network.load_weights(&file(&folder, "", &all)).unwrap();
        all.push(("layer1.0.bn9.num_batches_tracked".to_owned(), vec![1]));
        all.push(("mask_token".to_owned(), vec![1]));
        let names = ["layer1.0.bn9.num_batches_tracked", "mask_token"];
        assert_unknown(resnet(&config, &all), 2, &names);
    }
}

#[test]
fn a_missing_parameter_is_shown_beside_the_nearest_name_of_the_file() {
    let mut renamed = parameters("resnet18");
    for (name, _) in &mut renamed {
        if let Some(block) = name.strip_suffix(".conv1.weight") {
            *name = format!("{block}.conv1.0.weight");
        }
    }
    let prefixed: Parameters =
        renamed.into_iter().map(|(name, shape)| (format!("net.{name}"), shape)).collect();
    let error = resnet(&ResNetConfig::resnet18(), &prefixed).to_string();
    let says = "net.layer1.0.conv1.weight is missing (the nearest name in the file is \
                net.layer1.0.conv1.0.weight); 8 of the network's 100 tensors are";
    assert!(error.contains(says), "{error}");

    let error = resnet(&ResNetConfig::resnet34(), &parameters("resnet18"));
    assert!(error.to_string().contains("layer1.2.bn1.bias is missing; "), "{error}");
    let WeightsError::Missing { missing, .. } = error else { panic!("{error}") };
    assert_eq!(missing, parameters("resnet34").len() - parameters("resnet18").len());
    let error = resnet(&ResNetConfig::resnet50(), &parameters("resnet18"));
    assert!(matches!(error, WeightsError::Missing { .. }), "{error}");

    // In OpenAI's spelling, which is not the network's own.
    let mut clip = parameters("clip-b32");
    clip.retain(|(name, _)| name != "transformer.resblocks.7.ln_2.bias");
    let error = refused(VitConfig::clip_b32().init(&Default::default()), &clip).to_string();
    assert!(error.contains("transformer.resblocks.7.ln_2.bias is missing; 1 of"), "{error}");
}

/// Its two networks of this name differ in padding, which no parameter tells.
#[test]
fn timms_efficientnet_lite_is_refused() {
    let stem = [("conv_stem.weight", vec![32, 3, 3, 3]), ("bn1.weight", vec![32])];
    let block =
        [("blocks.0.0.conv_dw.weight", vec![32, 1, 3, 3]), ("blocks.0.0.bn1.weight", vec![32])];
    let all = stem.into_iter().chain(block).map(|(name, shape)| (name.to_owned(), shape));
    let error = refused(EfficientNetLiteConfig::new().init(&Default::default()), &all.collect());
    assert!(error.to_string().contains("_blocks.0._bn1.bias is missing"), "{error}");
    assert!(matches!(error, WeightsError::Missing { .. }), "{error}");
}

#[test]
fn other_shapes_and_no_weights_are_refused() {
    let narrow = ResNet12Config::new().with_widths([64, 160, 320, 512]);
    let error = refused(narrow.init(&Default::default()), &parameters("resnet12"));
    assert!(error.to_string().contains("layer4.0."), "{error}");
    assert!(matches!(error, WeightsError::Shape { .. }), "{error}");
    let folder = TempDir::new().unwrap();
    let broken = folder.path().join("broken.safetensors");
    fs::write(&broken, b"no weights at all").unwrap();
    for file in [broken, folder.path().join("absent.pth")] {
        let network = ResNetConfig::resnet18().init::<Flex>(&Default::default());
        let error = network.load_weights(&file).err().unwrap();
        assert!(matches!(error, WeightsError::Unreadable { .. }), "{error}");
    }
}
