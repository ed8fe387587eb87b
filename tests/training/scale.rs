//! Mixed precision and replicas through the trainer.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::optim::GradientsParams;
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Recorder};
use burn::tensor::DType;
use burn::tensor::backend::AutodiffBackend;
use fewshot::adapt::{Mask, Order};
use fewshot::learners::{Divergence, MetaGradients};
use fewshot::models::{Downsampling, Precision};
use fewshot::precision::{GradScalerConfig, LossScale};

use super::*;

/// Where and how long a run goes.
struct Run<'a> {
    folder: &'a Path,
    resume: bool,
    stop_at: Option<u64>,
}

fn half(scaler: GradScalerConfig, run: &Run<'_>) -> Result<Trained<Net<Flex>>, TrainError> {
    let splits = glyphs();
    let device = Default::default();
    B::seed(&device, 3);
    let config = Conv4Config::omniglot().with_channels(8).with_precision(Precision::MixedF16);
    let learner = ProtoNet::<B, _>::new(config.init(&device));
    let interrupt = Arc::new(AtomicBool::new(false));
    let (flag, stop_at) = (interrupt.clone(), run.stop_at);
    let trainer = MetaTrainer::new(learner, Adam::new().init());
    let trainer = match run.resume {
        true => trainer.resume_from(run.folder),
        false => trainer.run_folder(run.folder),
    };
    trainer
        .learning_rate(StepLrSchedulerConfig::new(0.01, 3).with_gamma(0.5).init().unwrap())
        .episodes(splits.train.sampler(Protocol::new(5, 1).with_queries(3), 1).unwrap())
        .steps(STEPS)
        .loss_scaling(scaler)
        .interrupt(interrupt)
        .observe(move |event| {
            if let (Event::Step { metrics, .. }, Some(stop)) = (event, stop_at) {
                flag.fetch_or(metrics.step == stop, Ordering::Relaxed);
            }
        })
        .fit::<B>()
}

/// The numbers called `name` in the lines of the metrics.
fn column(folder: &Path, name: &str) -> Vec<f64> {
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.filter_map(|line| line[name].as_f64()).collect()
}

#[test]
fn a_skipped_step_moves_neither_the_schedule_nor_the_counters() {
    let folder = tempfile::tempdir().unwrap();
    let run = Run { folder: folder.path(), resume: false, stop_at: None };
    // So large that gradients overflow until it has fallen a while.
    let scaler = GradScalerConfig::new().with_init_scale(2f32.powi(40));
    let trained = half(scaler, &run).unwrap();
    let skipped = trained.report.skipped_steps;
    assert!(skipped > 2, "{skipped} skipped");
    assert_eq!(trained.report.loss_scale, Some(2f32.powi(40 - skipped as i32)));
    assert_eq!(trained.report.steps, STEPS);
    let steps: Vec<_> = (1..=STEPS).map(|step| step as f64).collect();
    assert_eq!(column(folder.path(), "step"), steps);
    let rates = column(folder.path(), "learning_rate");
    let expected: Vec<_> = (0..STEPS as i32).map(|step| 0.01 * 0.5f64.powi(step / 3)).collect();
    for (found, expected) in rates.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-12, "{rates:?}");
    }
    let losses = column(folder.path(), "loss");
    assert!(losses[STEPS as usize - 1] < losses[0], "{losses:?}");
}

#[test]
fn a_skipped_step_leaves_running_averages_where_they_were() {
    let begun_at = |power: i32| {
        let folder = tempfile::tempdir().unwrap();
        let run = Run { folder: folder.path(), resume: false, stop_at: None };
        half(GradScalerConfig::new().with_init_scale(2f32.powi(power)), &run).unwrap()
    };
    let fell = begun_at(40);
    let skipped = fell.report.skipped_steps as i32;
    assert!(skipped > 2, "{skipped} skipped");
    let straight = begun_at(40 - skipped);
    assert_eq!(straight.report.skipped_steps, 0);
    // The averages are among them.
    assert_eq!(parameters(&fell.learner), parameters(&straight.learner));
}

#[test]
fn a_loss_scale_goes_on_where_it_was() {
    let scaler = || GradScalerConfig::new().with_init_scale(2f32.powi(30)).with_growth_interval(3);
    let whole = tempfile::tempdir().unwrap();
    let whole_run = Run { folder: whole.path(), resume: false, stop_at: None };
    let expected = half(scaler(), &whole_run).unwrap();
    let parts = tempfile::tempdir().unwrap();
    let stopped = Run { folder: parts.path(), resume: false, stop_at: Some(5) };
    half(scaler(), &stopped).unwrap_err();
    let resumed = Run { folder: parts.path(), resume: true, stop_at: None };
    let resumed = half(scaler(), &resumed).unwrap();
    assert_eq!(parameters(&resumed.learner), parameters(&expected.learner));
    assert_eq!(resumed.report.loss_scale, expected.report.loss_scale);
    assert_eq!(resumed.report.skipped_steps, expected.report.skipped_steps);
    assert_eq!(column(parts.path(), "loss_scale"), column(whole.path(), "loss_scale"));
    // It grew, too far, and fell again: more steps were skipped than it fell by.
    let fell = 30.0 - expected.report.loss_scale.unwrap().log2();
    assert!(expected.report.skipped_steps as f32 > fell, "{:?}", expected.report);
}

#[test]
fn a_run_in_f16_that_was_killed_before_its_first_checkpoint_is_scaled_all_the_same() {
    let scaler = || GradScalerConfig::new().with_init_scale(1e30).with_min_scale(1e29);
    let folder = tempfile::tempdir().unwrap();
    let begun = Run { folder: folder.path(), resume: false, stop_at: None };
    half(scaler(), &begun).unwrap_err();
    let again = Run { folder: folder.path(), resume: true, stop_at: None };
    let error = half(scaler(), &again).unwrap_err();
    assert!(matches!(error, TrainError::Scale(_)), "{error}");
    let error = half(GradScalerConfig::new(), &again).unwrap_err();
    assert!(matches!(error, TrainError::OtherSettings { .. }), "{error}");
}

#[test]
fn a_scale_that_falls_to_its_floor_ends_training_and_leaves_what_was_good() {
    let folder = tempfile::tempdir().unwrap();
    let run = Run { folder: folder.path(), resume: false, stop_at: None };
    let scaler = GradScalerConfig::new().with_init_scale(1e30).with_min_scale(1e29);
    let error = half(scaler, &run).unwrap_err();
    assert!(matches!(error, TrainError::Scale(_)), "{error}");
    assert_eq!(Checkpoint::read(&RunFolder::last(folder.path())).unwrap().progress().step, 0);
}

/// Fast weights of 1e6 are fine in f32, and infinite where a product rounds them.
#[test]
fn an_inner_loop_that_overflows_in_f16_is_told_and_never_goes_on() {
    let device = Default::default();
    let run = |precision: Precision, steps: usize, mask: Mask| {
        B::seed(&device, 3);
        let config = Conv4Config::omniglot().with_channels(4).with_blocks(2);
        let config = config.with_precision(precision);
        let network = Classifier::new(config.init::<B>(&device), config.features(), 3, &device);
        let inner = InnerLoop::new(steps, 1e7).with_mask(mask);
        MetaTrainer::new(Maml::first_order(network, inner).unwrap(), Adam::new().init())
            .episodes(glyphs().train.sampler(Protocol::new(3, 1).with_queries(2), 1).unwrap())
            .steps(2)
            .meta_batch(2)
            .observe(|_| {})
            .fit::<B>()
    };
    for mask in [Mask::All, Mask::Only(vec!["head".into()]), Mask::Except(vec!["head".into()])] {
        run(Precision::F32, 2, mask.clone()).unwrap();
        for steps in [1, 2] {
            let error = run(Precision::MixedF16, steps, mask.clone()).unwrap_err();
            let TrainError::NonFiniteLoss { divergence, .. } = &error else { panic!("{error}") };
            assert_eq!(*divergence, Some(Divergence { task: 0, step: 1 }), "{error}");
        }
    }
}

#[test]
fn a_device_is_not_named_twice() {
    let sampler = glyphs().train.sampler(Protocol::new(5, 1), 1).unwrap();
    let trainer = MetaTrainer::new(learner(), Adam::new().init()).episodes(sampler).meta_batch(2);
    let error = trainer.fit_on::<B>(vec![Default::default(); 2]).unwrap_err();
    assert!(matches!(error, TrainError::SameDevice { .. }), "{error}");
}

#[test]
fn numbers_that_cut_nothing_are_refused() {
    let sampler = || glyphs().train.sampler(Protocol::new(5, 1), 1).unwrap();
    let trainer = || MetaTrainer::new(learner(), Adam::new().init()).episodes(sampler());
    for trainer in [trainer().accumulate(0), trainer().micro_batch(0)] {
        let error = trainer.fit::<B>().unwrap_err();
        assert!(matches!(error, TrainError::Zero(_)), "{error}");
    }
    let error = trainer().steps(u64::MAX / 2).accumulate(3).fit::<B>().unwrap_err();
    assert!(matches!(error, TrainError::TooManyEpisodes { .. }), "{error}");
}

/// Two logical devices of the one adapter, between which everything goes through the host.
#[cfg(feature = "wgpu")]
#[test]
fn devices_that_share_tasks_learn_what_one_does() {
    use burn::backend::Wgpu;
    use burn::backend::wgpu::WgpuDevice;

    type W = Autodiff<Wgpu>;
    let run = |devices: Vec<WgpuDevice>| {
        let device = devices[0].clone();
        let source = glyphs().train.sampler(Protocol::new(3, 1).with_queries(2), 1).unwrap();
        let config = Conv4Config::omniglot().with_channels(4).with_blocks(2);
        // Drawn on the CPU, for both to begin alike.
        let drawn: Vec<f32> = {
            B::seed(&Default::default(), 3);
            parameters(&ProtoNet::<B, _>::new(config.init(&Default::default())))
        };
        let learner = ProtoNet::<W, _>::new(config.init(&device));
        let learner = learner.map(&mut Filled { values: &drawn });
        let replicas = devices.len();
        let trained = MetaTrainer::new(learner, Sgd::new().init())
            .learning_rate(0.1)
            .episodes(source)
            .steps(2)
            .meta_batch(4)
            .micro_batch(2)
            .observe(|_| {})
            .fit_on::<W>(devices)
            .unwrap();
        assert_eq!(trained.report.replicas, replicas);
        parameters(&trained.learner)
    };
    let one = run(vec![WgpuDevice::DefaultDevice]);
    let two = run(vec![WgpuDevice::DefaultDevice, WgpuDevice::Cpu]);
    assert_eq!(one, two, "the same adapter twice");
}

/// The module with the parameters of one on Flex, since backends draw different ones.
fn with_parameters<W: Backend, M: Module<W>>(
    module: M,
    drawn: impl Module<B>,
    device: &W::Device,
) -> M {
    let recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::default();
    let bytes = Recorder::<B>::record(&recorder, drawn.into_record(), ()).unwrap();
    module.load_record(Recorder::<W>::load(&recorder, bytes, device).unwrap())
}

/// A learner of 3 ways on Glyphs by its precision, the same whatever that is and whatever the device.
struct Sample<D>(D);

impl<D> Sample<D> {
    fn encoder<W: AutodiffBackend<Device = D>>(&self, precision: Precision) -> Conv4<W> {
        let (config, host) = (self.config(precision), Default::default());
        B::seed(&host, 3);
        with_parameters(config.init::<W>(&self.0), config.init::<B>(&host), &self.0)
    }

    fn config(&self, precision: Precision) -> Conv4Config {
        Conv4Config::new([1, 28, 28])
            .with_channels(4)
            .with_blocks(2)
            .with_downsampling(Downsampling::Stride)
            .with_precision(precision)
    }

    fn proto_net<W: AutodiffBackend<Device = D>>(&self, precision: Precision) -> Net<W> {
        ProtoNet::new(self.encoder(precision))
    }

    fn maml<W: AutodiffBackend<Device = D>>(
        &self,
        precision: Precision,
        order: Order,
    ) -> Maml<W, Classifier<W, Conv4<W>>> {
        let features = self.config(precision).features();
        let network = Classifier::new(self.encoder::<W>(precision), features, 3, &self.0);
        let host = Default::default();
        let drawn = Classifier::new(Sample(host).encoder::<B>(precision), features, 3, &host);
        let network = with_parameters(network, drawn, &self.0);
        Maml::new(network, InnerLoop::new(2, 0.1).with_order(order)).unwrap()
    }
}

fn three_ways() -> EpisodeSampler {
    glyphs().train.sampler(Protocol::new(3, 1).with_queries(2), 1).unwrap()
}

fn gradients<W: AutodiffBackend, L: MetaLearner<W>>(learner: &L, device: &W::Device) -> Vec<f32> {
    struct Found<'a>(&'a GradientsParams, Vec<f32>);
    impl<W: AutodiffBackend> ModuleVisitor<W> for Found<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<W, D>>) {
            if let Some(gradient) = self.0.get::<W::InnerBackend, D>(param.id) {
                assert_eq!(gradient.dtype(), DType::F32);
                self.1.extend(gradient.into_data().iter::<f32>());
            }
        }
    }
    let batch = three_ways().batch::<W>(0..2, device);
    let MetaGradients { gradients, .. } = learner.meta_gradients(&batch, LossScale::ONE);
    let mut found = Found(gradients.gradients(), Vec::new());
    learner.visit(&mut found);
    found.1
}

/// That gradients in f16 differ from those in f32, by less than `tolerance` of their joint norm.
fn assert_near<W: AutodiffBackend, L: MetaLearner<W>>(
    made: impl Fn(Precision) -> L,
    device: &W::Device,
    tolerance: f64,
) {
    let [low, exact] =
        [Precision::MixedF16, Precision::F32].map(|it| gradients::<W, L>(&made(it), device));
    assert_eq!(low.len(), exact.len());
    let square = |values: &mut dyn Iterator<Item = f32>| -> f64 {
        values.map(|value| f64::from(value).powi(2)).sum()
    };
    let apart = square(&mut low.iter().zip(&exact).map(|(low, exact)| low - exact));
    let error = (apart / square(&mut exact.iter().copied())).sqrt();
    assert!(error > 0.0 && error < tolerance, "{error}");
}

#[test]
fn gradients_in_f16_are_near_those_in_f32() {
    let device = Default::default();
    let sample = Sample(device);
    assert_near::<B, _>(|precision| sample.proto_net::<B>(precision), &device, 0.05);
    for order in [Order::First, Order::Second] {
        assert_near::<B, _>(|precision| sample.maml::<B>(precision, order), &device, 0.05);
    }
}

/// Training in f16 on a device that computes in it, or says that it does not.
#[cfg(any(feature = "wgpu", feature = "cuda"))]
fn half_trains<W: AutodiffBackend, L: MetaLearner<W>>(made: impl Fn(Precision) -> L) {
    let device = Default::default();
    let trained = MetaTrainer::new(made(Precision::MixedF16), Adam::new().init())
        .episodes(three_ways())
        .steps(3)
        .observe(|_| {})
        .fit::<W>();
    if Precision::MixedF16.check::<W>(&device).is_err() {
        assert!(matches!(trained.err(), Some(TrainError::Precision(_))));
        return;
    }
    let report = trained.unwrap().report;
    assert_eq!((report.steps, report.precision), (3, Precision::MixedF16));
    assert!(report.loss_scale.is_some() && report.last_loss.unwrap().is_finite());
    assert_near::<W, L>(made, &device, 0.05);
}

#[cfg(any(feature = "wgpu", feature = "cuda"))]
fn a_proto_net_trains_in_half<W: AutodiffBackend>() {
    half_trains::<W, _>(|precision| Sample(W::Device::default()).proto_net::<W>(precision));
}

#[cfg(any(feature = "wgpu", feature = "cuda"))]
fn first_order_maml_trains_in_half<W: AutodiffBackend>() {
    let made = |precision| Sample(W::Device::default()).maml::<W>(precision, Order::First);
    half_trains::<W, _>(made);
}

#[cfg(feature = "wgpu")]
mod half_on_wgpu {
    type W = burn::backend::Autodiff<burn::backend::Wgpu>;

    #[test]
    fn a_proto_net_trains() {
        super::a_proto_net_trains_in_half::<W>();
    }

    #[test]
    fn first_order_maml_trains() {
        super::first_order_maml_trains_in_half::<W>();
    }
}

#[cfg(feature = "cuda")]
mod half_on_cuda {
    type W = burn::backend::Autodiff<burn::backend::Cuda>;

    #[test]
    #[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
    fn a_proto_net_trains() {
        super::a_proto_net_trains_in_half::<W>();
    }

    #[test]
    #[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
    fn first_order_maml_trains() {
        super::first_order_maml_trains_in_half::<W>();
    }
}

#[cfg(feature = "wgpu")]
struct Filled<'a> {
    values: &'a [f32],
}

#[cfg(feature = "wgpu")]
impl<B: Backend> burn::module::ModuleMapper<B> for Filled<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|old| {
            let (now, later) = self.values.split_at(old.shape().num_elements());
            self.values = later;
            let tracked = old.is_require_grad();
            let data = burn::tensor::TensorData::new(now.to_vec(), old.dims());
            Tensor::from_data(data, &old.device()).set_require_grad(tracked)
        })
    }
}
