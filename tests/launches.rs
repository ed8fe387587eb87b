//! How many kernels a step launches on an accelerator: at 5.6 microseconds each on an H100, their number
//! bounds the speed of small models, whatever they compute.
//!
//! CubeCL logs every kernel that runs. A step's are those of two steps of training without those of
//! one, so that nothing counts that is done once.
#![cfg(feature = "wgpu")]
#![recursion_limit = "256"]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;
use std::{fmt, fs, thread};

use burn::backend::{Autodiff, Wgpu};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use cubecl::config::profiling::ProfilingLogLevel;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use fewshot::data::Preset;
use fewshot::episode::{DataPlacement, EpisodeSampler};
use fewshot::kernels::{Metric, scores};
use fewshot::models::{Classifier, Conv4Config, MlpConfig};
use fewshot::plasticity::{HierarchyConfig, Rate, Sources, Subspace};
use fewshot::prelude::*;

type A = Autodiff<Wgpu>;

/// Where CubeCL logs, from its first use on.
static LOG: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder").keep();
    let path = folder.join("launches");
    let mut config = CubeClRuntimeConfig::default();
    config.profiling.logger.level = ProfilingLogLevel::Minimal;
    config.profiling.logger.file = Some(path.clone());
    CubeClRuntimeConfig::set(config);
    path
});

/// Launches by kernel.
#[derive(Clone, Debug, Default, PartialEq)]
struct Launches(BTreeMap<String, i64>);

impl Launches {
    fn all(&self) -> i64 {
        self.0.values().sum()
    }

    /// Those so far, once the log has all.
    fn so_far() -> Self {
        Wgpu::<f32>::sync(&Default::default()).expect("a device that works");
        let read = || fs::read_to_string(&*LOG).unwrap_or_default();
        let mut text = read();
        loop {
            thread::sleep(Duration::from_millis(300));
            let more = read();
            if more == text {
                break;
            }
            text = more;
        }
        let mut found = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            *found.0.entry(line.to_owned()).or_default() += 1;
        }
        found
    }

    fn without(mut self, others: &Self) -> Self {
        for (name, count) in &others.0 {
            *self.0.entry(name.clone()).or_default() -= count;
        }
        self.0.retain(|_, count| *count != 0);
        self
    }

    fn of(work: impl FnOnce()) -> Self {
        let _ = &*LOG;
        let before = Self::so_far();
        work();
        Self::so_far().without(&before)
    }

    /// Of one step, where `train` makes as many as it is told.
    fn of_a_step(train: impl Fn(u64)) -> Self {
        let one = Self::of(|| train(1));
        Self::of(|| train(2)).without(&one)
    }
}

impl fmt::Display for Launches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} launches:", self.all())?;
        let mut rows: Vec<_> = self.0.iter().collect();
        rows.sort_by_key(|(_, count)| -**count);
        rows.into_iter().try_for_each(|(name, count)| writeln!(f, "{count:5}  {name}"))
    }
}

fn assert_at_most(most: i64, what: &str, found: &Launches) {
    println!("{what}: {found}");
    assert!(found.all() > 0, "{what}: nothing was counted");
    assert!(found.all() <= most, "{what}: at most {most} are wanted, found {found}");
}

/// Tasks of so many classes with one example each and so many queries.
fn tasks(ways: usize, queries: usize) -> EpisodeSampler {
    let glyphs = Glyphs::generate(&GlyphsConfig::default());
    glyphs.train.sampler(Protocol::new(ways, 1).with_queries(queries), 7).expect("a sampler")
}

fn step_of_a_prototypical_network(channels: usize, tasks: &EpisodeSampler) -> Launches {
    let network = Conv4Config::omniglot().with_channels(channels);
    Launches::of_a_step(|steps| {
        let learner = ProtoNet::<A, _>::new(network.init(&Default::default()));
        MetaTrainer::new(learner, Adam::new().init())
            .episodes(tasks.clone())
            .steps(steps)
            .fit()
            .expect("a run");
    })
}

#[test]
fn a_step_of_a_prototypical_network_takes_no_more_launches_than_it_did() {
    let _ = &*LOG;
    let found = step_of_a_prototypical_network(4, &tasks(5, 2));
    assert_at_most(46, "a step of a prototypical network", &found);
}

#[test]
fn augmented_images_are_one_launch() {
    let _ = &*LOG;
    let sampler = tasks(5, 2).with_data_on(DataPlacement::Device);
    let augmentation = Preset::Strong.for_image(sampler.dataset().image_shape());
    let sampler = sampler.with_augmentation(augmentation).expect("an augmentation");
    let device = Default::default();
    // The images and labels are uploaded once.
    sampler.batch::<Wgpu>(0..2, &device).joined();
    let of_a_batch = Launches::of(|| drop(sampler.batch::<Wgpu>(2..4, &device).joined()));
    assert_at_most(1, "an augmented batch", &of_a_batch);
}

/// Of a test of so many episodes of 30 images, all of which the first hundred show.
fn test_of_a_prototypical_network(episodes: usize) -> Launches {
    let _ = &*LOG;
    let glyphs = Glyphs::generate(&GlyphsConfig {
        train_alphabets: 1,
        characters: 5,
        drawers: 6,
        size: 12,
        ..GlyphsConfig::default()
    });
    let tasks = glyphs.train.sampler(Protocol::new(5, 1).with_queries(2), 7).expect("a sampler");
    let network = Conv4Config::new([1, 12, 12]).with_channels(4).with_blocks(2);
    let device = Default::default();
    let learner = ProtoNet::<Wgpu, _>::new(network.init(&device));
    let test = || println!("{}", Evaluator::new(episodes).run(&learner, &tasks, &device));
    // The first forward pass makes the parameters.
    test();
    Launches::of(test)
}

#[test]
fn a_test_of_a_prototypical_network_takes_few_launches_whatever_the_number_of_episodes() {
    let [few, many, two_parts, three_parts] =
        [100, 500, 1000, 1500].map(test_of_a_prototypical_network);
    assert_eq!(few.all(), many.all(), "{few}{many}");
    // Episodes are judged 512 at a time.
    let part = three_parts.without(&two_parts);
    assert_at_most(11, "512 episodes of which all images are embedded", &part);
    assert_eq!(two_parts.without(&many).all(), part.all());
}

fn step_of_maml(channels: usize, count: u64, inner_steps: usize) -> Launches {
    let network = Conv4Config::omniglot_strided().with_channels(channels);
    Launches::of_a_step(|steps| {
        let device = Default::default();
        let classifier =
            Classifier::<A, _>::new(network.init(&device), network.features(), 5, &device);
        let learner = Maml::new(classifier, InnerLoop::new(inner_steps, 0.4)).expect("a learner");
        MetaTrainer::new(learner, Adam::new().init())
            .episodes(tasks(5, 1))
            .meta_batch(count)
            .steps(steps)
            .fit()
            .expect("a run");
    })
}

#[test]
fn a_step_of_second_order_maml_takes_no_more_launches_for_more_tasks() {
    let _ = &*LOG;
    let [few, many] = [2, 7].map(|tasks| step_of_maml(4, tasks, 1));
    assert_at_most(141, "a step of MAML of 2 tasks", &few);
    assert_eq!(few.all(), many.all(), "{many}");
    let far = step_of_maml(4, 2, 5);
    assert_at_most(493, "a step of MAML with five inner steps", &far);
}

fn step_of_maml_on_sinusoids(count: u64) -> Launches {
    Launches::of_a_step(|steps| {
        let config = MlpConfig::new(1).with_layers(vec![40, 40, 1]);
        let network = config.init::<A>(&Default::default());
        let learner = Maml::new(network, InnerLoop::new(1, 0.01)).expect("a learner");
        let tasks = RegressionSampler::new(Sinusoids::default(), 10, 10, 1);
        MetaTrainer::new(learner, Adam::new().init())
            .episodes(tasks.expect("a sampler"))
            .meta_batch(count)
            .steps(steps)
            .fit::<A>()
            .expect("a run");
    })
}

#[test]
fn a_step_of_maml_on_sinusoids_takes_no_more_launches_than_it_did() {
    let _ = &*LOG;
    let found = step_of_maml_on_sinusoids(5);
    assert_at_most(20, "a step of MAML on sinusoids", &found);
}

/// Sums over more elements may take a launch for their parts.
#[test]
fn steps_of_the_papers_sizes_take_few_launches_too() {
    let _ = &*LOG;
    let found = step_of_a_prototypical_network(64, &tasks(60, 5));
    assert_at_most(51, "a step of a prototypical network with 60 ways and 64 channels", &found);
    let found = step_of_maml(64, 8, 1);
    assert_at_most(142, "a step of MAML of 8 tasks with 64 channels", &found);
    let found = step_of_maml_on_sinusoids(1000);
    assert_at_most(20, "a step of MAML on 1000 sinusoids", &found);
}

fn multiplied_by_burn(found: &Launches) -> bool {
    found.0.keys().any(|name| name.to_lowercase().contains("matmul"))
}

/// Burn's own product of f32 takes TF32 where there are tensor cores, which nobody asked for.
#[test]
fn second_derivatives_of_scores_are_without_products_of_burn() {
    let _ = &*LOG;
    let device = Default::default();
    let ones = |rows: usize| Tensor::<A, 3>::ones([2, rows, 3], &device);
    assert!(multiplied_by_burn(&Launches::of(|| drop(ones(4).matmul(ones(3))))));
    for metric in [Metric::SquaredEuclidean, Metric::Cosine] {
        let found = Launches::of(|| {
            let [queries, prototypes] = [ones(4), ones(2) * 0.5].map(Tensor::require_grad);
            let [lifted, others] =
                [&queries, &prototypes].map(|x| Tensor::<Autodiff<A>, 3>::from_inner(x.clone()));
            let lifted = lifted.require_grad();
            let loss = scores(lifted.clone(), others, metric).exp().sum();
            let first = lifted.grad(&loss.backward()).expect("it was tracked");
            let second = (first.clone() * first).sum().backward();
            let found = prototypes.grad(&second).expect("it was tracked");
            assert!(found.into_data().iter::<f32>().all(f32::is_finite));
        });
        assert!(found.all() > 0 && !multiplied_by_burn(&found), "{metric}: {found}");
    }
}

/// Of twenty ticks of three layers, so many in a call, once begun.
fn twenty_ticks(ticks_of_a_call: usize) -> Launches {
    let device = Default::default();
    let config = HierarchyConfig::new(vec![6, 8, 5, 3], vec![1, 2, 4]).with_top_down(0.2);
    let hierarchy = config.init::<Wgpu>(&device).expect("a hierarchy");
    let run = |ticks: usize| {
        let sources = Sources::new(6, 3, 1).expect("sources");
        let mut stream = sources.stream(2);
        Launches::of(|| {
            let start = hierarchy.start(Subspace, Rate::fixed(0.01).expect("a rate"));
            let mut running = start.with_relative_rates(9.0).expect("a time constant");
            for _ in 0..ticks / ticks_of_a_call {
                running = running.learn(stream.next(ticks_of_a_call, &device)).expect("a run");
            }
        })
    };
    let twenty = run(20);
    run(40).without(&twenty)
}

#[test]
fn a_tick_of_a_plastic_hierarchy_takes_at_most_four_launches() {
    let _ = &*LOG;
    let [alone, together] = [1, 20].map(twenty_ticks);
    assert_at_most(4 * 20, "twenty ticks, one after the other", &alone);
    assert_at_most(4, "twenty ticks at once", &together);
}
