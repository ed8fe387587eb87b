//! Examples of classes: embeddings that models are learned from.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};

use super::{AdaptedModelError, Result};
use crate::data::{Features, class_name};
use crate::learners::heads::EmbeddedSupport;

/// Values of embeddings are at most so large: their squares, and sums of these, are finite.
const LARGEST: f32 = 1e15;

/// Refuses what no head learns from, and names that are not plain.
pub(super) fn check(examples: &Features) -> Result {
    for class in 0..examples.classes() {
        let name = examples.class_name(class);
        class_name(name)?;
        let mut values = examples.class_values(class).iter().enumerate();
        if let Some((place, &value)) = values.find(|(_, value)| value.abs() > LARGEST) {
            let (class, row) = (name.to_owned(), place / examples.length());
            return Err(AdaptedModelError::LargeValue { class, row, value, most: LARGEST });
        }
    }
    Ok(())
}

pub(super) fn class_names(examples: &Features) -> Vec<String> {
    (0..examples.classes()).map(|class| examples.class_name(class).to_owned()).collect()
}

/// Every class with its rows.
pub(super) fn classes(examples: &Features) -> Vec<(String, Vec<f32>)> {
    let names = class_names(examples).into_iter().enumerate();
    names.map(|(class, name)| (name, examples.class_values(class).to_vec())).collect()
}

/// These rows as the support of one task.
pub(super) fn support<B: Backend>(
    examples: &Features,
    rows: &[usize],
    device: &B::Device,
) -> EmbeddedSupport<B> {
    let (count, classes) = (rows.len(), examples.classes());
    let values: Vec<f32> = rows.iter().flat_map(|&row| examples.row(row).to_vec()).collect();
    let values = TensorData::new(values, [1, count, examples.length()]);
    let label = |row: &usize| {
        let class = (0..classes).find(|&class| examples.rows_of(class).contains(row));
        class.expect("every row is of a class") as i64
    };
    let labels = TensorData::new(rows.iter().map(label).collect::<Vec<_>>(), [1, count]);
    let labels = Tensor::<B, 2, Int>::from_data(labels, device);
    EmbeddedSupport::new(Tensor::from_data(values, device), labels, classes)
}
