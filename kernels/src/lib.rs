//! Fused operations for few-shot learning on [Burn](https://burn.dev) backends.
//!
//! Every operation is a function generic over `B: Backend`. A backend in the registry takes the fused path
//! ([`register_host`] puts another one there); any other runs the plain-Burn reference, which is also the law the
//! fused path is tested against. [`route`] tells which, and [`with_reference`] runs the reference beside it.
//!
//! | operation | what is fused |
//! |---|---|
//! | [`conv_stack`](conv_stack()) | the blocks of [3x3 convolution, batch-norm, ReLU, 2x2 max-pool] of a Conv-4 encoder |
//! | [`conv2d`](conv2d()) | convolutions of 1x1 to 7x7 with stride 1 or 2, and both of their gradients |
//! | [`depthwise`](depthwise()) | on a host: convolutions of each channel by itself with windows of 3 and 5, and both of their gradients |
//! | [`batch_norm`](batch_norm()) | a pass for the moments and one that normalises; in its gradient likewise |
//! | [`max_pool`](max_pool()), [`overlapping_max_pool`] | windows of 2x2, and of 3x3 two pixels apart; no indices are stored |
//! | [`norm_relu`](norm_relu()) | on an accelerator: batch-norm, ReLU and max-pool, of which nothing but the result is written |
//! | [`leaky_relu`](leaky_relu()), [`relu6`] | a pass each way, on a host in the place of what it changes |
//! | [`global_avg_pool`](global_avg_pool()), [`global_avg_pool_lanes`] | the mean over all pixels |
//! | [`linear`](linear()), [`product`] | nothing: a matrix product is fast as it is; in full f32 on every backend |
//! | [`linear_stack`](linear_stack()) | linear layers with ReLU between them, of several tasks side by side |
//! | [`prototypes`](prototypes()) | class means, and their transpose in the gradient |
//! | [`scores`], [`distances`](distances()) | squared Euclidean and cosine; [`mahalanobis`] is made of matrix products |
//! | [`task_loss`](task_loss()) | on an accelerator: cross-entropy or squared error of all tasks, and each derivative, in a launch |
//! | [`proto_loss`](proto_loss()) | scores, softmax and loss in one pass over the queries, with the gradient by its formula |
//! | [`episode_proto_loss`] | the same with the class means, from the embeddings of an episode; three launches on an accelerator |
//! | [`axpy`] | an inner step of gradient descent: `y + alpha x` in one pass; [`axpy_all`] of a list of tensors, and [`fan_out`] of one that is used twice |
//! | [`optim_step`](optim_step()) | one pass over all parameters: SGD with momentum, Adam, AdamW, LAMB |
//! | [`grad_stats`](grad_stats()) | finite check, unscaling and joint norm of all gradients in one pass |
//! | [`rank_update`](rank_update()) | one pass over a weight that loses a share of itself and grows by outer products, as plastic layers do |
//! | [`depthwise_conv2d`], [`fused_conv2d`] | on a host: convolution of each channel, or of all, with batch-norm by running averages, ReLU6 and residual |
//! | [`fused_linear`], [`layer_norm`], [`attention`] | on a host: the layers of a transformer, and under one level of autodiff their gradients |
//! | [`weighted_sums`](weighted_sums()) | products with a weight whose rows are neurons, for layers that change too often to prepare it |
//! | [`gather_images`](gather_images()) | on an accelerator: bytes of chosen images to turned and scaled f32, in one pass |
//! | [`augment_images`](augment_images()) | on an accelerator: the same with random changes of each image, in one launch |
//! | [`inverse_power`](inverse_power()) | one over the power of inputs, which scales a learning rate to them, with the running mean of that power |
//! | [`local_learning`](local_learning::local_learning()) | on an accelerator: all ticks of layers that learn by local rules |
//! | [`task_accuracy`] | on an accelerator: the share of right answers of all tasks in a launch |
//!
//! Shapes that do not fit are a panic, with the shapes in its text.
//!
//! All but the last twelve can be differentiated twice, and stay fused under two levels of autodiff, but
//! for the second derivatives of scores and loss, which are those of plain operations. The last twelve work
//! below autodiff: on a backend that differentiates they are plain operations, through which gradients
//! flow, but for images and accuracies, which have none. The layers of a transformer alone have fused gradients there, where they are
//! differentiated once.
//! On a host, the stack and single layers take f16 and bf16 through f32. A single layer of another type
//! runs as plain operations, as does whatever a fused body does not serve, which is logged once with
//! the reason. A [`Precision`] has convolutions and matrix products computed in a low type, and all else in
//! f32.
//!
//! On an accelerator (features `wgpu` and `cuda`) the bodies are CubeCL kernels, alike under Burn's
//! `fusion`; averages are Burn's own there, and of planes of more than 256 pixels. Products of f32 are full f32,
//! without tensor cores, but for convolutions under [`Precision::Tf32`]. Maps, embeddings, parameters and gradients of f16
//! and bf16 are taken as they are, with sums in f32; in a low precision the maps between blocks are of its
//! type. Tensor cores multiply these where the device has them.
//!
//! Fused bodies on the CPU keep their working memory for the next call, at most 1 GiB;
//! [`release_buffers`] gives it back.
#![recursion_limit = "256"]
// Without a host or without a device, some of what both share has no caller.
#![cfg_attr(
    not(all(feature = "cube", any(feature = "flex", feature = "ndarray", feature = "candle"))),
    allow(dead_code)
)]

mod alloc_counter;
pub mod augment_images;
mod axpy;
mod backends;
pub mod batch_norm;
pub mod channels;
pub mod conv2d;
pub mod conv_stack;
#[cfg(feature = "cube")]
mod cube;
pub mod depthwise;
pub mod distances;
mod environment;
mod fallback;
#[cfg(feature = "mimalloc")]
mod freed_memory;
#[cfg(feature = "fusion")]
mod fusion;
pub mod gather_images;
pub mod global_avg_pool;
pub mod grad_stats;
mod host;
mod inference;
mod inverse_power;
pub mod layers;
pub mod leaky_relu;
pub mod limits;
mod linear;
pub mod linear_stack;
mod list_gradients;
mod lists;
pub mod local_learning;
mod matrix_product;
pub mod max_pool;
pub mod metrics;
#[cfg(test)]
mod noise;
pub mod norm_relu;
pub mod optim_step;
mod parallel_lanes;
pub mod precision;
mod proto_loss;
mod prototypes;
mod rank_update;
mod registry;
mod select;
pub mod task_loss;
pub mod tiling;
mod twice_differentiable;
mod variadic_op;
mod weighted_sums;
mod zero_padded;

pub use alloc_counter::{CountingAllocator, PeakWatch};
pub use augment_images::{AugmentCall, augment_images};
pub use axpy::{axpy, axpy_all, fan_out, scaled_all, seed_cotangents};
#[cfg(feature = "cube")]
pub use backends::register_device;
pub use backends::register_host;
pub use batch_norm::{NormStatistics, batch_norm};
pub use conv_stack::{ConvBlock, Moments, StackOptions, StackOutput, Statistics, conv_stack};
pub use conv2d::conv2d;
pub use depthwise::depthwise;
pub use distances::{Metric, distances, mahalanobis, scores};
pub use environment::{UnknownKernels, with_reference};
pub use fewshot_simd::release_buffers;
#[cfg(feature = "mimalloc")]
pub use freed_memory::keep_freed_memory;
pub use gather_images::{GatherCall, gather_images, largest_bank};
pub use global_avg_pool::{global_avg_pool, global_avg_pool_lanes};
pub use grad_stats::{DeviceGradStats, GradStats, grad_stats, grad_stats_on_device};
pub use host::HostBackend;
pub use inference::attention::attention;
pub use inference::depthwise::depthwise_conv2d;
pub use inference::fused_conv2d::fused_conv2d;
pub use inference::fused_linear::{Activation, LinearEpilogue, fused_linear};
pub use inference::layer_norm::layer_norm;
pub use inference::{FusedConvOptions, WeightCache};
pub use inverse_power::inverse_power;
pub use leaky_relu::{leaky_relu, relu6};
pub use linear::{linear, product};
pub use linear_stack::{LinearLayer, linear_stack};
pub use max_pool::{max_pool, overlapping_max_pool};
pub use metrics::split_at;
pub use norm_relu::norm_relu;
pub use optim_step::{StepOutput, StepRule, StepState, StepTensors, optim_step};
pub use precision::{Acceleration, Precision, PrecisionError};
pub use proto_loss::{EpisodeProtoLoss, ProtoLoss, episode_proto_loss, proto_loss};
pub use prototypes::prototypes;
pub use rank_update::{Coefficient, rank_update};
pub use registry::{Route, check_environment, route};
pub use select::select;
pub use task_loss::{TaskLoss, TaskLossOptions, task_accuracy, task_loss, task_loss_with};
pub use tiling::{summed_all, tiled_all};
pub use weighted_sums::weighted_sums;
pub use zero_padded::zero_padded;
