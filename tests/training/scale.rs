//! Mixed precision and replicas through the trainer.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fewshot::models::Precision;
use fewshot::precision::GradScalerConfig;

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
