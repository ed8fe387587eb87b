//! Limits of a device.

mod laws;

type Tested<B> = B;

laws! {
    every {
        limits_are_those_of_kernels_or_there_are_none
    }
    on_device {
        a_copy_is_of_what_it_says
        products_are_right_or_refused_with_the_reason
    }
}
