//! A vector and a multiple of another.

mod laws;
mod lists;

type Tested<B> = burn::backend::Autodiff<B>;

laws! {
    every {
        sums_and_gradients_are_those_of_two_operations
        gradients_of_gradients_are_too
        other_shapes_are_refused
        lists_are_sums_one_by_one
        cotangents_are_pulled_back_as_through_a_sum_of_products
        cotangents_that_do_not_fit_are_refused
        lists_have_gradients_of_gradients
        what_nothing_depends_on_has_no_gradient
    }
}
