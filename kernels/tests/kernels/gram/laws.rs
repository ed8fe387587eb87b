//! What holds on every backend.

use burn::backend::{Autodiff, Flex};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{gram, with_reference};

use crate::judge::{assert_close, read};
use crate::numbers::Numbers;

fn drawn<B: Backend>(shape: [usize; 3]) -> Tensor<B, 3> {
    Tensor::from_data(Numbers(3).data(shape, |x| x), &Default::default())
}

pub fn products_are_those_of_plain_operations<B: Backend>() {
    for shape in [[1, 1, 1], [2, 5, 7], [3, 17, 33], [2, 80, 64], [1, 97, 640]] {
        let wanted = with_reference(|| read(gram(drawn::<Flex>(shape))));
        let what = format!("{shape:?}");
        assert_close(&what, &read(gram(drawn::<B>(shape))), &wanted, 2e-6 * shape[2] as f32);
        // Rows that do not lie one after the other.
        let [tasks, rows, features] = shape;
        let apart = drawn::<B>([tasks, features, rows]).swap_dims(1, 2);
        let wanted =
            with_reference(|| read(gram(drawn::<Flex>([tasks, features, rows]).swap_dims(1, 2))));
        assert_close(&what, &read(gram(apart)), &wanted, 2e-6 * features as f32);
    }
    // Under autodiff gradients flow: those of the sum of all products are twice the sum of all rows.
    let x = drawn::<Autodiff<B>>([1, 4, 3]).require_grad();
    let found = x.grad(&gram(x.clone()).sum().backward()).expect("tracked");
    let wanted = drawn::<B>([1, 4, 3]).sum_dim(1).expand([1, 4, 3]) * 2.0;
    assert_close("gradient", &read(found), &read(wanted), 1e-5);
}

pub fn no_task_no_row_and_no_feature_have_products_too<B: Backend>() {
    for [tasks, rows, features] in [[0, 3, 2], [2, 0, 3], [2, 3, 0]] {
        let x = Tensor::<B, 3>::zeros([tasks, rows, features], &Default::default());
        let found = gram(x);
        assert_eq!(found.dims(), [tasks, rows, rows]);
        assert!(read(found).iter().all(|product| *product == 0.0));
    }
}
