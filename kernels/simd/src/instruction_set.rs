//! The inner loops, compiled once for each set of vector instructions.

use std::mem::MaybeUninit;
use std::sync::LazyLock;

use super::activate::Strip;
use super::activate_vjp::{Coefficients, Target};
use super::amx::Amx;
#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512::Avx512;
use super::contract::Contraction;
use super::depthwise::Depthwise;
use super::depthwise_tile::{TiledDepthwise, TiledMap};
use super::epilogue::Activation;
use super::gemm::Gemm;
use super::moments::Correlation;
#[cfg(target_arch = "aarch64")]
use super::neon::Neon;
use super::planes::Line;
use super::portable::Portable;
use super::product::Product;
use super::rank::RankUpdate;
use super::rounding::HalfType;
use super::simd::Simd;
use super::softmax::Rows;
use super::steps::{Decay, Moments, Velocity};
use super::transforms::{Corner, CornerMut};

/// Calls a macro with all inner loops: each a function of a module here, which takes a
/// [`Simd`] before what is listed.
macro_rules! with_loops {
    ($macro:ident, $with:tt) => {
        $macro! { $with
            activate::activate(strip: &Strip<'_>, out: &mut [f32], out_row: usize);
            activate::activate_jvp(
                strip: &Strip<'_>, tangent: &Strip<'_>, out: &mut [f32], out_row: usize);
            activate_vjp::activate_vjp(
                strip: &Strip<'_>, grad: &[f32], coefficients: &Coefficients<'_>, target: Target<'_>);
            activate_vjp::add_scaled(
                part: &[f32], scaled: (&[f32], &[f32]), w: usize, target: Target<'_>);
            contract::contract(job: &Contraction<'_>, out: &mut [f32]);
            depthwise::depthwise(
                job: &Depthwise<'_>, padded: &mut [f32], out: &mut [MaybeUninit<f32>]);
            depthwise::depthwise_weight(
                job: &Depthwise<'_>, dy: &[f32], padded: &mut [f32], sums: &mut [f32]);
            depthwise_tile::depthwise_tile(
                job: &TiledDepthwise<'_>, map: &TiledMap<'_>, out: &mut [f32]);
            depthwise_tile::depthwise_tile_weight(
                job: &TiledDepthwise<'_>, dy: &[f32], sums: &mut [f32]);
            gates::gate(by: &[f32], values: &mut [f32]);
            gates::leaky(slope: f32, most: f32, x: &mut [f32]);
            gates::leaky_gate(slope: f32, most: f32, output: &[f32], values: &mut [f32]);
            gates::rectify(x: &mut [f32]);
            gemm::gemm(job: &Gemm<'_>, out: (&mut [MaybeUninit<f32>], usize));
            gelu::activate_all(activation: Activation, x: &mut [f32]);
            gelu::activate_all_vjp(activation: Activation, x: &[f32], dy: &mut [f32]);
            interleave::interleave(planes: &[f32], places: &[usize], map: &mut [f32]);
            interleave::separate(map: &[f32], places: &[usize], planes: &mut [f32]);
            layer_norm::layer_norm(map: [&[f32]; 2], epsilon: f32, row: &mut [f32]);
            layer_norm::layer_norm_vjp(
                gamma: &[f32], epsilon: f32, x: &[f32], dy: &mut [f32], sums: [&mut [f32]; 2]);
            moments::correlate(pair: &Correlation<'_>, out: &mut [f32]);
            moments::deviations(y: &[f32], out: &mut [f32]);
            overlapping_windows::overlapping_gather(x: &[f32], w: usize, u: &[f32], out: &mut [f32]);
            overlapping_windows::overlapping_pool(x: &[f32], w: usize, out: &mut [f32]);
            overlapping_windows::overlapping_scatter(
                x: &[f32], w: usize, dy: &[f32], dx: &mut [f32]);
            planes::plane_affine(map: Line, x: &mut [f32]);
            planes::plane_combine(of_a: Line, b: (&[f32], Line), a: &mut [f32]);
            planes::plane_correlate(g: &[f32], x: &[f32], centre: f32, out: &mut [f32]);
            planes::plane_deviations(x: &[f32], out: &mut [f32]);
            planes::plane_sum(x: &[f32], out: &mut f32);
            product::product(job: &Product<'_>, out: &mut [f32]);
            product::transposed(from: &[f32], columns: usize, to: &mut [f32]);
            rank::rank_update(job: &RankUpdate<'_>, w: &mut [f32]);
            rounding::round(to: HalfType, values: &mut [f32]);
            softmax::softmax(scale: f32, columns: usize, scores: &mut [f32]);
            softmax::softmax_scores(rows: &mut Rows<'_>);
            softmax::softmax_vjp(scale: f32, columns: usize, shares: &[f32], gradient: &mut [f32]);
            steps::adam(
                decay: Decay, by: Moments, rate: f64,
                g: &[f32], p: &mut [f32], moments: [&mut [f32]; 2]);
            steps::lamb_apply(
                by: Moments, pull: f64, rate: f64, moments: [&[f32]; 2], p: &mut [f32]);
            steps::lamb_direction(
                by: Moments, pull: f64,
                of: [&[f32]; 2], moments: [&mut [f32]; 2], squares: &mut [f64; 2]);
            steps::momentum(
                decay: Decay, by: Velocity, rate: f64,
                g: &[f32], p: &mut [f32], velocity: &mut [f32]);
            steps::scale(factor: f32, x: &mut [f32]);
            steps::sgd(decay: Decay, rate: f64, g: &[f32], p: &mut [f32]);
            steps::square_sum(x: &[f32], out: &mut f64);
            transforms::expand_delta(from: &Corner<'_>, out: &mut [f32], step: usize);
            transforms::expand_input(from: &Corner<'_>, out: &mut [f32], step: usize);
            transforms::expand_weight(from: (&[f32], usize), out: (&mut [f32], usize));
            transforms::reduce_output(from: &[f32], step: usize, to: CornerMut<'_>);
            transforms::reduce_weight(from: (&[f32], usize), out: (&mut [f32], usize));
            windows::gather(x: &[f32], w: usize, u: &[f32], out: &mut [f32]);
            windows::pool(x: &[f32], w: usize, out: &mut [f32]);
            windows::scatter(x: &[f32], w: usize, dy: &[f32], dx: &mut [f32]);
        }
    };
}

macro_rules! declare {
    (() $($module:ident::$name:ident($($arg:ident: $type:ty),*);)*) => {
        /// The inner loops for one set of vector instructions.
        ///
        /// All of them work on tiles of `tile()` adjacent channels.
        pub trait InstructionSet: Send + Sync {
            /// Name of the set of instructions.
            fn name(&self) -> &'static str;

            /// Channels in a tile.
            fn tile(&self) -> usize;

            /// Products of bf16 matrices, where the set has them.
            fn amx(&self) -> Option<Amx>;

            $(
                #[doc = concat!("See `", stringify!($module::$name), "`.")]
                fn $name(&self, $($arg: $type),*);
            )*
        }
    };
}
with_loops!(declare, ());

/// Vector instructions, and products of bf16 matrices where there are any beside them.
struct Body<S> {
    simd: S,
    amx: Option<Amx>,
}

/// Implements [`InstructionSet`] for the [`Body`] of a [`Simd`], compiling every loop under the attribute.
///
/// A function cannot be generic over target features, so each loop is inlined into a function that
/// has them.
macro_rules! implement {
    (($simd:ty, $feature:tt) $($module:ident::$name:ident($($arg:ident: $type:ty),*);)*) => {
        impl InstructionSet for Body<$simd> {
            fn name(&self) -> &'static str {
                if self.amx.is_some() { "AMX" } else { <$simd as Simd>::NAME }
            }

            fn tile(&self) -> usize {
                <$simd as Simd>::TILE
            }

            fn amx(&self) -> Option<Amx> {
                self.amx
            }

            $(compile_loop!($simd, $feature, $module::$name($($arg: $type),*));)*
        }
    };
}

macro_rules! compile_loop {
    ($simd:ty, [$($feature:meta)?], $module:ident::$name:ident($($arg:ident: $type:ty),*)) => {
        fn $name(&self, $($arg: $type),*) {
            $(#[$feature])?
            fn run(simd: $simd, $($arg: $type),*) {
                super::$module::$name(simd, $($arg),*);
            }
            // SAFETY: `self.simd` proves the features.
            #[allow(unused_unsafe)]
            unsafe {
                run(self.simd, $($arg),*)
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
with_loops!(implement, (Avx512, [target_feature(enable = "avx512f")]));
#[cfg(target_arch = "x86_64")]
with_loops!(implement, (Avx2, [target_feature(enable = "avx2,fma")]));
#[cfg(target_arch = "aarch64")]
with_loops!(implement, (Neon, [target_feature(enable = "neon")]));
with_loops!(implement, (Portable<4>, []));
#[cfg(debug_assertions)]
with_loops!(implement, (Portable<16>, []));

/// The bodies this processor can run, fastest first.
pub fn bodies() -> Vec<&'static dyn InstructionSet> {
    static BODIES: LazyLock<Vec<Box<dyn InstructionSet>>> = LazyLock::new(|| {
        let mut bodies: Vec<Box<dyn InstructionSet>> = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(simd) = Avx512::detect() {
                for amx in Amx::detect().map(Some).into_iter().chain([None]) {
                    bodies.push(Box::new(Body { simd, amx }));
                }
            }
            if let Some(simd) = Avx2::detect() {
                bodies.push(Box::new(Body { simd, amx: None }));
            }
        }
        #[cfg(target_arch = "aarch64")]
        if let Some(simd) = Neon::detect() {
            bodies.push(Box::new(Body { simd, amx: None }));
        }
        bodies.push(Box::new(Body { simd: Portable::<4>, amx: None }));
        #[cfg(debug_assertions)]
        bodies.push(Box::new(Body { simd: Portable::<16>, amx: None }));
        bodies
    });
    BODIES.iter().map(|body| &**body).collect()
}
