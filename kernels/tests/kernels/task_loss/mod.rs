//! The losses of tasks.

mod laws;

type Tested<B> = burn::backend::Autodiff<B>;

laws! {
    every {
        losses_and_gradients_are_those_of_plain_operations
        gradients_of_gradients_are_too
        a_factor_multiplies_a_loss_and_its_gradients
        a_loss_for_its_gradient_alone_has_the_same_gradients
        accuracies_are_shares_of_right_answers
        other_shapes_are_refused
    }
}
