//! Max-pooling of a host backend.

use burn::tensor::ops::FloatTensor;

use super::cpu;
use crate::host::{HostBackend, elements, wrap, write_like};

pub fn pool<B: HostBackend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let [n, c, h, w] = wrap::<B, 4>(x.clone()).dims();
    let found = cpu::pool(&elements::<B>(&x), [h, w]);
    write_like::<B, 4>(&x, found, [n, c, h / 2, w / 2])
}

pub fn scatter<B: HostBackend>(x: FloatTensor<B>, dy: FloatTensor<B>) -> FloatTensor<B> {
    let shape @ [_, _, h, w] = wrap::<B, 4>(x.clone()).dims();
    let found = cpu::scatter(&elements::<B>(&x), &elements::<B>(&dy), [h, w]);
    write_like::<B, 4>(&x, found, shape)
}

pub fn gather<B: HostBackend>(x: FloatTensor<B>, u: FloatTensor<B>) -> FloatTensor<B> {
    let [n, c, h, w] = wrap::<B, 4>(x.clone()).dims();
    let found = cpu::gather(&elements::<B>(&x), &elements::<B>(&u), [h, w]);
    write_like::<B, 4>(&x, found, [n, c, h / 2, w / 2])
}
