//! Single layers, forward and backward, at sizes of a residual network.

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Distribution, Tensor};
use fewshot::kernels::{self, FusedConvOptions, LinearLayer, NormStatistics, Precision, Route};

use super::case::{Case, Load, Pass, Scale, sides};

const SIZES: [[usize; 4]; 2] = [[100, 64, 28, 28], [60, 64, 14, 14]];

pub(super) fn conv2d<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let windows = [("3x3", 3, 1, 1), ("3x3 stride 2", 3, 2, 1), ("1x1", 1, 1, 0)];
    let case = |(variant, kernel, stride, padding): (&'static str, usize, usize, usize)| {
        let shape = scale.choose(SIZES[1], [2, 4, 6, 6]);
        let [n, c, h, w] = shape;
        let normal = Distribution::Normal(0.0, 0.1);
        let weight = Tensor::<B, 4>::random([c, c, kernel, kernel], normal, device).require_grad();
        let (input, output) = (n * c * h * w, n * c * h.div_ceil(stride) * w.div_ceil(stride));
        // Two operations a product; forward, and for the gradients of the input and the weight, each of which
        // goes through both maps.
        let flops = 3.0 * 2.0 * (output * c * kernel * kernel) as f64;
        let load = Load::products(flops, 3 * (input + output));
        let layer = move |x| kernels::conv2d(x, weight.clone(), None, stride, padding);
        case::<B, 4>("conv2d", shape, variant, load, DType::F32, layer, device)
    };
    windows.into_iter().map(case).collect()
}

pub(super) fn batch_norm<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let shape = scale.choose(SIZES[0], [2, 4, 6, 6]);
    let [gamma, beta] = affine::<B>(shape, device);
    let layer = move |x| {
        let affine = (Some(gamma.clone()), Some(beta.clone()));
        kernels::batch_norm(x, affine.0, affine.1, NormStatistics::Batch, 1e-5).0
    };
    // Forward a pass for the moments and one that normalises, backward likewise.
    in_each_type::<B>("batch_norm", ["batch", "batch f16"], shape, 3.0 + 5.0, layer, device)
}

pub(super) fn norm_relu<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let shape = scale.choose(SIZES[0], [2, 4, 6, 6]);
    let cases = |variants, pool: bool, passes| {
        let [gamma, beta] = affine::<B>(shape, device);
        let layer = move |x| {
            let affine = (Some(gamma.clone()), Some(beta.clone()));
            kernels::norm_relu(x, affine.0, affine.1, NormStatistics::Batch, 1e-5, pool).0
        };
        in_each_type::<B>("norm_relu", variants, shape, passes, layer, device)
    };
    // On a device as `batch_norm`; what a pool leaves is a quarter of a map. On a host the moments,
    // then layer by layer, which the way back begins with again.
    let [pooled, whole] = match kernels::route::<B>() {
        Route::Device(_) => [2.25 + 3.5, 3.0 + 5.0],
        _ => [5.0 + 11.25, 6.0 + 10.0],
    };
    let pool = cases(["2x2", "2x2 f16"], true, pooled);
    pool.into_iter().chain(cases(["no pool", "no pool f16"], false, whole)).collect()
}

/// Gains and shifts of the channels of such a map.
fn affine<B: AutodiffBackend>(shape: [usize; 4], device: &B::Device) -> [Tensor<B, 1>; 2] {
    let [gamma, beta] = [Tensor::ones([shape[1]], device), Tensor::zeros([shape[1]], device)];
    [gamma.require_grad(), beta.require_grad()]
}

pub(super) fn max_pool<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let shape = scale.choose(SIZES[0], [2, 4, 6, 6]);
    let passes = 1.25 + 2.25;
    let adjacent = kernels::max_pool::<B>;
    let overlapping = kernels::overlapping_max_pool::<B>;
    let cases = in_each_type("max_pool", ["2x2", "2x2 f16"], shape, passes, adjacent, device);
    cases
        .into_iter()
        .chain(in_each_type("max_pool", ["3x3", "3x3 f16"], shape, passes, overlapping, device))
        .collect()
}

pub(super) fn global_avg_pool<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let shape = scale.choose(SIZES[0], [2, 4, 6, 6]);
    let load = maps(shape, 2.0, DType::F32);
    let average = kernels::global_avg_pool;
    vec![case::<B, 2>("global_avg_pool", shape, "", load, DType::F32, average, device)]
}

/// The networks of the MAML paper that have linear layers, with tasks and examples as there.
pub(super) fn linear_stack<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let sine: &'static [usize] = &[1, 40, 40, 1];
    let omniglot: &'static [usize] = &[784, 256, 128, 64, 64, 5];
    let sizes = scale.choose(vec![(25, 10, sine), (8, 5, omniglot)], vec![(2, 3, &[4, 5, 2][..])]);
    let case = |(tasks, examples, widths): (usize, usize, &'static [usize])| {
        let make = move |device: &B::Device| {
            let random = |shape: [usize; 2]| {
                Tensor::<B, 2>::random(shape, Distribution::Normal(0.0, 0.1), device).require_grad()
            };
            let layer = |sides: &[usize]| LinearLayer {
                weight: random([tasks * sides[0], sides[1]]),
                bias: Some(Tensor::zeros([tasks * sides[1]], device).require_grad()),
            };
            let layers: Vec<_> = widths.windows(2).map(layer).collect();
            let x = [tasks, examples, widths[0]];
            (Tensor::<B, 3>::random(x, Distribution::Default, device), layers)
        };
        let products: usize = widths.windows(2).map(|sides| sides[0] * sides[1]).sum();
        let flops = (3 * 2 * tasks * examples * products) as f64;
        // Weights, and the outputs of layers.
        let values = tasks * (products + examples * widths.iter().sum::<usize>());
        let load = Load::products(flops, 3 * values);
        let widths = widths.iter().map(usize::to_string).collect::<Vec<_>>().join("-");
        let shape = format!("{tasks} tasks x{examples} {widths}");
        let (names, of) = (["linear_stack", "tasks"], (Pass::ForwardBackward, load));
        Case::new::<B, _>(names, shape, of, device, make, |(x, layers)| {
            let y = kernels::linear_stack(x.clone(), layers, Precision::F32);
            let _gradients = y.sum().backward();
        })
    };
    sizes.into_iter().map(case).collect()
}

/// The classifier of a Conv-4 on miniImageNet: 1600 features of 480 images, to 64 training classes.
pub(super) fn linear<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let [images, features, classes] = scale.choose([480, 1600, 64], [3, 5, 2]);
    let make = move |device: &B::Device| {
        let random = |shape: [usize; 2]| {
            Tensor::<B, 2>::random(shape, Distribution::Normal(0.0, 0.1), device).require_grad()
        };
        let bias = Tensor::<B, 1>::zeros([classes], device).require_grad();
        (random([images, features]), random([features, classes]), bias)
    };
    let values = images * (features + classes) + features * classes;
    let load = Load::products((3 * 2 * images * features * classes) as f64, 3 * values);
    let shape = format!("{images}x{features} {features}x{classes}");
    let (names, of) = (["linear", ""], (Pass::ForwardBackward, load));
    vec![Case::new::<B, _>(names, shape, of, device, make, |(x, weight, bias)| {
        let y = kernels::linear(x.clone(), weight.clone(), Some(bias.clone()));
        let _gradients = y.sum().backward();
    })]
}

/// Windows of EfficientNet-Lite0, whose depthwise convolutions only embed.
pub(super) fn depthwise_conv2d<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let full = vec![
        ("3x3 stride 2", [1, 96, 112, 112], 3, 2),
        ("3x3", [1, 144, 56, 56], 3, 1),
        ("5x5", [1, 672, 14, 14], 5, 1),
    ];
    let cases = scale.choose(full, vec![("3x3", [1, 4, 6, 6], 3, 1)]);
    let case = |size| depthwise_case::<B::InnerBackend>(size, device);
    cases.into_iter().map(case).collect()
}

fn depthwise_case<B: Backend>(
    (variant, shape, window, stride): (&'static str, [usize; 4], usize, usize),
    device: &B::Device,
) -> Case {
    let [n, channels, h, w] = shape;
    let make = move |device: &B::Device| {
        let normal = |shape| Tensor::<B, 4>::random(shape, Distribution::Normal(0.0, 1.0), device);
        let map = [1.0, 0.0].map(|value| Tensor::<B, 1>::full([channels], value, device));
        (normal(shape), normal([channels, 1, window, window]), map)
    };
    let outputs = n * channels * h.div_ceil(stride) * w.div_ceil(stride);
    // A product of a pixel and a weight meets no other: memory bounds it.
    let load = Load::floats(n * channels * h * w + outputs);
    let (names, of) = (["depthwise_conv2d", variant], (Pass::Forward, load));
    Case::new::<B, _>(names, sides(shape), of, device, make, move |(x, filters, map)| {
        let options = FusedConvOptions { stride, padding: [window / 2; 4], bounds: [0.0, 6.0] };
        kernels::depthwise_conv2d(x.clone(), filters.clone(), map.clone(), options);
    })
}

/// The load of so many maps, read or written.
fn maps(shape: [usize; 4], count: f64, of: DType) -> Load {
    Load::Bytes(of.size() as f64 * count * shape.iter().product::<usize>() as f64)
}

/// A layer over maps of f32, and over those of f16 on an accelerator that computes in it: a host takes
/// these through f32.
fn in_each_type<B: AutodiffBackend>(
    operation: &'static str,
    variants: [&'static str; 2],
    shape: [usize; 4],
    passes: f64,
    layer: impl Fn(Tensor<B, 4>) -> Tensor<B, 4> + Clone + 'static,
    device: &B::Device,
) -> Vec<Case> {
    let halves = Precision::MixedF16.check::<B>(device).is_ok();
    let halves = halves && matches!(kernels::route::<B>(), Route::Device(_));
    let types = [DType::F32, DType::F16].into_iter().take(1 + usize::from(halves));
    let of_type = |(variant, of)| {
        case(operation, shape, variant, maps(shape, passes, of), of, layer.clone(), device)
    };
    variants.into_iter().zip(types).map(of_type).collect()
}

fn case<B: AutodiffBackend, const D: usize>(
    operation: &'static str,
    shape: [usize; 4],
    variant: &'static str,
    load: Load,
    of: DType,
    layer: impl Fn(Tensor<B, 4>) -> Tensor<B, D> + 'static,
    device: &B::Device,
) -> Case {
    let make = move |device: &B::Device| {
        Tensor::<B, 4>::random(shape, Distribution::Default, device).cast(of).require_grad()
    };
    let (names, pass) = ([operation, variant], Pass::ForwardBackward);
    Case::new::<B, _>(names, sides(shape), (pass, load), device, make, move |x| {
        let _gradients = layer(x.clone()).sum().backward();
    })
}
