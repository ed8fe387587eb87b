//! Published names of parameters: OpenAI's, Hugging Face's and timm's.

use burn::module::Param;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::Vit;
use crate::weights::Pretrained;

/// Parts of names that others have, each with its name here. A later replacement sees the result of the earlier ones.
const NAMES: [(&str, &str); 37] = [
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
    ("vision_model.", ""),
    ("embeddings.patch_embedding.", "patch_embed.proj."),
    ("embeddings.position_embedding.weight", "pos_embed"),
    ("embeddings.class_embedding", "class_embedding"),
    ("self_attn.", "attn."),
    ("attn.q_proj", "attn.qkv"),
    ("pre_layrnorm", "norm_pre"),
    ("post_layernorm", "norm"),
    ("encoder.layers.", "blocks."),
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
    ("attention.q_proj", "attn.qkv"),
    ("attention.o_proj", "attn.proj"),
    ("layer_scale1.lambda1", "ls1.gamma"),
    ("layer_scale2.lambda1", "ls2.gamma"),
    ("embeddings.register_tokens", "register_tokens"),
    ("layernorm", "norm"),
    ("encoder.layer.", "blocks."),
    // timm.
    ("reg_token", "register_tokens"),
    ("head.weight", "proj"),
];

impl<B: Backend> Pretrained<B> for Vit<B> {
    const PARTS: &'static [&'static [&'static str]] = &[
        &["attention.attention.query", "attention.attention.key", "attention.attention.value"],
        &["attention.q_proj", "attention.k_proj", "attention.v_proj"],
        &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    ];

    const TRANSPOSED: &'static [&'static str] = &["visual_projection.weight", "head.weight"];

    /// Heads; the token of hidden patches, which training alone has; the text tower of a whole CLIP at Hugging Face; numbers of
    /// positions.
    const IGNORED_NAMES: &'static [&'static str] = &[
        "head.",
        "head_dist.",
        "classifier.",
        "mask_token",
        "embeddings.mask_token",
        "text_model.",
        "text_projection.weight",
        "logit_scale",
        "vision_model.embeddings.position_ids",
    ];

    fn parameter_name(published: &str) -> String {
        let renamed = |name: String, (from, to): &(&str, &str)| name.replace(from, to);
        NAMES.iter().fold(published.to_owned(), renamed)
    }
    /// DINOv2 takes positions of any square grid, with one for the class token before them or, as in timm, without.
    fn resize(&mut self, parameter: &str, shape: &[usize]) {
        let (own, device) = (self.pos_embed.dims(), self.pos_embed.device());
        let &[1, tokens, width] = shape else { return };
        let square = tokens > 0 && tokens - tokens.isqrt().pow(2) <= 1;
        if parameter == "pos_embed" && square && self.proj.is_none() && width == own[2] {
            self.pos_embed = Param::from_tensor(Tensor::zeros([1, tokens, width], &device));
        }
    }
}
