//! All operations, and the backends that fuse them: the only file that names both.
//!
//! An operation is added by one line here: in the list of the backends and levels of autodiff that have a
//! body for it. A stack of backends is listed only if the bodies serve it at its order of differentiation;
//! every other one takes the reference, which is right at any order.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
#[cfg(feature = "cube")]
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use crate::axpy::Axpy;
use crate::conv_stack::StackCall;
use crate::depthwise::Depthwise;
use crate::grad_stats::GradStatsCall;
use crate::host::HostBackend;
use crate::inference::attention::Attention;
use crate::inference::depthwise::DepthwiseConv;
use crate::inference::fused_conv2d::FusedConv;
use crate::inference::fused_linear::FusedLinear;
use crate::inference::layer_norm::LayerNorm;
use crate::inverse_power::InversePower;
use crate::layers::{FusedLayers, LayerTable};
use crate::linear_stack::LinearCall;
use crate::metrics::{FusedMetrics, MetricTable};
use crate::optim_step::StepCall;
use crate::rank_update::WeightUpdate;
use crate::registry::{Place, Registry, Runs, update};
use crate::twice_differentiable::Twice;
use crate::weighted_sums::WeightedSums;
#[cfg(feature = "cube")]
use crate::{
    augment_images::AugmentCall,
    axpy::{AxpyAll, FanOut, SeedCotangents},
    gather_images::{GatherCall, LargestBank},
    grad_stats::GradPartsCall,
    limits::LimitTable,
    local_learning::{LocalLearning, MostLayers},
    matrix_product::MatrixProduct,
    task_loss::{TaskAccuracyCall, TaskLossCall},
    tiling::LaneCall,
};

type Balanced<B> = Autodiff<B, BalancedCheckpointing>;

/// A function that adds the bodies of these operations.
macro_rules! bodies {
    ($(#[$attribute:meta])* $name:ident: $($operation:ty),+ $(,)?) => {
        $(#[$attribute])*
        fn $name<B: $(Runs<$operation> +)+>(registry: &mut Registry) {
            $(registry.add_body::<B, $operation>();)+
        }
    };
}

bodies! {
    /// Below autodiff.
    add_steps: StepCall, GradStatsCall
}

bodies! {
    /// On a host below autodiff.
    add_inference:
        Attention, DepthwiseConv, FusedConv, FusedLinear, InversePower, LayerNorm, WeightUpdate,
        WeightedSums
}

bodies! {
    /// On a host under one level of autodiff.
    add_gradients: Attention, FusedLinear, LayerNorm
}

bodies! {
    /// At every level of autodiff.
    add_stacks: Twice<StackCall>, Twice<LinearCall>
}

bodies! {
    /// On a host at every level of autodiff.
    add_sums: Axpy, Depthwise
}

#[cfg(feature = "cube")]
bodies! {
    /// On an accelerator below autodiff.
    add_device_steps: GradPartsCall, LocalLearning, MostLayers, TaskAccuracyCall
}

#[cfg(feature = "cube")]
bodies! {
    /// On an accelerator at every level of autodiff.
    add_lists:
        AxpyAll, FanOut, SeedCotangents, LaneCall, AugmentCall, GatherCall, LargestBank,
        Twice<TaskLossCall>
}

#[cfg(feature = "cube")]
bodies! {
    /// On an accelerator at every level of autodiff, with levels that have no other body as well.
    add_products: MatrixProduct
}

/// Layers, metrics and stacks at a level of autodiff.
fn add_level<B>(registry: &mut Registry, place: Place)
where
    B: FusedLayers + FusedMetrics + Runs<Twice<StackCall>> + Runs<Twice<LinearCall>>,
{
    registry.add_backend::<B>(place);
    registry.add(LayerTable::<B>::new);
    registry.add(MetricTable::<B>::new);
    add_stacks::<B>(registry);
}

/// Adds the bodies of these levels of autodiff, with those that `more` adds.
macro_rules! add_levels {
    ($registry:ident, $place:expr, $more:ident, $($level:ty),+ $(,)?) => {$(
        add_level::<$level>($registry, $place);
        $more::<$level>($registry);
    )+};
}

/// A backend bare, and under one and two levels of autodiff, the inner one with either strategy.
fn add_host<B: HostBackend>(registry: &mut Registry) {
    add_steps::<B>(registry);
    add_inference::<B>(registry);
    add_gradients::<Autodiff<B>>(registry);
    add_gradients::<Balanced<B>>(registry);
    add_levels!(
        registry,
        Place::Host,
        add_sums,
        B,
        Autodiff<B>,
        Balanced<B>,
        Autodiff<Autodiff<B>>,
        Autodiff<Balanced<B>>,
    );
}

/// An accelerator, under Burn's fusion if that is there.
#[cfg(all(feature = "cube", not(feature = "fusion")))]
type Device<R, F, I, BT> = CubeBackend<R, F, I, BT>;
/// An accelerator, under Burn's fusion if that is there.
#[cfg(all(feature = "cube", feature = "fusion"))]
type Device<R, F, I, BT> = burn_fusion::Fusion<CubeBackend<R, F, I, BT>>;

/// An accelerator in the same way; where there are two levels of autodiff, both keep everything.
#[cfg(feature = "cube")]
fn add_device<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement>(
    registry: &mut Registry,
) {
    add_steps::<Device<R, F, I, BT>>(registry);
    add_device_steps::<Device<R, F, I, BT>>(registry);
    registry.add(LimitTable::<Device<R, F, I, BT>>::new);
    add_levels!(
        registry,
        Place::Device,
        add_lists,
        Device<R, F, I, BT>,
        Autodiff<Device<R, F, I, BT>>,
        Balanced<Device<R, F, I, BT>>,
        Autodiff<Autodiff<Device<R, F, I, BT>>>,
    );
    add_products::<Device<R, F, I, BT>>(registry);
    add_products::<Autodiff<Device<R, F, I, BT>>>(registry);
    add_products::<Balanced<Device<R, F, I, BT>>>(registry);
    add_products::<Autodiff<Autodiff<Device<R, F, I, BT>>>>(registry);
    add_products::<Autodiff<Balanced<Device<R, F, I, BT>>>>(registry);
    add_products::<Balanced<Autodiff<Device<R, F, I, BT>>>>(registry);
    add_products::<Balanced<Balanced<Device<R, F, I, BT>>>>(registry);
}

/// Opens all fused paths to a [`HostBackend`] of your own, bare, under autodiff and under two levels of it
/// of which the outer one keeps everything. Registering twice changes nothing.
///
/// `Flex`, `NdArray<f32, i64>` and `Candle<f32, i64>` are registered from the start.
pub fn register_host<B: HostBackend>() {
    update(add_host::<B>);
}

/// Opens all fused paths to another accelerator of CubeCL's, as [`register_host`] does to a host; with the
/// feature `fusion` under Burn's fusion.
///
/// `Wgpu<f32, i32, u32>`, `Cuda<f32, i32>` and `Rocm<f32, i32, u8>` are registered from the start.
#[cfg(feature = "cube")]
pub fn register_device<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement>() {
    update(add_device::<R, F, I, BT>);
}

impl Registry {
    /// The backends of the enabled features. Unit tests are about one host, and registering the others would
    /// take the compiler minutes more.
    pub(crate) fn built_in() -> Self {
        #[allow(unused_mut)]
        let mut registry = Self::default();
        #[cfg(feature = "flex")]
        add_host::<burn::backend::Flex>(&mut registry);
        #[cfg(all(feature = "ndarray", not(test)))]
        add_host::<burn::backend::NdArray<f32, i64>>(&mut registry);
        #[cfg(all(feature = "candle", not(test)))]
        #[allow(deprecated)]
        add_host::<burn::backend::Candle<f32, i64>>(&mut registry);
        #[cfg(all(feature = "wgpu", not(test)))]
        add_device::<cubecl::wgpu::WgpuRuntime, f32, i32, u32>(&mut registry);
        #[cfg(all(feature = "cuda", not(test)))]
        add_device::<cubecl::cuda::CudaRuntime, f32, i32, u8>(&mut registry);
        #[cfg(all(feature = "rocm", not(test)))]
        add_device::<cubecl::hip::HipRuntime, f32, i32, u8>(&mut registry);
        registry
    }
}
