//! Averages of a host backend.

use burn::tensor::ops::FloatTensor;

use crate::channels::cpu;
use crate::host::{HostBackend, elements, wrap, write_like};

pub fn mean<B: HostBackend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let [n, c, h, w] = wrap::<B, 4>(x.clone()).dims();
    write_like::<B, 2>(&x, cpu::means(&elements::<B>(&x), h * w), [n, c])
}

pub fn spread<B: HostBackend>(u: FloatTensor<B>, [h, w]: [usize; 2]) -> FloatTensor<B> {
    let [n, c] = wrap::<B, 2>(u.clone()).dims();
    write_like::<B, 4>(&u, cpu::spread(&elements::<B>(&u), h * w), [n, c, h, w])
}
