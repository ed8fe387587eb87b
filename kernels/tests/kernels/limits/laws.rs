use burn::tensor::backend::Backend;
use fewshot_kernels::limits::{LimitError, ProductType, copy_time, launch_time, product_time};
use fewshot_kernels::{Route, route};

pub fn limits_are_those_of_kernels_or_there_are_none<B: Backend>() {
    let device = B::Device::default();
    match launch_time::<B>(&device, 0.0) {
        Ok(time) => {
            assert!(matches!(route::<B>(), Route::Device(_)));
            assert!(0.0 < time.issue && time.issue <= time.done, "{time:?}");
        }
        Err(error) => {
            assert!(matches!(route::<B>(), Route::Host(_)));
            assert_eq!(error, LimitError::NoKernels);
            assert_eq!(copy_time::<B>(&device, 64, 0.0), Err(LimitError::NoKernels));
        }
    }
}

pub fn a_copy_is_of_what_it_says<B: Backend>() {
    for (asked, copied) in [(1, 16), (64, 64), ((1 << 20) + 3, 1 << 20)] {
        let time = copy_time::<B>(&B::Device::default(), asked, 0.0).unwrap();
        assert_eq!(time.bytes, copied);
        assert_eq!(time.rate(), 2.0 * copied as f64 / time.seconds);
    }
}

/// Values are compared where they are measured, and wrong ones are [`LimitError::Failed`]. A device may lack
/// units for a type; one that claims to have them must give numbers or the reason.
pub fn products_are_right_or_refused_with_the_reason<B: Backend>() {
    let device = B::Device::default();
    let size = 33;
    for of in ProductType::ALL {
        let refusal = match product_time::<B>(&device, of, size, 0.0) {
            Ok(time) => {
                assert_eq!(time.size, size);
                assert!(time.seconds > 0.0 && !time.strategy.is_empty(), "{time:?}");
                continue;
            }
            Err(error) => error,
        };
        let LimitError::NoProduct { of: refused, reason } = refusal else {
            panic!("{of}: {refusal}");
        };
        assert_ne!(of, ProductType::F32, "every device has products of f32: {reason}");
        assert!(refused == of && !reason.is_empty());
    }
}
