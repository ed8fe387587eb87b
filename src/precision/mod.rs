//! Training in half precision: a scaled loss, and gradients that are finite before they are used.
//!
//! Gradients of a loss in `f16` can be too small for the format. A [`LossScale`] lifts them, a
//! [`GradScaler`] finds the largest scale at which they stay finite. Every stage is a type of its
//! own, so that no optimizer gets gradients that are still scaled:
//!
//! [`LossScale::scale`] → [`ScaledLoss::backward`] → [`ScaledGrads`] → [`GradScaler::unscale`] →
//! [`FiniteGrads::clip_norm`] → [`FiniteGrads::step`].
//!
//! # Conventions
//! The state machine of `torch.amp.GradScaler`, and a floor below which the scale does not fall.
//! Its `update` is part of [`GradScaler::unscale`]. The scale may only change between two steps of
//! the optimizer: gradients of several losses that are to be added up take the same
//! [`LossScale`], and are unscaled once, when they are complete. A skipped step does not count as a
//! step, and does not advance a learning-rate schedule.
//!
//! # Example
//! ```
//! use burn::backend::{Autodiff, Flex};
//! use burn::tensor::Tensor;
//! use fewshot::models::nn::LinearConfig;
//! use fewshot::optim::Sgd;
//! use fewshot::precision::GradScalerConfig;
//!
//! type B = Autodiff<Flex>;
//!
//! let device = Default::default();
//! let mut layer = LinearConfig::new(2, 1).init::<B>(&device);
//! let mut optimizer = Sgd::new().init();
//! let mut scaler = GradScalerConfig::new().init()?;
//! for _ in 0..3 {
//!     let loss = layer.forward(Tensor::ones([4, 2], &device)).mean();
//!     let gradients = scaler.loss_scale().scale(loss).backward(&layer);
//!     match scaler.unscale::<B, _>(gradients, &layer)? {
//!         Ok(gradients) => {
//!             layer = gradients.clip_norm::<B, _>(&layer, 1.0).step(&mut optimizer, 0.1, layer);
//!         }
//!         Err(skipped) => println!("{skipped}"),
//!     }
//! }
//! assert_eq!(scaler.skipped(), 0);
//! # Ok::<(), fewshot::precision::ScaleError>(())
//! ```
//! Scaled gradients are not what an optimizer takes:
//! ```compile_fail,E0308
//! # use burn::backend::{Autodiff, Flex};
//! # use burn::tensor::Tensor;
//! # use burn::optim::Optimizer;
//! # use fewshot::models::nn::LinearConfig;
//! # use fewshot::optim::Sgd;
//! # use fewshot::precision::GradScalerConfig;
//! # type B = Autodiff<Flex>;
//! # let device = Default::default();
//! # let layer = LinearConfig::new(2, 1).init::<B>(&device);
//! # let mut optimizer = Sgd::new().init();
//! # let scaler = GradScalerConfig::new().init().unwrap();
//! # let loss = layer.forward(Tensor::ones([4, 2], &device)).mean();
//! let gradients = scaler.loss_scale().scale(loss).backward(&layer);
//! let layer = optimizer.step(0.1, layer, gradients);
//! ```
//! and a scaled loss has no backward pass but its own:
//! ```compile_fail,E0061
//! # use burn::backend::{Autodiff, Flex};
//! # use burn::tensor::Tensor;
//! # use fewshot::models::nn::LinearConfig;
//! # use fewshot::precision::GradScalerConfig;
//! # type B = Autodiff<Flex>;
//! # let device = Default::default();
//! # let layer = LinearConfig::new(2, 1).init::<B>(&device);
//! # let scaler = GradScalerConfig::new().init().unwrap();
//! # let loss = layer.forward(Tensor::ones([4, 2], &device)).mean();
//! let gradients = scaler.loss_scale().scale(loss).backward();
//! ```
//!
//! # Source
//! Micikevicius et al., *Mixed Precision Training*, ICLR 2018.

mod error;
mod finite_grads;
mod grad_scaler;
mod loss_scale;
mod measure;
mod scaled_grads;

pub use error::ScaleError;
pub use fewshot_kernels::{Acceleration, Precision, PrecisionError};
pub use finite_grads::{FiniteGrads, NonFinite};
pub use grad_scaler::{GradScaler, GradScalerConfig, GradScalerState};
pub use loss_scale::{LossScale, ScaledLoss};
pub use scaled_grads::ScaledGrads;

#[cfg(all(test, feature = "flex"))]
mod tests;
