//! Networks of tasks that take turns on teams of threads.

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Tensor};
use fewshot::adapt::SecondOrder;
use fewshot::episode::{Classification, EpisodeBatch, Support};
use rayon::ThreadPoolBuilder;

use crate::golden::Golden;
use crate::laws::{WAYS, convolutional, learner, outcome_on};

/// The same tasks several times.
fn repeated<B: Backend>(batch: EpisodeBatch<B>, times: usize) -> EpisodeBatch<B> {
    let EpisodeBatch { support: Support { images, labels, ways }, queries, query_labels } = batch;
    EpisodeBatch {
        support: Support {
            images: Tensor::cat(vec![images; times], 0),
            labels: Tensor::cat(vec![labels; times], 0),
            ways,
        },
        queries: Tensor::cat(vec![queries; times], 0),
        query_labels: Tensor::cat(vec![query_labels; times], 0),
    }
}

/// Bit for bit, for every rule, mask and order, by both ways to the derivative: a gradient that one
/// thread loses for another would show, and so would a sum in another order.
pub fn what_teams_find_is_what_one_thread_finds<B: AutodiffBackend>() {
    let golden = Golden::read();
    let mut checked = 0;
    for (case, network) in convolutional(&golden) {
        for route in [SecondOrder::Chain, SecondOrder::Unrolled] {
            let learner = learner::<B>(case, network, DType::F32);
            let learner = learner.with_second_order(route).with_lanes(1);
            let batch = repeated(network.batch::<B>(WAYS, DType::F32), 4);
            let on = |threads: usize| {
                let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let (learner, batch) = (learner.clone(), batch.clone());
                pool.install(move || outcome_on::<B, Classification, _>(&learner, &batch))
            };
            let alone = on(1);
            for threads in [2, 3] {
                assert_eq!(on(threads), alone, "{} by {route:?} on {threads}", case.name);
            }
            checked += 1;
        }
    }
    assert!(checked >= 58, "only {checked} cases");
}
