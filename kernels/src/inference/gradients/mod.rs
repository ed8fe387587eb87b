//! Layers of a transformer under one level of autodiff on a host: what runs below it, and the gradients in passes of their own.
//!
//! Gradients of gradients are those of plain operations: two levels of autodiff have no body here.

mod attention;
mod layer_norm;
mod linear;
