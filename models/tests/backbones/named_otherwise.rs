//! Vision transformers under the names of others: Hugging Face's, and a whole CLIP's.

use burn::backend::Flex;
use fewshot_models::{BnStatistics, Encoder, Pretrained, VitConfig, WeightsError};
use tempfile::TempDir;

use super::{Network, Tensors, assert_close, drawn, file_of, golden, images};

/// The golden weights of a network under Hugging Face's names, which `name` makes of a parameter's.
fn at_hugging_face(network: &str, parts: [&str; 3], name: impl Fn(&str) -> String) -> Tensors {
    let golden = golden();
    let mut tensors = Vec::new();
    for (own, shape) in &golden.networks[network].parameters {
        let (name, values) = (name(own), drawn(own, shape));
        if !name.contains("QKV") {
            tensors.push((name, shape.clone(), values));
            continue;
        }
        let shape = [&[shape[0] / 3], &shape[1..]].concat();
        for (part, values) in parts.iter().zip(values.chunks_exact(values.len() / 3)) {
            tensors.push((name.replace("QKV", part), shape.clone(), values.to_vec()));
        }
    }
    tensors
}

fn dinov2_at_hugging_face() -> Tensors {
    at_hugging_face("dinov2-s14", ["query", "key", "value"], |own| {
        let name = match own {
            "cls_token" => "embeddings.cls_token".to_owned(),
            "pos_embed" => "embeddings.position_embeddings".to_owned(),
            _ => own.replace("patch_embed.proj", "embeddings.patch_embeddings.projection"),
        };
        let name = match name.strip_prefix("norm.") {
            Some(rest) => format!("layernorm.{rest}"),
            None => name.replace("blocks.", "encoder.layer."),
        };
        name.replace("attn.qkv", "attention.attention.QKV")
            .replace("attn.proj", "attention.output.dense")
            .replace("ls1.gamma", "layer_scale1.lambda1")
            .replace("ls2.gamma", "layer_scale2.lambda1")
    })
}

/// With a text tower, as the file of the whole model has it.
fn clip_at_hugging_face() -> Tensors {
    let name = |own: &str| {
        let name = match own {
            "class_embedding" => "vision_model.embeddings.class_embedding".to_owned(),
            "positional_embedding" => {
                "vision_model.embeddings.position_embedding.weight".to_owned()
            }
            "proj" => "visual_projection.weight".to_owned(),
            _ => own.replace("conv1.", "vision_model.embeddings.patch_embedding."),
        };
        name.replace("transformer.resblocks", "vision_model.encoder.layers")
            .replace("ln_pre", "vision_model.pre_layrnorm")
            .replace("ln_post", "vision_model.post_layernorm")
            .replace("attn.in_proj_", "self_attn.QKV.")
            .replace("attn.out_proj", "self_attn.out_proj")
            .replace("ln_1", "layer_norm1")
            .replace("ln_2", "layer_norm2")
            .replace("mlp.c_fc", "mlp.fc1")
            .replace("mlp.c_proj", "mlp.fc2")
    };
    let mut tensors = at_hugging_face("clip-b32", ["q_proj", "k_proj", "v_proj"], name);
    for (name, shape, values) in &mut tensors {
        if name == "visual_projection.weight" {
            let [from, to] = shape[..] else { panic!("{shape:?}") };
            *values = (0..from * to).map(|at| values[at % from * to + at / from]).collect();
            *shape = vec![to, from];
        }
    }
    let text = |(name, shape, values): &(String, Vec<usize>, Vec<f32>)| {
        let name = name.replace("vision_model", "text_model");
        (name, shape.clone(), values.iter().map(|x| 2.0 * x).collect())
    };
    let of_text: Tensors =
        tensors.iter().filter(|of| of.0.starts_with("vision_model.encoder")).map(text).collect();
    [tensors, of_text].concat()
}

fn check_named(name: &str, config: VitConfig, tensors: &Tensors) {
    let Network { size, features, .. } = &golden().networks[name];
    let folder = TempDir::new().unwrap();
    let network = config.init::<Flex>(&Default::default());
    let network = network.load_weights(&file_of(&folder, tensors)).unwrap();
    assert_close(name, network.encode(images(*size), BnStatistics::Running), features);
}

#[test]
fn dinov2_is_read_under_hugging_faces_names() {
    let config = VitConfig { grid: 4, ..VitConfig::dinov2_s14() };
    check_named("dinov2-s14", config, &dinov2_at_hugging_face());
}

#[test]
fn clip_is_read_under_hugging_faces_names() {
    check_named("clip-b32", VitConfig::clip_b32(), &clip_at_hugging_face());
}

/// open_clip's files of a whole model have a text tower, whose names are those of the vision tower without `visual.`.
#[test]
fn clip_is_read_beside_its_text_tower() {
    let parameters = &golden().networks["clip-b32"].parameters;
    let vision = parameters
        .iter()
        .map(|(name, shape)| (format!("visual.{name}"), shape.clone(), drawn(name, shape)));
    let text = parameters.iter().filter(|(name, _)| name != "conv1.weight" && name != "proj");
    let text = text.map(|(name, shape)| (name.clone(), vec![2], vec![shape.len() as f32; 2]));
    check_named("clip-b32", VitConfig::clip_b32(), &vision.chain(text).collect());
}

#[test]
fn a_missing_or_wrong_part_is_told_by_its_published_name() {
    let config = VitConfig { grid: 4, ..VitConfig::dinov2_s14() };
    let part = "encoder.layer.3.attention.attention.value.weight";
    let load = |tensors: &Tensors| {
        let folder = TempDir::new().unwrap();
        let network = config.init::<Flex>(&Default::default());
        network.load_weights(&file_of(&folder, tensors)).err().unwrap()
    };
    let mut tensors = dinov2_at_hugging_face();
    let at = tensors.iter().position(|(name, ..)| name == part).unwrap();
    tensors[at].1 = vec![192, 768];
    let error = load(&tensors);
    assert!(matches!(error, WeightsError::Shape { .. }), "{error}");
    assert!(error.to_string().contains(part), "{error}");
    tensors.remove(at);
    let error = load(&tensors);
    assert!(error.to_string().contains(&format!("there is no {part} in it")), "{error}");
    assert!(matches!(error, WeightsError::Missing { missing: 1, .. }), "{error}");
}
