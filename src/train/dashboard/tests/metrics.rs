use std::marker::PhantomData;

use burn::data::dataloader::Progress;
use burn_train::metric::{
    AccuracyMetric, Adaptor, ItemLazy, LossMetric, Metric, MetricMetadata, Numeric,
};

use super::*;
use crate::episode::{Classification, Regression};
use crate::train::dashboard::{HostOutcome, Outcome};

fn metadata() -> MetricMetadata {
    let progress = || Progress { items_processed: 1, items_total: 1 };
    MetricMetadata { progress: progress(), global_progress: progress(), iteration: None, lr: None }
}

fn outcome<K>(loss: f32, scores: &[f32], queries: usize, tasks: usize) -> Outcome<Flex, K> {
    let device = Default::default();
    let (loss, scores) =
        (Tensor::from_floats([loss], &device), Tensor::from_floats(scores, &device));
    Outcome { loss, scores, tasks, queries, kind: PhantomData }
}

#[test]
fn accuracy_is_that_of_all_queries() {
    // Of 7 queries each, 2 and 5 are right; then 1 of 3 in each of 2 tasks, as a mean alone.
    let mut metric = AccuracyMetric::<Flex>::new();
    let tested = outcome::<Classification>(1.0, &[2.0 / 7.0, 5.0 / 7.0], 14, 2).sync();
    metric.update(&tested.adapt(), &metadata());
    assert_eq!(metric.value().current(), 50.0);
    let trained = outcome::<Classification>(1.0, &[1.0 / 3.0], 6, 2).sync();
    metric.update(&trained.adapt(), &metadata());
    assert_eq!(metric.value().current(), 100.0 * (2.0 / 6.0));
    assert_eq!(metric.running_value().current(), 100.0 * (7.0 + 2.0) / 20.0);
}

#[test]
fn a_loss_counts_by_its_tasks() {
    let mut metric = LossMetric::<Flex>::new();
    for (loss, tasks) in [(1.0, 3), (3.0, 1)] {
        let found = outcome::<Regression>(loss, &vec![0.0; tasks], 5 * tasks, tasks).sync();
        metric.update(&found.adapt(), &metadata());
    }
    assert_eq!(metric.running_value().current(), 1.5);
}

#[test]
fn the_mean_score_has_the_interval_of_all_tasks_of_the_epoch() {
    let mut metric = MeanScore::<Classification>::new();
    let scores = |scores: &[f64]| HostOutcome {
        scores: scores.to_vec(),
        ..outcome(0.0, &[0.0], 1, 1).sync()
    };
    metric.update(&scores(&[0.1]), &metadata());
    metric.clear();
    metric.update(&scores(&[0.5, 0.7, 0.9]), &metadata());
    let entry = metric.update(&scores(&[0.7]), &metadata());
    // Sample variance 0.08 / 3, so 1.96 * sqrt(0.08 / 3 / 4) = 0.1600.
    assert_eq!(entry.formatted, "70.00 ± 16.00 %");
    assert!((metric.value().current() - 70.0).abs() < 1e-9);
    assert_eq!(entry.serialized.split(',').nth(1), Some("1"));
    metric.update(&scores(&[0.2]), &metadata());
    assert!((metric.value().current() - 20.0).abs() < 1e-9);
    assert!((metric.running_value().current() - 60.0).abs() < 1e-9);
}

#[test]
fn errors_are_better_the_smaller_they_are() {
    use burn_train::metric::MetricAttributes::Numeric;
    let better = |attributes| match attributes {
        Numeric(numeric) => (numeric.higher_is_better, numeric.unit),
        other => panic!("{other:?}"),
    };
    let accuracy = better(MeanScore::<Classification>::new().attributes());
    assert_eq!(accuracy, (true, Some("%".to_owned())));
    assert_eq!(better(MeanScore::<Regression>::new().attributes()), (false, None));
}
