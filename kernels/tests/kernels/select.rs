//! Slices that the host chooses.

type Tested<B> = burn::backend::Autodiff<B>;

mod laws {
    use burn::tensor::Tensor;
    use burn::tensor::backend::AutodiffBackend;
    use fewshot_kernels::select;

    use crate::judge::read;

    const SHAPE: [usize; 3] = [3, 5, 4096];

    fn numbers<B: AutodiffBackend>() -> Tensor<B, 3> {
        let count: usize = SHAPE.iter().product();
        let numbers: Vec<f32> = (0..count).map(|number| number as f32).collect();
        Tensor::<B, 1>::from_floats(numbers.as_slice(), &Default::default()).reshape(SHAPE)
    }

    /// Along every axis; as many places as the last one has would leave the memory of those that are chosen.
    pub fn slices_lie_in_the_order_of_their_places<B: AutodiffBackend>() {
        let x = numbers::<B>();
        for (dim, places) in [(0, vec![2, 0]), (1, vec![4, 4, 1]), (2, vec![4095])] {
            let slice = |place: &i32| x.clone().narrow(dim, *place as usize, 1);
            let slices = Tensor::cat(places.iter().map(slice).collect(), dim);
            assert_eq!(read(select(x.clone(), dim, places)), read(slices), "along {dim}");
        }
        assert_eq!(select(x, 1, vec![]).dims(), [3, 0, 4096]);
    }

    pub fn a_slice_that_is_chosen_twice_has_both_gradients<B: AutodiffBackend>() {
        let x = numbers::<B>().detach().require_grad();
        let gradients = select(x.clone(), 1, vec![4, 4, 1]).sum().backward();
        let gradient = x.grad(&gradients).expect("it is tracked").sum_dim(2).sum_dim(0) / 12288.0;
        assert_eq!(read(gradient), [0.0, 1.0, 0.0, 0.0, 2.0]);
    }
}

laws! {
    every {
        slices_lie_in_the_order_of_their_places
        a_slice_that_is_chosen_twice_has_both_gradients
    }
}
