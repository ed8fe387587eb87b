//! Images of a bank of bytes, changed at random.

mod laws;

type Tested<B> = B;

laws! {
    every {
        each_change_is_that_of_bytes_on_the_host
        changes_follow_each_other
        colors_are_the_same_in_every_byte
        any_tasks_and_examples_are_parts_of_all
        without_changes_images_are_gathered
        what_does_not_fit_is_refused
    }
    on_device {
        a_rotation_is_within_a_level
        a_large_image_has_the_mean_of_all_its_pixels
        autodiff_augments_the_same
    }
}
