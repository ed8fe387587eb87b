use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use burn::backend::{Autodiff, Flex};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_models::Conv4Config;
use serde_json::Value;

use super::*;
use crate::data::{DataError, Glyphs, GlyphsConfig};
use crate::episode::{EpisodeSampler, Protocol, TaskKind};
use crate::learners::ProtoNet;
use crate::optim::Adam;
use crate::phase::Phase;
use crate::train::{Checkpoint, RunFolder};

/// Failure at a task.
#[derive(Clone, Copy)]
enum Happens {
    Nothing,
    /// Memory for so many floats is asked of the device, which has less.
    Allocation(usize),
    Mistake,
}

/// Tasks, and what happens at the one with the index 3.
struct Tasks {
    sampler: EpisodeSampler,
    happens: Happens,
}

impl TaskSource for Tasks {
    type Kind = <EpisodeSampler as TaskSource>::Kind;

    fn tasks<B: Backend>(
        &self,
        indices: Range<u64>,
        device: &B::Device,
    ) -> Result<<Self::Kind as TaskKind>::Batch<B>, DataError> {
        match self.happens {
            Happens::Allocation(floats) if indices.contains(&3) => {
                let _ = Tensor::<B, 1>::zeros([floats], device).sum().into_scalar();
            }
            Happens::Mistake if indices.contains(&3) => panic!("a mistake of the program"),
            _ => {}
        }
        self.sampler.tasks::<B>(indices, device)
    }

    fn test_batch_size(&self) -> usize {
        self.sampler.test_batch_size()
    }

    fn settings(&self) -> Value {
        TaskSource::settings(&self.sampler)
    }
}

/// Five steps of one task each, with a checkpoint after every second one.
fn train<B: AutodiffBackend>(
    folder: &Path,
    resume: bool,
    happens: Happens,
) -> Result<u64, TrainError> {
    let device = B::Device::default();
    B::seed(&device, 3);
    let config = GlyphsConfig { train_alphabets: 1, ..GlyphsConfig::default() };
    let protocol = Protocol::new(5, 1).with_queries(1);
    let sampler = Glyphs::generate(&config).train.sampler(protocol, 1).unwrap();
    let encoder = Conv4Config::omniglot().with_channels(4).init::<B>(&device);
    let trainer = MetaTrainer::new(ProtoNet::new(encoder), Adam::new().init());
    let trainer = match resume {
        true => trainer.resume_from(folder),
        false => trainer.run_folder(folder),
    };
    let trainer = trainer.episodes(Tasks { sampler, happens }).steps(5);
    let trainer = trainer.meta_batch(1).checkpoint_every(2);
    Ok(trainer.fit::<B>()?.report.steps)
}

/// A failure in a thread of the device may be reported a step later.
fn a_failing_device_is_an_error_and_the_run_goes_on<B: AutodiffBackend>(floats: usize, late: bool) {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("run");
    let error = train::<B>(&folder, false, Happens::Allocation(floats)).unwrap_err();
    let text = error.to_string();
    match error {
        TrainError::Device { step, phase, folder: kept, .. } => {
            let at_once = (step, phase) == (3, Some(Phase::Data));
            assert!(at_once || late && (3..=4).contains(&step), "{text}");
            assert_eq!(kept.as_deref(), Some(&*folder));
        }
        other => panic!("{other}"),
    }
    assert!(text.starts_with("step ") && text.contains(": out of memory on "), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    let last = Checkpoint::read(&RunFolder::last(&folder)).unwrap();
    assert_eq!(last.progress().step, 2);
    assert_eq!(train::<B>(&folder, true, Happens::Nothing).unwrap(), 5);
}

#[test]
fn flex_that_has_no_memory_ends_training_with_an_error() {
    a_failing_device_is_an_error_and_the_run_goes_on::<Autodiff<Flex>>(1 << 61, false);
}

#[cfg(feature = "wgpu")]
#[test]
fn wgpu_that_has_no_memory_ends_training_with_an_error() {
    type A = Autodiff<burn::backend::Wgpu>;
    a_failing_device_is_an_error_and_the_run_goes_on::<A>(1 << 40, true);
}

#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
fn cuda_that_has_no_memory_ends_training_with_an_error() {
    type A = Autodiff<burn::backend::Cuda>;
    a_failing_device_is_an_error_and_the_run_goes_on::<A>(1 << 40, true);
}

#[test]
fn a_mistake_of_the_program_stays_a_panic() {
    let parent = tempfile::tempdir().unwrap();
    let train = || train::<Autodiff<Flex>>(parent.path(), false, Happens::Mistake);
    let panicked = panic::catch_unwind(AssertUnwindSafe(train)).unwrap_err();
    assert_eq!(panicked.downcast_ref::<&str>(), Some(&"a mistake of the program"));
}
