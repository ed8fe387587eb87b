//! Layers of a transformer under one level of autodiff on a host: what runs below it, and the gradients in passes of their own.
//!
//! Gradients of gradients are those of plain operations: two levels of autodiff have no body here.

mod attention;
mod layer_norm;
mod linear;

/// Rows of a part of a matrix, of which every thread has one, if it has so many floats at least.
fn rows_of_part([rows, length]: [usize; 2], least: usize) -> usize {
    rows.div_ceil(rayon::current_num_threads()).max(least.div_ceil(length))
}
