mod draw;
mod interpolation;
mod names;
mod onnx;
#[cfg(test)]
mod tests;

use burn::config::Config;
use burn::module::{Initializer, Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use fewshot_kernels::{Activation, LinearEpilogue, attention, fused_linear, product};

use crate::encoder::{Differentiable, Encoder};
use crate::nn::{BnStatistics, LayerNorm, Linear, checked_drop_rate, drawn, drop_path, dropout};
use crate::preprocessing::Preprocessing;
use draw::Draw;
use interpolation::{antialiased, bicubic};

/// A family of vision transformers; the members of a family differ only in their sizes.
#[derive(Config, Copy, Debug, PartialEq, Eq)]
pub enum VitFamily {
    /// DINOv2: exact GELU, a learned scale of every residual, the class token as it is.
    DinoV2,
    /// OpenAI's CLIP, its vision tower: GELU as `x sigmoid(1.702 x)`, a norm before the first block, the class token projected.
    Clip,
    /// CLIP with exact GELU, as most of OpenCLIP's networks are: all else as [`Clip`](Self::Clip), names and shapes of
    /// parameters, too.
    ClipGelu,
}

/// Configuration of a [`Vit`].
#[derive(Config, Debug, PartialEq)]
pub struct VitConfig {
    /// Family of the transformer.
    pub family: VitFamily,
    /// Side of a patch.
    pub patch: usize,
    /// Patches along a side of the image that positions are learned for.
    pub grid: usize,
    /// Length of a token.
    pub width: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Attention heads of a block.
    pub heads: usize,
    /// Length of CLIP's features, onto which the class token is projected.
    #[config(default = 512)]
    pub projection: usize,
    /// Register tokens, behind the class token.
    #[config(default = 0)]
    pub registers: usize,
    /// Share of values that [`dropout`] sets to zero in training, after positions are added and after each linear layer of a
    /// block but the first of attention. 0.1 in the first paper where pictures are few, 0 for DINOv2 and CLIP.
    #[config(default = 0.0)]
    pub drop_rate: f64,
    /// Share of images for which training skips a residual branch of the last block, by [`drop_path`]; that of the first block
    /// is 0, and between them it grows evenly. Often 0.1 in fine-tuning.
    #[config(default = 0.0)]
    pub drop_path: f64,
}

/// The vision transformer: patches and a class token through blocks of attention and MLP, of which the class token is the
/// feature vector.
///
/// # Shapes
/// - images `[n, 3, h, w]`, sides multiples of the patch, to features `[n, width]`, of CLIP `[n, projection]`
///
/// # Conventions
/// Names of parameters are DINOv2's; [`load_weights`](crate::Pretrained::load_weights) knows CLIP's, and those of both at Hugging
/// Face and in timm. For images of another size than that of training, positions are interpolated bicubically, as DINOv2 does it:
/// with registers by antialiased weights, without them by a scale that is off by a tenth of a patch. Weights of DINOv2 may have
/// positions of any square grid. Registers have no positions.
///
/// Parameters are drawn as in the code of their authors. DINOv2: weights of linear layers and positions normal with a deviation of
/// 0.02, which its truncation at two leaves as they are, the class token and registers of 1e-6, biases zero. CLIP: class token,
/// positions and projection normal with a deviation of `width^-0.5`, queries, keys and values uniform as Glorot has them with
/// biases zero. All else, patches among it, is PyTorch's default.
///
/// # Source
/// Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021; Oquab et al., "DINOv2", TMLR 2024; Darcet et al., "Vision
/// Transformers Need Registers", ICLR 2024; Radford et al., "Learning Transferable Visual Models From Natural Language
/// Supervision", ICML 2021.
#[derive(Module, Debug)]
pub struct Vit<B: Backend> {
    cls_token: Param<Tensor<B, 3>>,
    pos_embed: Param<Tensor<B, 3>>,
    register_tokens: Option<Param<Tensor<B, 3>>>,
    patch_embed: PatchEmbed<B>,
    norm_pre: Option<LayerNorm<B>>,
    blocks: Vec<Block<B>>,
    norm: LayerNorm<B>,
    proj: Option<Param<Tensor<B, 2>>>,
    #[module(skip)]
    drop: DropRates,
}

/// Shares that training drops: of values, and of residual branches.
#[derive(Clone, Copy, Debug, PartialEq)]
struct DropRates {
    value: f64,
    path: f64,
}

impl DropRates {
    const NONE: Self = Self { value: 0.0, path: 0.0 };

    /// Shares of the block at `index` of `depth`: skipped branches grow in number from none.
    fn for_block(self, index: usize, depth: usize) -> Self {
        Self { path: self.path * index as f64 / depth.saturating_sub(1).max(1) as f64, ..self }
    }
}

#[derive(Module, Debug)]
struct PatchEmbed<B: Backend> {
    proj: Conv2d<B>,
}

#[derive(Module, Debug)]
struct Block<B: Backend> {
    norm1: LayerNorm<B>,
    attn: Attention<B>,
    ls1: Option<LayerScale<B>>,
    norm2: LayerNorm<B>,
    mlp: MlpBlock<B>,
    ls2: Option<LayerScale<B>>,
}

#[derive(Module, Debug)]
struct Attention<B: Backend> {
    qkv: Linear<B>,
    proj: Linear<B>,
    heads: usize,
}

#[derive(Module, Debug)]
struct MlpBlock<B: Backend> {
    fc1: Linear<B>,
    fc2: Linear<B>,
    quick: bool,
}

#[derive(Module, Debug)]
struct LayerScale<B: Backend> {
    gamma: Param<Tensor<B, 1>>,
}

impl VitConfig {
    /// DINOv2's ViT-S/14: 22.1 million parameters, 384 features.
    pub fn dinov2_s14() -> Self {
        Self::new(VitFamily::DinoV2, 14, 37, 384, 12, 6)
    }

    /// DINOv2's ViT-B/14: 86.6 million parameters, 768 features.
    pub fn dinov2_b14() -> Self {
        Self::new(VitFamily::DinoV2, 14, 37, 768, 12, 12)
    }

    /// DINOv2's ViT-S/14 with four registers.
    pub fn dinov2_s14_reg() -> Self {
        Self { registers: 4, ..Self::dinov2_s14() }
    }

    /// DINOv2's ViT-B/14 with four registers.
    pub fn dinov2_b14_reg() -> Self {
        Self { registers: 4, ..Self::dinov2_b14() }
    }

    /// OpenAI's CLIP ViT-B/32: 87.8 million parameters, 512 features.
    pub fn clip_b32() -> Self {
        Self::new(VitFamily::Clip, 32, 7, 768, 12, 12)
    }

    /// OpenCLIP's ViT-B/32 with exact GELU.
    pub fn clip_b32_gelu() -> Self {
        Self { family: VitFamily::ClipGelu, ..Self::clip_b32() }
    }

    /// Length of the feature vectors.
    pub fn features(&self) -> usize {
        match self.family {
            VitFamily::DinoV2 => self.width,
            VitFamily::Clip | VitFamily::ClipGelu => self.projection,
        }
    }

    /// The steps from a picture to an image for the family's weights.
    pub fn preprocessing(&self) -> Preprocessing {
        match self.family {
            VitFamily::DinoV2 => Preprocessing::dinov2(),
            VitFamily::Clip | VitFamily::ClipGelu => Preprocessing::clip(),
        }
    }

    /// Draws the parameters.
    ///
    /// # Panics
    /// When heads do not share the width evenly, and for a share to drop that is not from 0 to below 1.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Vit<B> {
        let Self { family, patch, grid, width, depth, heads, projection, registers, .. } = *self;
        assert!(heads > 0 && width.is_multiple_of(heads), "{heads} heads of {width} in all");
        let clip = family != VitFamily::DinoV2;
        let draw = Draw::new(family, width);
        let epsilon = if clip { 1e-5 } else { 1e-6 };
        let norm = || LayerNorm::new(width, epsilon, device);
        let linear = |from, to| draw.linear(from, to, device);
        let scale = || {
            let gamma = Initializer::Constant { value: 1e-5 }.init([width], device);
            (!clip).then_some(LayerScale { gamma })
        };
        let block = |_| Block {
            norm1: norm(),
            attn: Attention {
                qkv: draw.qkv(width, device),
                proj: draw.mixed(width, device),
                heads,
            },
            ls1: scale(),
            norm2: norm(),
            mlp: MlpBlock {
                fc1: linear(width, 4 * width),
                fc2: linear(4 * width, width),
                quick: family == VitFamily::Clip,
            },
            ls2: scale(),
        };
        let proj = Conv2dConfig::new([3, width], [patch, patch])
            .with_stride([patch, patch])
            .with_bias(!clip)
            .init(device);
        drawn(Vit {
            cls_token: draw.token.init([1, 1, width], device),
            pos_embed: draw.positions.init([1, grid * grid + 1, width], device),
            register_tokens: (registers > 0)
                .then(|| draw.token.init([1, registers, width], device)),
            patch_embed: PatchEmbed { proj },
            norm_pre: clip.then(norm),
            blocks: (0..depth).map(block).collect(),
            norm: norm(),
            proj: clip.then(|| draw.positions.init([width, projection], device)),
            drop: DropRates {
                value: checked_drop_rate(self.drop_rate),
                path: checked_drop_rate(self.drop_path),
            },
        })
    }
}

impl<B: Backend> Block<B> {
    /// Tokens of so many images, row after row.
    fn forward(&self, x: Tensor<B, 2>, n: usize, drop: DropRates) -> Tensor<B, 2> {
        let ([rows, width], attn, mlp) = (x.dims(), &self.attn, &self.mlp);
        let qkv = linear(&attn.qkv, self.norm1.forward(x.clone()), Activation::Identity);
        let mixed = attention(qkv.reshape([n, rows / n.max(1), 3 * width]), attn.heads);
        let x = residual(&attn.proj, mixed.reshape([rows, width]), &self.ls1, x, (n, drop));
        let gelu = if mlp.quick { Activation::QuickGelu } else { Activation::Gelu };
        let hidden = linear(&mlp.fc1, self.norm2.forward(x.clone()), gelu);
        residual(&mlp.fc2, dropout(hidden, drop.value), &self.ls2, x, (n, drop))
    }
}

fn linear<B: Backend>(layer: &Linear<B>, x: Tensor<B, 2>, activation: Activation) -> Tensor<B, 2> {
    fused_linear(x, layer.weight.val(), bias(layer), LinearEpilogue::Activation(activation))
}

/// The layer's result times the learned scale, if there is one, plus `add`; training drops parts of the result, of `n` images.
fn residual<B: Backend>(
    layer: &Linear<B>,
    x: Tensor<B, 2>,
    scale: &Option<LayerScale<B>>,
    add: Tensor<B, 2>,
    (n, drop): (usize, DropRates),
) -> Tensor<B, 2> {
    let scale = scale.as_ref().map(|scale| scale.gamma.val());
    if drop != DropRates::NONE {
        let branch = dropout(linear(layer, x, Activation::Identity), drop.value);
        let branch = match scale {
            Some(scale) => branch * scale.unsqueeze(),
            None => branch,
        };
        let shape @ [rows, width] = branch.dims();
        let branch = drop_path(branch.reshape([n, rows / n.max(1), width]), drop.path);
        return branch.reshape(shape) + add;
    }
    fused_linear(x, layer.weight.val(), bias(layer), LinearEpilogue::Residual { scale, add })
}

fn bias<B: Backend>(layer: &Linear<B>) -> Tensor<B, 1> {
    layer.bias.as_ref().expect("drawn with a bias").val()
}

impl<B: Backend> Vit<B> {
    /// Tokens of every patch, the class token first and registers behind it: `[n, 3, h, w]` to
    /// `[n, 1 + registers + patches, width]`, after the last norm.
    ///
    /// # Panics
    /// Where sides are not multiples of the patch.
    pub fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 3> {
        let blocks = 0..self.blocks.len();
        let x = self.embed(images, DropRates::NONE);
        let x = blocks.fold(x, |x, index| self.forward_block(index, x, DropRates::NONE));
        self.normalized(x)
    }

    /// The tokens that the first block gets, of which training drops parts.
    fn embed(&self, images: Tensor<B, 4>, drop: DropRates) -> Tensor<B, 3> {
        let [n, _, h, w] = images.dims();
        let patch = self.patch_embed.proj.kernel_size[0];
        let whole = |side: usize| side > 0 && side.is_multiple_of(patch);
        assert!(whole(h) && whole(w), "images of {h}x{w} are not made of patches of {patch}");
        let maps = self.patch_embed.proj.forward(images);
        let tokens = maps.flatten::<3>(2, 3).swap_dims(1, 2);
        let [class, patches] = self.positions([h / patch, w / patch]);
        let of_every_image = |tokens: Tensor<B, 3>| tokens.expand([n as i64, -1, -1]);
        let class = of_every_image(self.cls_token.val() + class);
        let registers = self.register_tokens.as_ref().map(|tokens| of_every_image(tokens.val()));
        let parts = [Some(class), registers, Some(tokens + patches)];
        let x = Tensor::cat(parts.into_iter().flatten().collect(), 1);
        let shape @ [_, tokens, width] = x.dims();
        let mut x = x.reshape([n * tokens, width]);
        if let Some(norm) = &self.norm_pre {
            x = norm.forward(x);
        }
        dropout(x, drop.value).reshape(shape)
    }

    fn forward_block(&self, index: usize, x: Tensor<B, 3>, drop: DropRates) -> Tensor<B, 3> {
        let (shape @ [n, tokens, width], drop) =
            (x.dims(), drop.for_block(index, self.blocks.len()));
        self.blocks[index].forward(x.reshape([n * tokens, width]), n, drop).reshape(shape)
    }

    /// Tokens after the last norm.
    fn normalized(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let shape @ [n, tokens, width] = x.dims();
        self.norm.forward(x.reshape([n * tokens, width])).reshape(shape)
    }

    /// The features of the tokens that the last block leaves.
    fn features(&self, x: Tensor<B, 3>) -> Tensor<B, 2> {
        let [n, ..] = x.dims();
        let class = self.normalized(x).narrow(1, 0, 1).reshape([n as i64, -1]);
        match &self.proj {
            Some(proj) => product(class, proj.val()),
            None => class,
        }
    }

    fn drop_rates(&self, statistics: BnStatistics) -> DropRates {
        match statistics {
            BnStatistics::Track => self.drop,
            BnStatistics::Batch | BnStatistics::Running => DropRates::NONE,
        }
    }

    /// Positions of the class token, `[1, 1, width]`, and of a grid of so many rows and columns, `[1, rows * columns, width]`.
    fn positions(&self, [rows, columns]: [usize; 2]) -> [Tensor<B, 3>; 2] {
        let learned = self.pos_embed.val();
        let ([_, tokens, width], device) = (learned.dims(), learned.device());
        let grid = tokens.isqrt();
        let patches = learned.clone().narrow(1, tokens - grid * grid, grid * grid);
        let class = match tokens - grid * grid {
            0 => Tensor::zeros([1, 1, width], &device),
            _ => learned.narrow(1, 0, 1),
        };
        if [rows, columns] == [grid; 2] {
            return [class, patches];
        }
        let weights = if self.register_tokens.is_some() { antialiased } else { bicubic };
        let matrix = |side| {
            let data = TensorData::new(weights(grid, side), [side, grid]);
            Tensor::<B, 2>::from_data(data, &device)
        };
        let tall = product(matrix(rows), patches.reshape([grid, grid * width]));
        let across = tall.reshape([rows, grid, width]).swap_dims(0, 1);
        let wide = product(matrix(columns), across.reshape([grid, rows * width]));
        let wide = wide.reshape([columns, rows, width]).swap_dims(0, 1);
        [class, wide.reshape([1, rows * columns, width])]
    }
}

impl<B: Backend> Encoder<B> for Vit<B> {
    fn encode(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 2> {
        let (blocks, drop) = (0..self.blocks.len(), self.drop_rates(statistics));
        let x = self.embed(images, drop);
        self.features(blocks.fold(x, |x, index| self.forward_block(index, x, drop)))
    }

    fn segments(&self) -> usize {
        self.blocks.len().max(1)
    }

    fn forward_segment(
        &self,
        index: usize,
        x: Tensor<B, 4>,
        statistics: BnStatistics,
    ) -> Tensor<B, 4> {
        let (segments, drop) = (Encoder::segments(self), self.drop_rates(statistics));
        assert!(index < segments, "there is no segment {index}, but {segments} from 0 on");
        let x = if index == 0 { self.embed(x, drop) } else { x.squeeze_dim(3) };
        let x = if index < self.blocks.len() { self.forward_block(index, x, drop) } else { x };
        if index + 1 < segments {
            return x.unsqueeze_dim(3);
        }
        self.features(x).unsqueeze_dims(&[-1, -1])
    }

    fn draws(&self) -> bool {
        self.drop != DropRates::NONE
    }

    fn differentiable(&self) -> Differentiable {
        Differentiable::Twice
    }

    fn architecture(&self) -> String {
        let quick = self.blocks.first().is_some_and(|block| block.mlp.quick);
        let family = match (&self.proj, quick) {
            (None, _) => "dinov2",
            (Some(_), true) => "clip",
            (Some(_), false) => "clip-gelu",
        };
        let (width, patch) = (self.norm.length(), self.patch_embed.proj.kernel_size[0]);
        let (blocks, positions) = (self.blocks.len(), self.pos_embed.dims()[1]);
        let registers = self.register_tokens.as_ref().map_or(0, |tokens| tokens.dims()[1]);
        let registers = match registers {
            0 => String::new(),
            _ => format!(", {registers} registers"),
        };
        format!(
            "{family}-vit/{patch}({blocks} blocks of {width}, {positions} positions{registers})"
        )
    }
}
