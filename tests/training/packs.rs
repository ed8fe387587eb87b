//! Training on a file that does not stay whole.

use std::fs::File;

use fewshot::data::{Pack, PackWriter, Shades};
use fewshot::episode::{Classification, TaskSource};

use super::*;
use crate::sources::BatchesAlone;

/// A pack of all glyphs at `file`.
fn packed(file: &Path) -> Splits {
    let writer = PackWriter::create(file).unwrap();
    writer.finish(&glyphs(), Shades::Inverted, "glyphs".into()).unwrap();
    Pack::open(file).unwrap().splits()
}

#[test]
fn episodes_that_are_read_ahead_are_those_that_are_read_in_their_step() {
    let folder = tempfile::tempdir().unwrap();
    let images = [packed(&folder.path().join("glyphs.pack")), glyphs()].map(|splits| splits.train);
    let [of_pack, of_memory] =
        images.map(|set| set.sampler(Protocol::new(3, 1).with_queries(2), 1).unwrap());
    let run = |name: &str| folder.path().join(name);
    let expected = trained(of_memory, &run("memory"));
    assert_eq!(trained(BatchesAlone(of_pack.clone()), &run("step")), expected);
    assert_eq!(trained(of_pack, &run("ahead")), expected);
    assert_eq!(metrics(&run("ahead")), metrics(&run("memory")));
}

fn trained(source: impl TaskSource<Kind = Classification>, run: &Path) -> Vec<f32> {
    let trainer = MetaTrainer::new(learner(), Adam::new().init()).episodes(source);
    let trainer = trainer.steps(6).meta_batch(3).micro_batch(2).run_folder(run);
    parameters::<Flex>(&trainer.fit::<B>().unwrap().learner)
}

#[test]
fn a_pack_that_is_cut_while_it_is_learnt_from_leaves_the_last_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let (file, run) = (folder.path().join("glyphs.pack"), folder.path().join("run"));
    let train = packed(&file).train;
    let cut = file.clone();
    let ended = MetaTrainer::new(learner(), Adam::new().init())
        .episodes(train.sampler(Protocol::new(3, 1).with_queries(2), 1).unwrap())
        .steps(20)
        .checkpoint_every(2)
        .run_folder(&run)
        .observe(move |event| {
            if matches!(event, Event::Step { metrics, .. } if metrics.step == 5) {
                File::options().write(true).open(&cut).unwrap().set_len(4096).unwrap();
            }
        })
        .fit::<B>();
    let error = ended.err().unwrap().to_string();
    let reason = "glyphs.pack is not a whole pack file: it was cut short after it was opened";
    // Up to three batches are read ahead.
    let step = (5..=8).find(|step| error.starts_with(&format!("after step {step}: ")));
    assert!(step.is_some() && error.contains(reason), "{error}");
    assert!(error.ends_with(&format!("the last good state is in {}", run.display())), "{error}");
    let last = Checkpoint::read(&RunFolder::last(&run)).unwrap().progress().step;
    assert_eq!(Some(last), step.map(|step| step / 2 * 2));
}

#[test]
fn a_validation_that_cannot_be_read_ends_training() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("glyphs.pack");
    let protocol = Protocol::new(3, 1).with_queries(2);
    let validation = packed(&file).validation.sampler(protocol, 1).unwrap();
    File::options().write(true).open(&file).unwrap().set_len(4096).unwrap();
    let ended = MetaTrainer::new(learner(), Adam::new().init())
        .episodes(glyphs().train.sampler(protocol, 1).unwrap())
        .validation(validation, 3)
        .steps(2)
        .fit::<B>();
    let error = ended.err().unwrap().to_string();
    assert!(error.starts_with("after step 2: ") && error.contains("cut short"), "{error}");
}
