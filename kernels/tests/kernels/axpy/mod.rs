//! A vector and a multiple of another.

mod laws;

type Tested<B> = burn::backend::Autodiff<B>;

laws! {
    every {
        sums_and_gradients_are_those_of_two_operations
        gradients_of_gradients_are_too
        other_shapes_are_refused
    }
}
