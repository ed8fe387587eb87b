//! Fused operations for few-shot learning on [Burn](https://burn.dev) backends.
//!
//! Every operation is a function generic over `B: Backend`. Behind it stands one door, [`door`]: a
//! backend that is registered there takes the fused path, any other one runs the plain-Burn
//! reference, which is also the law the fused path is tested against. [`route`] tells which, and
//! [`with_reference`] runs the reference beside it.
//!
//! | operation | what is fused |
//! |---|---|
//! | [`conv_stack`](conv_stack()) | the blocks of [3x3 convolution, batch-norm, ReLU, 2x2 max-pool] of a Conv-4 encoder |
//!
//! [`conv_stack_along`] is its directional derivative.
//!
//! Fused bodies on the CPU keep their working memory for the next call, at most 1 GiB;
//! [`release_buffers`] gives it back.
#![recursion_limit = "256"]

pub mod conv_stack;
mod cpu;
pub mod door;
mod environment;
mod host;
mod refusal;

pub use conv_stack::{
    BlockTangent, ConvBlock, Moments, StackDirection, StackOptions, StackOutput, StackTangent,
    Statistics, conv_stack, conv_stack_along,
};
pub use cpu::release_buffers;
pub use door::{FusedOps, Route, check_environment, register, route};
pub use environment::{UnknownKernels, with_reference};
pub use host::HostBackend;
pub use refusal::Refusal;
