//! Published names of parameters: OpenAI's and Hugging Face's.

use burn::tensor::backend::Backend;

use super::Vit;
use crate::weights::Pretrained;

/// Parts of names that others have, and what they are here. A later one sees what the earlier ones have made.
const NAMES: [(&str, &str); 31] = [
    // OpenAI's CLIP.
    ("conv1", "patch_embed.proj"),
    ("positional_embedding", "pos_embed"),
    ("ln_pre", "norm_pre"),
    ("ln_post", "norm"),
    ("transformer.resblocks", "blocks"),
    ("ln_1", "norm1"),
    ("ln_2", "norm2"),
    ("attn.in_proj_", "attn.qkv."),
    ("mlp.c_fc", "mlp.fc1"),
    ("mlp.c_proj", "mlp.fc2"),
    // Hugging Face's CLIP.
    ("embeddings.patch_embedding.", "patch_embed.proj."),
    ("embeddings.position_embedding.weight", "pos_embed"),
    ("embeddings.class_embedding", "class_embedding"),
    ("self_attn.", "attn."),
    ("attn.q_proj", "attn.qkv"),
    ("pre_layrnorm", "norm_pre"),
    ("post_layernorm", "norm"),
    ("layers.", "blocks."),
    ("layer_norm", "norm"),
    ("visual_projection.weight", "proj"),
    // Both CLIPs.
    ("class_embedding", "cls_token"),
    ("attn.out_proj", "attn.proj"),
    // Hugging Face's DINOv2.
    ("embeddings.patch_embeddings.projection", "patch_embed.proj"),
    ("embeddings.position_embeddings", "pos_embed"),
    ("embeddings.cls_token", "cls_token"),
    ("attention.attention.query", "attn.qkv"),
    ("attention.output.dense", "attn.proj"),
    ("layer_scale1.lambda1", "ls1.gamma"),
    ("layer_scale2.lambda1", "ls2.gamma"),
    ("layernorm", "norm"),
    ("layer.", "blocks."),
];

impl<B: Backend> Pretrained<B> for Vit<B> {
    const PARTS: &'static [&'static [&'static str]] = &[
        &["attention.attention.query", "attention.attention.key", "attention.attention.value"],
        &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    ];

    const TRANSPOSED: &'static [&'static str] = &["visual_projection.weight"];

    fn parameter_name(published: &str) -> String {
        let renamed = |name: String, (from, to): &(&str, &str)| name.replace(from, to);
        NAMES.iter().fold(published.to_owned(), renamed)
    }
}
