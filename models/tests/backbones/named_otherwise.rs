//! Vision transformers under the names of others: Hugging Face's, timm's, and a whole CLIP's.

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
    transpose(&mut tensors, "visual_projection.weight");
    let text = |(name, shape, values): &(String, Vec<usize>, Vec<f32>)| {
        let name = name.replace("vision_model", "text_model");
        (name, shape.clone(), vec![0.0; values.len()])
    };
    let of_text: Tensors =
        tensors.iter().filter(|of| of.0.starts_with("vision_model.encoder")).map(text).collect();
    let beside = ["logit_scale", "text_projection.weight", "vision_model.embeddings.position_ids"];
    let beside = beside.map(|name| (name.to_owned(), vec![2], vec![1.0; 2]));
    [tensors, of_text, beside.to_vec()].concat()
}

/// Rows of the matrix of this name as columns.
fn transpose(tensors: &mut Tensors, matrix: &str) {
    let (_, shape, values) = tensors.iter_mut().find(|(name, ..)| name == matrix).unwrap();
    let [from, to] = shape[..] else { panic!("{shape:?}") };
    *values = (0..from * to).map(|at| values[at % from * to + at / from]).collect();
    *shape = vec![to, from];
}

fn check_named(name: &str, config: VitConfig, tensors: &Tensors) {
    let mut golden = golden();
    let like = golden.alike.remove(name).or_else(|| golden.networks.remove(name));
    let Network { size, features, .. } = &like.unwrap();
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

/// A state dictionary of the module itself, whose attention has other names than its files.
#[test]
fn dinov2_is_read_as_transformers_has_it_in_memory() {
    let names = [
        ("attention.attention.query", "attention.q_proj"),
        ("attention.attention.key", "attention.k_proj"),
        ("attention.attention.value", "attention.v_proj"),
        ("attention.output.dense", "attention.o_proj"),
    ];
    let mut tensors = dinov2_at_hugging_face();
    for (name, ..) in &mut tensors {
        *name = names.iter().fold(name.clone(), |name, (from, to)| name.replace(from, to));
    }
    check_named("dinov2-s14", VitConfig::dinov2_s14(), &tensors);
}

/// As a part of a larger model, beside its classifier.
#[test]
fn dinov2_is_read_under_the_prefix_of_hugging_face() {
    let prefixed = dinov2_at_hugging_face()
        .into_iter()
        .map(|(name, shape, values)| (format!("dinov2.{name}"), shape, values));
    let head = ("classifier.weight".to_owned(), vec![2], vec![1.0; 2]);
    let mask = ("dinov2.embeddings.mask_token".to_owned(), vec![2], vec![1.0; 2]);
    check_named("dinov2-s14", VitConfig::dinov2_s14(), &prefixed.chain([head, mask]).collect());
}

fn with_registers(name: &str, mut tensors: Tensors) -> Tensors {
    let shape = vec![1, 4, 384];
    let values = drawn("register_tokens", &shape);
    tensors.push((name.to_owned(), shape, values));
    tensors
}

#[test]
fn dinov2_with_registers_is_read_under_hugging_faces_names() {
    let tensors = with_registers("embeddings.register_tokens", dinov2_at_hugging_face());
    check_named("dinov2-s14-reg", VitConfig::dinov2_s14_reg(), &tensors);
}

/// timm adds the position of the class token to it, so that there is none in the file.
#[test]
fn dinov2_with_registers_is_read_under_timms_names() {
    let parameters = &golden().networks["dinov2-s14"].parameters;
    let mut tensors = with_registers("reg_token", super::tensors("", parameters));
    let at = |name: &str| tensors.iter().position(|of| of.0 == name).unwrap();
    let [class, positions] = [at("cls_token"), at("pos_embed")];
    let (of_class, of_patches) = tensors[positions].2.split_at(384);
    let (of_class, of_patches) = (of_class.to_vec(), of_patches.to_vec());
    tensors[class].2.iter_mut().zip(of_class).for_each(|(value, add)| *value += add);
    tensors[positions].1[1] -= 1;
    tensors[positions].2 = of_patches;
    check_named("dinov2-s14-reg", VitConfig::dinov2_s14_reg(), &tensors);
}

#[test]
fn clip_is_read_under_hugging_faces_names() {
    check_named("clip-b32", VitConfig::clip_b32(), &clip_at_hugging_face());
    check_named("clip-b32-gelu", VitConfig::clip_b32_gelu(), &clip_at_hugging_face());
}

/// timm's network has the projection as its head.
#[test]
fn clip_is_read_under_timms_names() {
    let name = |own: &str| match own {
        "class_embedding" => "cls_token".to_owned(),
        "positional_embedding" => "pos_embed".to_owned(),
        "proj" => "head.weight".to_owned(),
        _ => own
            .replace("conv1", "patch_embed.proj")
            .replace("transformer.resblocks", "blocks")
            .replace("ln_pre", "norm_pre")
            .replace("ln_post", "norm")
            .replace("ln_", "norm")
            .replace("in_proj_", "qkv.")
            .replace("out_proj", "proj")
            .replace("mlp.c_fc", "mlp.fc1")
            .replace("mlp.c_proj", "mlp.fc2"),
    };
    let mut tensors = at_hugging_face("clip-b32", [""; 3], name);
    transpose(&mut tensors, "head.weight");
    tensors.push(("head.bias".to_owned(), vec![512], vec![0.0; 512]));
    check_named("clip-b32", VitConfig::clip_b32(), &tensors);
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
    assert!(error.to_string().contains(&format!("{part} is missing")), "{error}");
    assert!(matches!(error, WeightsError::Missing { missing: 1, .. }), "{error}");
}
