//! The primitives of a host backend.

use burn::tensor::ops::FloatTensor;

use super::{CentredScaled, cpu};
use crate::host::{HostBackend, consume, elements, wrap, write_like};

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
    let of_map = map.each_ref().map(elements::<B>);
    let of_map = of_map.each_ref().map(|of| &**of);
    let found = consume::<B, _>(x, |x| cpu::affine(x, of_map, h * w));
    write_like::<B, 4>(&map[0], found, shape)
}

pub fn combine<B: HostBackend>(
    a: CentredScaled<FloatTensor<B>>,
    b: CentredScaled<FloatTensor<B>>,
) -> FloatTensor<B> {
    let shape @ [_, _, h, w] = dims::<B>(&a.x);
    let of_a = [&a.centre, &a.scale].map(elements::<B>);
    let of_a = of_a.each_ref().map(|of| &**of);
    let [x, centre, scale] = &[&b.x, &b.centre, &b.scale].map(elements::<B>);
    let of_b = CentredScaled { x: &**x, centre: &**centre, scale: &**scale };
    let found = consume::<B, _>(a.x, |x| cpu::combine(x, of_a, of_b, h * w));
    write_like::<B, 4>(&b.x, found, shape)
}

fn dims<B: HostBackend>(x: &FloatTensor<B>) -> [usize; 4] {
    wrap::<B, 4>(x.clone()).dims()
}
