//! Operands without elements.

mod laws;

type Tested<B> = burn::backend::Autodiff<B>;

laws! {
    every {
        losses_take_tasks_without_elements
    }
    on_device {
        layers_refuse_images_without_elements
        products_take_matrices_without_elements
        metrics_take_tasks_without_elements
        lists_take_tensors_without_elements
        plastic_updates_take_what_has_no_elements
    }
}
