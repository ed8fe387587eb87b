//! CPU bodies over `[n, c, h, w]`, plane by plane.

use rayon::prelude::*;

use crate::channels::cpu::task;
use crate::cpu::instruction_set::chosen;

/// The largest value of every window.
pub fn pool(x: &[f32], [h, w]: [usize; 2]) -> Vec<f32> {
    let body = chosen();
    let pooled = (h / 2) * (w / 2);
    let mut out = vec![0.0; x.len() / (h * w) * pooled];
    let planes = out.par_chunks_exact_mut(pooled).zip(x.par_chunks_exact(h * w));
    planes.with_min_len(task(h * w)).for_each(|(out, x)| body.pool(x, w, out));
    out
}

/// `dy` at the first largest pixel of every window of `x`, zero elsewhere.
pub fn scatter(x: &[f32], dy: &[f32], [h, w]: [usize; 2]) -> Vec<f32> {
    let body = chosen();
    let mut dx = vec![0.0; x.len()];
    let sources = x.par_chunks_exact(h * w).zip(dy.par_chunks_exact((h / 2) * (w / 2)));
    let planes = dx.par_chunks_exact_mut(h * w).zip(sources);
    planes.with_min_len(task(h * w)).for_each(|(dx, (x, dy))| body.scatter(x, w, dy, dx));
    dx
}

/// `u` at the first largest pixel of every window of `x`.
pub fn gather(x: &[f32], u: &[f32], [h, w]: [usize; 2]) -> Vec<f32> {
    let body = chosen();
    let pooled = (h / 2) * (w / 2);
    let mut out = vec![0.0; x.len() / (h * w) * pooled];
    let sources = x.par_chunks_exact(h * w).zip(u.par_chunks_exact(h * w));
    let planes = out.par_chunks_exact_mut(pooled).zip(sources);
    planes.with_min_len(task(h * w)).for_each(|(out, (x, u))| body.gather(x, w, u, out));
    out
}
