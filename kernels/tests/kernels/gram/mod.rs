//! The scalar products among rows of a matrix.

mod laws;

/// It works below autodiff; under it the reference runs.
type Tested<B> = B;

laws! {
    every {
        products_are_those_of_plain_operations
        no_task_no_row_and_no_feature_have_products_too
        rows_of_no_task_and_rows_that_are_not_there_are_refused
    }
}
