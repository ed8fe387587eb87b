//! Networks of tasks that run in parallel on worker pools.

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Tensor};
use fewshot::adapt::{InnerLoop, Proximal, SecondOrder};
use fewshot::episode::{Classification, EpisodeBatch, EpisodeTensors, Support};
use fewshot::learners::{AdaptableNetwork, Maml, MetaLearner};
use fewshot::models::Classifier;
use rayon::ThreadPoolBuilder;

use crate::golden::Golden;
use crate::laws::{WAYS, convolutional, encoder, learner, outcome_on};

/// The same tasks several times.
fn repeated<B: Backend>(batch: EpisodeBatch<B>, times: usize) -> EpisodeBatch<B> {
    let EpisodeTensors { support, queries, query_labels } = batch.into_tensors();
    let Support { images, labels, ways } = support;
    EpisodeBatch::from(EpisodeTensors {
        support: Support {
            images: Tensor::cat(vec![images; times], 0),
            labels: Tensor::cat(vec![labels; times], 0),
            ways,
        },
        queries: Tensor::cat(vec![queries; times], 0),
        query_labels: Tensor::cat(vec![query_labels; times], 0),
    })
}

/// Asserts that the gradients are the same, bit for bit, on any number of threads: one that a thread
/// loses for another would show, and so would a sum in another order.
fn assert_same<B: AutodiffBackend, N: AdaptableNetwork<B, Kind = Classification>>(
    what: &str,
    learner: &Maml<B, N>,
    batch: &EpisodeBatch<B>,
) where
    Maml<B, N>: MetaLearner<B>,
{
    let on = |threads: usize| {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let (learner, batch) = (learner.clone(), batch.clone());
        pool.install(move || outcome_on::<B, Classification, _>(&learner, &batch))
    };
    // Of eight networks every thread has one; of three one has two threads.
    assert_eq!(on(4), on(1), "{what}");
}

/// For every rule, mask and order of the golden values, by both ways to the derivative.
pub fn what_worker_pools_find_is_what_one_thread_finds<B: AutodiffBackend>() {
    let golden = Golden::read();
    let mut checked = 0;
    for (case, network) in convolutional(&golden) {
        let batch = repeated(network.batch::<B>(WAYS, DType::F32), 4);
        for route in [SecondOrder::Chain, SecondOrder::Unrolled] {
            let learner = learner::<B>(case, network, DType::F32);
            let learner = learner.with_second_order(route);
            // Eight tasks in as many networks, and in three of which the last has fewer.
            for lanes in [1, 3] {
                let what = format!("{} by {route:?} in {lanes} lanes", case.name);
                assert_same::<B, _>(&what, &learner.clone().with_lanes(lanes), &batch);
            }
            checked += 1;
        }
    }
    assert!(checked >= 58, "only {checked} cases");
}

/// For learners that have no golden values in one step of a chain.
pub fn what_worker_pools_find_by_other_methods_is_the_same<B: AutodiffBackend>() {
    let golden = Golden::read();
    let batch = repeated(golden.networks["conv_pool"].batch::<B>(WAYS, DType::F32), 4);
    let network = || {
        let (encoder, features) = encoder::<B>("conv_pool");
        Classifier::new(encoder, features, WAYS, &Default::default())
    };
    let (inner, proximal) =
        (InnerLoop::new(2, 0.3), Proximal { strength: 4.0, iterations: 2, damped: false });
    let learners = [
        ("implicit", Maml::implicit(network(), inner.clone(), proximal)),
        ("damped", Maml::implicit(network(), inner.clone(), Proximal { damped: true, ..proximal })),
        ("reptile", Maml::reptile(network(), inner.clone(), 4)),
        ("prototypical", Maml::prototypical(network(), inner)),
    ];
    for (what, learner) in learners {
        assert_same::<B, _>(what, &learner.expect("an inner loop").with_lanes(3), &batch);
    }
}
