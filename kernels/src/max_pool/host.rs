//! Max-pooling of a host backend, plane by plane.

use burn::tensor::ops::FloatTensor;
use rayon::prelude::*;

use crate::channels::cpu::task;
use crate::cpu::instruction_set::chosen;
use crate::host::{HostBackend, elements, wrap, write_like};

pub fn pool<B: HostBackend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let body = chosen();
    let all = elements::<B>(&x);
    pooled::<B>(&x, [&all; 2], |x, _, w, out| body.pool(x, w, out))
}

pub fn gather<B: HostBackend>(x: FloatTensor<B>, u: FloatTensor<B>) -> FloatTensor<B> {
    let body = chosen();
    let [of_x, of_u] = [&x, &u].map(elements::<B>);
    pooled::<B>(&x, [&of_x, &of_u], |x, u, w, out| body.gather(x, w, u, out))
}

/// A value for every window, by what `plane` makes of planes of `x` and another map.
fn pooled<B: HostBackend>(
    x: &FloatTensor<B>,
    [of_x, of_u]: [&[f32]; 2],
    plane: impl Fn(&[f32], &[f32], usize, &mut [f32]) + Sync,
) -> FloatTensor<B> {
    let [n, c, h, w] = wrap::<B, 4>(x.clone()).dims();
    let shape = [n, c, h / 2, w / 2];
    let mut out = vec![0.0; shape.iter().product()];
    let sources = of_x.par_chunks_exact(h * w).zip(of_u.par_chunks_exact(h * w));
    let planes = out.par_chunks_exact_mut((h / 2) * (w / 2)).zip(sources);
    planes.with_min_len(task(h * w)).for_each(|(out, (x, u))| plane(x, u, w, out));
    write_like::<B, 4>(x, out, shape)
}

pub fn scatter<B: HostBackend>(x: FloatTensor<B>, dy: FloatTensor<B>) -> FloatTensor<B> {
    let body = chosen();
    let shape @ [_, _, h, w] = wrap::<B, 4>(x.clone()).dims();
    let (of_x, of_dy) = (elements::<B>(&x), elements::<B>(&dy));
    let mut dx = vec![0.0; of_x.len()];
    let sources = of_x.par_chunks_exact(h * w).zip(of_dy.par_chunks_exact((h / 2) * (w / 2)));
    let planes = dx.par_chunks_exact_mut(h * w).zip(sources);
    planes.with_min_len(task(h * w)).for_each(|(dx, (x, dy))| body.scatter(x, w, dy, dx));
    write_like::<B, 4>(&x, dx, shape)
}
