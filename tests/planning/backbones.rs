//! Formulas of memory, against what training takes.

use burn::module::AutodiffModule;
use burn::tensor::backend::AutodiffBackend;
use fewshot::adapt::{InnerLoop, InnerRule, SecondOrder};
use fewshot::catalog::{Backbone, BackboneConfig, Estimate, backbone, backbones};
use fewshot::data::{ImageSet, ImageShape};
use fewshot::episode::Classification;
use fewshot::hardware::{
    Activations, Bytes, Checkpointing, MemoryPlanner, Method, ModelProfile, OptimizerKind,
    TaskShape,
};
use fewshot::kernels::{Route, route};
use fewshot::learners::AdaptableNetwork;
use fewshot::models::ResNet12Config;

use super::*;

/// Tasks of five classes whose content does not matter.
fn noise(image: [usize; 3], queries: usize) -> EpisodeSampler {
    let [c, h, w] = image;
    let (classes, each) = (6, 1 + queries);
    let count = classes * each * c * h * w;
    let pixels: Vec<_> =
        (0..count).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let names = (0..classes).map(|class| (class.to_string(), each));
    let images = ImageSet::new(ImageShape::new(c, h, w), pixels, names).unwrap();
    images.sampler(Protocol::new(5, 1).with_queries(queries), 1).unwrap()
}

/// A way to train a backbone, and how much at a time.
#[derive(Clone, Copy, Debug)]
struct Way {
    method: Method,
    checkpointing: Checkpointing,
    queries: usize,
    tasks: usize,
}

impl Way {
    fn new(method: Method, queries: usize, tasks: usize) -> Self {
        Self { method, checkpointing: Checkpointing::Nothing, queries, tasks }
    }

    /// The plan of a bundled backbone.
    fn planned<B: AutodiffBackend>(self, backbone: &Backbone) -> Bytes {
        let protocol = Protocol::new(5, 1).with_queries(self.queries);
        let (adam, device) = (OptimizerKind::Adam, B::Device::default());
        let estimate =
            Estimate::new::<B>(backbone, self.method, protocol, adam, route::<B>(), &device);
        let planner = estimate.with_checkpointing(self.checkpointing).planner;
        planner.plan(self.tasks).total().bytes
    }

    fn measured<B: AutodiffBackend>(self, backbone: &Backbone) -> Bytes {
        let (image, features) = (backbone.image, backbone.features());
        let device = Default::default();
        match &backbone.config {
            BackboneConfig::Conv4(config) => {
                self.trained::<B, _>(config.init::<B>(&device), features, image)
            }
            BackboneConfig::Mlp(config) => {
                self.trained::<B, _>(config.init::<B>(&device), features, image)
            }
        }
    }

    /// Peak of memory in training an encoder.
    fn trained<B, E>(self, encoder: E, features: usize, image: [usize; 3]) -> Bytes
    where
        B: AutodiffBackend,
        E: Encoder<B> + AutodiffModule<B, InnerModule: Encoder<B::InnerBackend>>,
        Classifier<B, E>: AdaptableNetwork<B, Kind = Classification>
            + AutodiffModule<B, InnerModule: AdaptableNetwork<B::InnerBackend, Kind = Classification>>,
    {
        if self.method == Method::ProtoNet {
            let learner = ProtoNet::<B, E>::new(encoder).with_checkpointing(self.checkpointing);
            return self.peak::<B, _>(&learner, image);
        }
        let network = Classifier::<B, E>::new(encoder, features, 5, &Default::default());
        let inner = |steps| InnerLoop::new(steps, 0.01);
        let learner = match self.method {
            Method::ProtoNet => unreachable!("it has no inner loop"),
            Method::FirstOrder { steps } => Maml::first_order(network, inner(steps)),
            Method::Reptile { steps, batch } => {
                Maml::reptile(network, inner(steps).with_rule(InnerRule::reptile()), batch)
            }
            Method::Anil { steps } => Maml::anil(network, inner(steps)),
            Method::Maml { steps } => Maml::new(network, inner(steps)),
            Method::MamlChain { steps } => Maml::new(network, inner(steps))
                .map(|learner| learner.with_second_order(SecondOrder::Chain)),
        };
        self.peak::<B, _>(&learner.unwrap(), image)
    }

    /// The peak of a run after one that warms up; where memory is sampled, which may miss a peak, the larger of two.
    fn peak<B: AutodiffBackend, L: MetaLearner<B>>(self, learner: &L, image: [usize; 3]) -> Bytes {
        let optimizer = Adam::new().init::<B, L>();
        let (source, device, all) =
            (noise(image, self.queries), B::Device::default(), Bytes(u64::MAX));
        let sizes = self.tasks..=self.tasks;
        let run = || {
            let sizes = sizes.clone();
            find_meta_batch(learner, &optimizer, &source, &device, all, sizes).unwrap().peak
        };
        run();
        match route::<B>() {
            Route::Device(_) => run().max(run()),
            _ => run(),
        }
    }
}

/// Bounds of the formulas, in percent.
const BOUND: f64 = 40.0;

/// A line for the way, and by how much the plan is off, in percent.
fn compared(name: &str, way: Way, planned: Bytes, measured: Bytes) -> (String, f64) {
    let off = 100.0 * (planned.0 as f64 / measured.0 as f64 - 1.0);
    let row = format!("{name:24} {way:?}: {measured} measured, {planned} planned, {off:+.1} %");
    println!("{row}");
    (row, off)
}

/// On one thread: of two tasks at once, how much of their working memory there is at a time changes
/// from run to run.
fn alone<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap().install(work)
}

fn compare<B: AutodiffBackend>(backbone: &Backbone, way: Way) -> (String, f64) {
    B::seed(&Default::default(), 3);
    let [planned, measured] = alone(|| [way.planned::<B>(backbone), way.measured::<B>(backbone)]);
    compared(&backbone.name, way, planned, measured)
}

/// Compares every way for every backbone, and fails beyond the bound.
fn formulas_come_near<B: AutodiffBackend>(backbones: &[Backbone], ways: &[Way]) {
    let all =
        backbones.iter().flat_map(|backbone| ways.iter().map(|way| compare::<B>(backbone, *way)));
    let far = all.filter(|(_, off)| off.abs() >= BOUND).map(|(row, _)| row).collect::<Vec<_>>();
    assert!(far.is_empty(), "{}", far.join("\n"));
}

/// Ways of the first and of the second order.
fn ways(queries: usize, tasks: usize) -> Vec<Way> {
    let steps = 2;
    let methods = [
        Method::ProtoNet,
        Method::FirstOrder { steps },
        Method::Maml { steps },
        Method::MamlChain { steps },
    ];
    methods.map(|method| Way::new(method, queries, tasks)).to_vec()
}

#[test]
fn formulas_come_near_for_every_bundled_backbone() {
    formulas_come_near::<B>(backbones(), &ways(3, 2));
}

#[test]
fn formulas_come_near_for_one_task_and_for_many() {
    let small = ["conv4-omniglot", "conv4-omniglot-strided", "mlp-omniglot"];
    let small = small.map(|name| backbone(name).unwrap().clone());
    formulas_come_near::<B>(&small, &[ways(15, 1), ways(3, 8)].concat());
}

#[test]
fn formulas_come_near_for_anil_and_reptile() {
    let steps = 2;
    let ways = [
        Way::new(Method::Anil { steps }, 3, 2),
        Way::new(Method::Reptile { steps, batch: 10 }, 3, 2),
    ];
    formulas_come_near::<B>(backbones(), &ways);
}

#[test]
fn formulas_come_near_for_resnet12() {
    let config = ResNet12Config::new().with_widths([16, 24, 32, 48]);
    let (image, features) = ([3, 84, 84], config.features());
    let two = Way::new(Method::ProtoNet, 1, 2);
    for way in [ways(1, 1), vec![two]].concat() {
        let [planned, measured] = alone(|| {
            let network = config.init::<B>(&Default::default());
            let queries = 5 * way.queries;
            let task = TaskShape { support: 5, queries, example: Bytes(4 * 3 * 84 * 84 + 8) };
            let planner = MemoryPlanner {
                profile: ModelProfile::of::<B, _>(&network),
                optimizer: OptimizerKind::Adam,
                weight_averages: 0,
                method: way.method,
                lanes: 1,
                task,
                activations: Activations::modelled(&config, task, route::<B>(), way.checkpointing),
                measured: None,
                largest_buffer: None,
            };
            let planned = planner.plan(way.tasks).total().bytes;
            [planned, way.trained::<B, _>(network, features, image)]
        });
        let (row, off) = compared("resnet12", way, planned, measured);
        assert!(off.abs() < BOUND, "{row}");
    }
}

#[test]
fn formulas_come_near_for_segments_of_a_deep_network() {
    let config = Conv4Config::mini_imagenet().with_blocks(8).with_halve_every(2);
    let deep = Backbone::new("conv8", config.image, BackboneConfig::Conv4(config));
    let way = |queries, tasks| Way {
        checkpointing: Checkpointing::Segments,
        ..Way::new(Method::ProtoNet, queries, tasks)
    };
    formulas_come_near::<B>(&[deep], &[way(1, 1), way(1, 4), way(3, 2)]);
}

/// The peaks of a device are samples, so steps must be long enough to be seen.
#[cfg(any(feature = "wgpu", feature = "cuda"))]
mod on_a_device {
    use super::*;

    fn bundled(name: &str) -> Vec<Backbone> {
        vec![backbone(name).expect("a bundled backbone").clone()]
    }

    fn way(method: Method, tasks: usize) -> Way {
        Way::new(method, 3, tasks)
    }

    pub fn formulas_come_near<G: AutodiffBackend>() {
        let way = way(Method::ProtoNet, 8);
        super::formulas_come_near::<G>(&bundled("conv4-omniglot-strided"), &[way]);
    }

    /// Tasks side by side are asked for whole passes between two samples, which see least of these.
    pub fn formulas_cover_what_is_seen_of_tasks_side_by_side<G: AutodiffBackend>() {
        let maml = way(Method::Maml { steps: 2 }, 2);
        for name in ["conv4-omniglot-strided", "mlp-omniglot"] {
            let (row, off) = compare::<G>(&bundled(name)[0], maml);
            assert!((-BOUND..80.0).contains(&off), "{row}");
        }
    }

    pub fn formulas_come_near_for_all_ways<G: AutodiffBackend>() {
        super::formulas_come_near::<G>(&bundled("conv4-omniglot-strided"), &ways(3, 3));
        super::formulas_come_near::<G>(&bundled("conv4-omniglot"), &ways(3, 2));
    }

    pub fn formulas_come_near_for_large_images<G: AutodiffBackend>() {
        for name in ["conv4-mini-imagenet-32", "conv4-mini-imagenet"] {
            let way = Way::new(Method::ProtoNet, 1, 1);
            super::formulas_come_near::<G>(&bundled(name), &[way]);
        }
    }
}

#[cfg(feature = "wgpu")]
mod on_wgpu {
    use super::on_a_device;

    type W = burn::backend::Autodiff<burn::backend::Wgpu>;

    #[test]
    fn formulas_come_near() {
        on_a_device::formulas_come_near::<W>();
    }

    #[test]
    fn formulas_cover_what_is_seen_of_tasks_side_by_side() {
        on_a_device::formulas_cover_what_is_seen_of_tasks_side_by_side::<W>();
    }

    #[test]
    #[ignore = "takes software renderers ten minutes"]
    fn formulas_come_near_for_all_ways() {
        on_a_device::formulas_come_near_for_all_ways::<W>();
    }

    #[test]
    #[ignore = "takes software renderers minutes"]
    fn formulas_come_near_for_large_images() {
        on_a_device::formulas_come_near_for_large_images::<W>();
    }
}

#[cfg(feature = "cuda")]
mod on_cuda {
    use super::on_a_device;

    type C = burn::backend::Autodiff<burn::backend::Cuda>;

    #[test]
    #[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
    fn formulas_come_near() {
        on_a_device::formulas_come_near::<C>();
    }

    #[test]
    #[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
    fn formulas_cover_what_is_seen_of_tasks_side_by_side() {
        on_a_device::formulas_cover_what_is_seen_of_tasks_side_by_side::<C>();
    }

    #[test]
    #[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
    fn formulas_come_near_for_all_ways() {
        on_a_device::formulas_come_near_for_all_ways::<C>();
    }

    #[test]
    #[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
    fn formulas_come_near_for_large_images() {
        on_a_device::formulas_come_near_for_large_images::<C>();
    }
}
