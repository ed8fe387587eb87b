//! The scalar products of all rows with each other.

mod laws;

/// It works below autodiff; under it the reference runs.
type Tested<B> = B;

laws! {
    every {
        products_are_those_of_plain_operations
        no_task_no_row_and_no_feature_have_products_too
    }
}
