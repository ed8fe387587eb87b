//! Mixed precision: heavy products in a low type, all else in `f32`.

mod check;
mod layers;

pub use check::{Acceleration, PrecisionError};

use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Tensor};
use fewshot_simd::rounding::HalfType;
use serde::{Deserialize, Serialize};

use crate::registry;

/// The type that convolutions and, on a host, linear layers compute in; all else is `f32`.
///
/// Parameters, batch statistics, prototypes, distances, softmax, losses and the steps of an inner
/// loop are not products in this sense.
///
/// # Source
/// Micikevicius et al., "Mixed Precision Training", ICLR 2018; for `bf16`, Kalamkar et al., "A Study
/// of BFLOAT16 for Deep Learning Training", 2019.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// `f32`, without TF32.
    #[default]
    F32,
    /// `f32`, of which tensor cores multiply TF32, as [`check`](Self::check) asks for: fused convolutions
    /// round their operands to 10 binary digits, and add up in `f32`. All else is as in [`F32`](Self::F32),
    /// matrix products too.
    Tf32,
    /// `f16`, with a scaled loss.
    MixedF16,
    /// `bf16`.
    MixedBf16,
}

impl Precision {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::F32, Self::Tf32, Self::MixedF16, Self::MixedBf16];

    /// The name of the data type of the products.
    pub fn dtype(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::MixedF16 => "f16",
            Self::MixedBf16 => "bf16",
        }
    }

    /// The type of 16 bits that operands of products are rounded to; `None` where they stay `f32`.
    pub fn low(self) -> Option<FloatDType> {
        match self {
            Self::F32 | Self::Tf32 => None,
            Self::MixedF16 => Some(FloatDType::F16),
            Self::MixedBf16 => Some(FloatDType::BF16),
        }
    }

    /// [`low`](Self::low) on a host.
    pub(crate) fn half(self) -> Option<HalfType> {
        match self {
            Self::F32 | Self::Tf32 => None,
            Self::MixedF16 => Some(HalfType::F16),
            Self::MixedBf16 => Some(HalfType::Bf16),
        }
    }

    /// `product` of `a` and `b` in this precision: of both rounded to the low type, with the result
    /// rounded to it too, and then as `f32`.
    ///
    /// # Conventions
    /// The casts are part of the graph: the gradient of the result is rounded on its way in and those
    /// of the operands on their way out, and the latter arrive in the operands' own types.
    ///
    /// On a host, `product` gets the rounded operands as `f32`, where it is fused, and adds up without
    /// rounding; elsewhere it gets them in the low type. [`F32`](Self::F32) and [`Tf32`](Self::Tf32) cast
    /// nothing.
    pub fn product<B: Backend, const D: usize, const E: usize, const F: usize>(
        self,
        a: Tensor<B, D>,
        b: Tensor<B, E>,
        product: impl FnOnce(Tensor<B, D>, Tensor<B, E>) -> Tensor<B, F>,
    ) -> Tensor<B, F> {
        let Some(low) = self.low() else { return product(a, b) };
        let (a, b) = (a.cast(low), b.cast(low));
        let y = match registry::on_host::<B>() {
            true => product(a.cast(FloatDType::F32), b.cast(FloatDType::F32)).cast(low),
            false => product(a, b),
        };
        y.cast(FloatDType::F32)
    }
}
