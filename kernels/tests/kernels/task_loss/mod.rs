//! The losses of tasks.

mod laws;

type Tested<B> = burn::backend::Autodiff<B>;

laws! {
    every {
        losses_and_gradients_are_those_of_plain_operations
        gradients_of_gradients_are_too
        other_shapes_are_refused
    }
}
