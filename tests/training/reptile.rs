//! The second moments of Reptile's inner Adam, which go on from step to step.

use fewshot::adapt::InnerRule;
use fewshot::models::Mlp;

use super::*;

/// Six steps of four tasks, in parts of so many tasks.
fn sinusoids(
    folder: &Path,
    (resume, stop_at): (bool, Option<u64>),
    micro_batch: Option<usize>,
) -> Result<Trained<Maml<Flex, Mlp<Flex>>>, TrainError> {
    let device = Default::default();
    B::seed(&device, 3);
    let network = MlpConfig::new(1).with_layers(vec![8, 1]).init::<B>(&device);
    let inner = InnerLoop::new(3, 0.01).with_rule(InnerRule::reptile());
    let interrupt = Arc::new(AtomicBool::new(false));
    let flag = interrupt.clone();
    let trainer = MetaTrainer::new(Maml::reptile(network, inner, 5).unwrap(), Sgd::new().init());
    let trainer = match resume {
        true => trainer.resume_from(folder),
        false => trainer.run_folder(folder),
    };
    let trainer = match micro_batch {
        Some(tasks) => trainer.micro_batch(tasks),
        None => trainer,
    };
    trainer
        .learning_rate(0.5)
        .episodes(RegressionSampler::new(Sinusoids::default(), 5, 5, 1).unwrap())
        .meta_batch(4)
        .steps(6)
        .interrupt(interrupt)
        .observe(move |event| {
            if let (Event::Step { metrics, .. }, Some(stop)) = (event, stop_at) {
                flag.fetch_or(metrics.step == stop, Ordering::Relaxed);
            }
        })
        .fit::<B>()
}

fn learned(folder: &Path, resume: bool, micro_batch: Option<usize>) -> Vec<f32> {
    parameters(&sinusoids(folder, (resume, None), micro_batch).unwrap().learner)
}

#[test]
fn second_moments_are_the_mean_over_the_parts_of_a_step() {
    let [whole, parts] = [None, Some(1)].map(|tasks| {
        let folder = tempfile::tempdir().unwrap();
        learned(folder.path(), false, tasks)
    });
    // The network's 25, their second moments, and how much of an average these are.
    assert_eq!(whole.len(), 25 + 25 + 1);
    assert!((whole[50] - (1.0 - 0.999f32.powi(18))).abs() < 1e-5, "{}", whole[50]);
    for (whole, parts) in whole.iter().zip(&parts) {
        assert!((whole - parts).abs() <= 1e-4 * whole.abs().max(1e-2), "{whole} and {parts}");
    }
}

#[test]
fn second_moments_go_on_where_a_run_was_stopped() {
    let [whole, halves] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let stopped = sinusoids(halves.path(), (false, Some(3)), None);
    assert!(matches!(stopped, Err(TrainError::Interrupted { .. })));
    assert_eq!(learned(halves.path(), true, None), learned(whole.path(), false, None));
}
