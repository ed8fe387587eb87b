//! Training on a file that does not stay whole.

use std::fs::File;
use std::path::Path;

use fewshot::data::{Pack, PackWriter, Shades};
use fewshot::prelude::*;
use fewshot::train::{Checkpoint, Event, RunFolder};

use crate::{glyphs, learner};

fn open(path: &Path) -> Splits {
    Pack::open(path).unwrap().splits()
}

#[test]
fn a_pack_that_is_cut_while_it_is_learnt_from_leaves_the_last_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let (file, run) = (folder.path().join("glyphs.pack"), folder.path().join("run"));
    let writer = PackWriter::create(&file).unwrap();
    writer.finish(&glyphs(), Shades::Inverted, "glyphs".into()).unwrap();
    let cut = file.clone();
    let ended = MetaTrainer::new(learner(), Adam::new().init())
        .episodes(open(&file).train.sampler(Protocol::new(3, 1).with_queries(2), 1).unwrap())
        .steps(9)
        .checkpoint_every(2)
        .run_folder(&run)
        .observe(move |event| {
            if matches!(event, Event::Step { metrics, .. } if metrics.step == 5) {
                File::options().write(true).open(&cut).unwrap().set_len(4096).unwrap();
            }
        })
        .fit::<crate::B>();
    let error = ended.err().unwrap().to_string();
    let reason = "glyphs.pack is not a whole pack file: it was cut short after it was opened";
    assert!(error.starts_with("after step 5: ") && error.contains(reason), "{error}");
    assert!(error.ends_with(&format!("the last good state is in {}", run.display())), "{error}");
    assert_eq!(Checkpoint::read(&RunFolder::last(&run)).unwrap().progress().step, 4);
}

#[test]
fn a_validation_that_cannot_be_read_ends_training() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("glyphs.pack");
    let writer = PackWriter::create(&file).unwrap();
    writer.finish(&glyphs(), Shades::Inverted, "glyphs".into()).unwrap();
    let protocol = Protocol::new(3, 1).with_queries(2);
    let validation = open(&file).validation.sampler(protocol, 1).unwrap();
    File::options().write(true).open(&file).unwrap().set_len(4096).unwrap();
    let ended = MetaTrainer::new(learner(), Adam::new().init())
        .episodes(glyphs().train.sampler(protocol, 1).unwrap())
        .validation(validation, 3)
        .steps(2)
        .fit::<crate::B>();
    let error = ended.err().unwrap().to_string();
    assert!(error.starts_with("after step 2: ") && error.contains("cut short"), "{error}");
}
