use burn::data::dataloader::DataLoader;

use super::*;
use crate::data::Sinusoids;
use crate::episode::{Regression, RegressionSampler};
use crate::train::dashboard::Tasks;

fn source() -> RegressionSampler {
    RegressionSampler::new(Sinusoids::default(), 2, 2, 1).unwrap()
}

fn training() -> TaskLoader<Flex, RegressionSampler> {
    TaskLoader::training(source(), STEPS, META_BATCH, &Default::default())
}

fn targets(batch: &<Regression as TaskKind>::Batch<Flex>) -> Vec<f32> {
    batch.queries.targets.to_data().iter::<f32>().collect()
}

/// Steps and targets of the next epoch.
fn epoch(loader: &dyn DataLoader<Flex, Tasks<Flex, Regression>>) -> Vec<(u64, Vec<f32>)> {
    loader.iter().map(|tasks| (tasks.step, targets(&tasks.batch))).collect()
}

/// Those that the source has from `first` on, in `batches` of so many.
fn expected(first: u64, batches: u64, together: u64) -> Vec<(u64, Vec<f32>)> {
    let device = Default::default();
    let batch = |step| {
        let start = step * together;
        (step, targets(&source().tasks::<Flex>(start..start + together, &device)))
    };
    (first..first + batches).map(batch).collect()
}

#[test]
fn every_epoch_of_training_has_new_tasks() {
    let loader = training();
    assert_eq!(epoch(&loader), expected(0, STEPS, META_BATCH));
    assert_eq!(epoch(&loader), expected(STEPS, STEPS, META_BATCH));
}

#[test]
fn training_goes_on_with_the_epoch_after_a_checkpoint() {
    let loader = training().checkpoint(1);
    assert_eq!(epoch(&loader), expected(STEPS, STEPS, META_BATCH));
}

#[test]
fn on_another_device_training_goes_on_where_it_was() {
    let loader = training();
    epoch(&loader);
    let moved = loader.to_device(&Default::default());
    for loader in [&*moved, &loader] {
        assert_eq!(epoch(loader), expected(STEPS, STEPS, META_BATCH));
    }
}

#[test]
fn every_validation_has_the_same_tasks() {
    let loader = TaskLoader::<Flex, _>::validation(source(), 130, &Default::default());
    let first = epoch(&loader);
    assert_eq!(first[..2], expected(0, 2, 64));
    assert_eq!((first.len(), first[2].1.len()), (3, 2 * 2));
    assert_eq!(epoch(&loader), first);
    assert_eq!(epoch(&*loader.to_device(&Default::default())), first);
}

#[test]
fn a_validation_can_be_sliced() {
    let loader = TaskLoader::<Flex, _>::validation(source(), 130, &Default::default());
    let slice = loader.slice(64, 130).slice(0, 65);
    assert_eq!(slice.num_items(), 65);
    let found = epoch(&*slice);
    assert_eq!(found[0], expected(1, 1, 64)[0]);
    assert_eq!((found.len(), found[1].1.len()), (2, 2));
}

#[test]
fn progress_counts_tasks() {
    let loader = training().checkpoint(1);
    assert_eq!(loader.num_items(), (STEPS * META_BATCH) as usize);
    let mut iterator = loader.iter();
    for done in [2, 4, 6] {
        iterator.next().unwrap();
        let progress = iterator.progress();
        assert_eq!((progress.items_processed, progress.items_total), (done, 6));
    }
    assert!(iterator.next().is_none());
}

#[test]
fn the_whole_epoch_is_a_slice_of_itself() {
    let loader = training().slice(0, 6);
    assert_eq!(epoch(&*loader), expected(0, STEPS, META_BATCH));
}
