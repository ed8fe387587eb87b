use burn::tensor::backend::Backend;
use fewshot_kernels::limits::{
    LimitError, ProductType, Strategies, copy_time, launch_time, product_times,
};
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

/// Values are compared where they are measured: a way that gives others is refused.
pub fn products_are_right_in_every_way_that_is_told<B: Backend>() {
    let device = B::Device::default();
    let size = 33;
    for of in ProductType::ALL {
        match product_times::<B>(&device, of, size, Strategies::All, 0.0) {
            Ok(times) => {
                println!("{of}: {times:?}");
                assert!(times.iter().all(|time| time.size == size && time.seconds > 0.0));
                let first = product_times::<B>(&device, of, size, Strategies::First, 0.0);
                let [first] = &first.unwrap()[..] else { panic!("one is wanted") };
                assert_eq!(first.strategy, times[0].strategy, "the order is fixed");
            }
            Err(LimitError::NoProduct { of: found, reasons }) => {
                println!("{of}: {reasons}");
                assert_eq!(found, of);
                assert!(of != ProductType::F32, "every device has products of f32: {reasons}");
                assert!(!reasons.is_empty());
            }
            Err(error) => panic!("{of}: {error}"),
        }
    }
}
