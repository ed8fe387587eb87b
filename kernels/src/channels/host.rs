//! The primitives of a host backend.

use burn::tensor::ops::FloatTensor;

use super::{Tied, cpu};
use crate::host::{HostBackend, elements, wrap, write_like};

pub fn moments<B: HostBackend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let [_, c, h, w] = dims::<B>(&x);
    let found = cpu::moments(&elements::<B>(&x), c, h * w);
    write_like::<B, 2>(&x, found, [2, c])
}

pub fn correlate<B: HostBackend>(
    g: FloatTensor<B>,
    x: FloatTensor<B>,
    centre: FloatTensor<B>,
) -> FloatTensor<B> {
    let [_, c, h, w] = dims::<B>(&x);
    let [of_g, of_x, centre] = [&g, &x, &centre].map(elements::<B>);
    let found = cpu::correlate(&of_g, &of_x, &centre, h * w);
    write_like::<B, 2>(&x, found, [2, c])
}

pub fn affine<B: HostBackend>(x: FloatTensor<B>, map: [FloatTensor<B>; 3]) -> FloatTensor<B> {
    let shape @ [_, _, h, w] = dims::<B>(&x);
    let map = map.each_ref().map(elements::<B>);
    let found = cpu::affine(&elements::<B>(&x), map.each_ref().map(|of| &**of), h * w);
    write_like::<B, 4>(&x, found, shape)
}

pub fn combine<B: HostBackend>(a: Tied<FloatTensor<B>>, b: Tied<FloatTensor<B>>) -> FloatTensor<B> {
    let shape @ [_, _, h, w] = dims::<B>(&a.x);
    let [of_a, of_b] = [&a, &b].map(|of| [&of.x, &of.centre, &of.scale].map(elements::<B>));
    let tied = |[x, centre, scale]: [_; 3]| Tied { x, centre, scale };
    let found = cpu::combine(
        tied(of_a.each_ref().map(|of| &**of)),
        tied(of_b.each_ref().map(|of| &**of)),
        h * w,
    );
    write_like::<B, 4>(&a.x, found, shape)
}

fn dims<B: HostBackend>(x: &FloatTensor<B>) -> [usize; 4] {
    wrap::<B, 4>(x.clone()).dims()
}
