//! Images gathered from a bank of bytes.

mod laws;

type Tested<B> = B;

laws! {
    every {
        images_are_the_bytes_of_the_bank_turned_and_scaled
        any_tasks_and_examples_are_parts_of_all
        no_images_are_gathered_of_none
        what_was_not_chosen_is_refused
    }
    on_device {
        an_accelerator_has_a_body_of_its_own_and_a_limit
        autodiff_gathers_the_same
    }
}
