//! What holds on every backend.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::{Autodiff, Flex};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{gram, with_reference};

use crate::judge::{assert_close, read};
use crate::numbers::Numbers;

fn drawn<B: Backend>(shape: [usize; 2]) -> Tensor<B, 2> {
    Tensor::from_data(Numbers(3).data(shape, |x| x), &Default::default())
}

pub fn products_are_those_of_plain_operations<B: Backend>() {
    for [tasks, size, features] in [[1, 1, 1], [2, 5, 7], [3, 17, 33], [2, 80, 64], [1, 97, 640]] {
        let all: Vec<usize> = (0..tasks * size).collect();
        let some: Vec<usize> = all.iter().map(|row| row * 7 % (tasks * size)).collect();
        for rows in [all, some] {
            let shape = [tasks * size, features];
            let wanted = with_reference(|| read(gram(drawn::<Flex>(shape), &rows, size)));
            let (what, tolerance) = (format!("{shape:?}"), 2e-6 * features as f32);
            assert_close(&what, &read(gram(drawn::<B>(shape), &rows, size)), &wanted, tolerance);
            // Rows that do not lie one after the other.
            let apart = drawn::<B>([features, tasks * size]).transpose();
            let wanted = drawn::<Flex>([features, tasks * size]).transpose();
            let wanted = with_reference(|| read(gram(wanted, &rows, size)));
            assert_close(&what, &read(gram(apart, &rows, size)), &wanted, tolerance);
        }
    }
    // Under autodiff gradients flow: those of the sum of all products are twice the sum of the picked rows.
    let x = drawn::<Autodiff<B>>([4, 3]).require_grad();
    let found = x.grad(&gram(x.clone(), &[0, 1, 3], 3).sum().backward()).expect("tracked");
    let picked = Tensor::from_data([[1.0, 1.0, 0.0, 1.0]], &Default::default());
    let wanted = picked.clone().transpose().matmul(picked.matmul(drawn::<B>([4, 3]))) * 2.0;
    assert_close("gradient", &read(found), &read(wanted), 1e-5);
}

pub fn no_task_no_row_and_no_feature_have_products_too<B: Backend>() {
    let found = |shape, rows: &[usize], size| {
        let found = gram(Tensor::<B, 2>::zeros(shape, &Default::default()), rows, size);
        assert!(read(found.clone()).iter().all(|product| *product == 0.0));
        found.dims()
    };
    assert_eq!(found([3, 2], &[], 3), [0, 3, 3]);
    assert_eq!(found([0, 2], &[], 0), [0, 0, 0]);
    assert_eq!(found([6, 0], &[0, 1, 2, 3, 4, 5], 3), [2, 3, 3]);
}

pub fn rows_of_no_task_and_rows_that_are_not_there_are_refused<B: Backend>() {
    for (rows, said) in [([0, 1, 2].as_slice(), "3 rows"), (&[0, 3], "row 3 of 3")] {
        let x = Tensor::<B, 2>::zeros([3, 2], &Default::default());
        let refused = catch_unwind(AssertUnwindSafe(|| gram(x, rows, 2)));
        let error = refused.expect_err("refused");
        let error = error.downcast_ref::<String>().expect("a message");
        assert!(error.contains(said), "{error}");
    }
}
