//! The matrices of every host backend.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, TensorMetadata};

use super::{cpu, reference};
use crate::cpu::instruction_set;
use crate::host::{HostBackend, elements, unwrap, wrap, write_shape};

/// See [`HostTable`](crate::host::HostTable).
pub fn gram<B: HostBackend>(x: FloatTensor<B>, rows: &[usize], size: usize) -> FloatTensor<B> {
    let (device, features, body) = (B::float_device(&x), x.shape()[1], instruction_set::chosen());
    let products = match B::borrow(&x) {
        Some(x) => cpu::gram(body, x, features, rows, size),
        // Copied are the rows that are asked for, not all there are.
        None => {
            let x = unwrap(reference::picked::<B>(wrap(x), rows));
            let numbers: Vec<_> = (0..rows.len()).collect();
            cpu::gram(body, &elements::<B>(&x), features, &numbers, size)
        }
    };
    write_shape::<B>(products, Shape::new([rows.len() / size, size, size]), &device)
}
