//! Runs that stop and go on.

use std::fs;
use std::path::Path;
use std::process::Command;

use fewshot::train::{Checkpoint, RunFolder};

use super::{SMALL, complaint, fewshot, image_folder, json, small, stderr, untimed};

#[test]
#[cfg(unix)]
fn a_killed_run_resumes_as_if_it_had_never_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    let expected = json(&small(&whole, &[]));
    let killed = folder.path().join("killed");
    let mut child = start(&killed);
    wait_for_checkpoint(&killed);
    child.kill().unwrap();
    child.wait().unwrap();
    let resumed = json(&small(&killed, &["--resume"]));
    for key in ["accuracy", "ci95", "steps"] {
        assert_eq!(resumed[key], expected[key], "{key}");
    }
    assert_eq!(untimed(&killed), untimed(&whole));
}

#[test]
#[cfg(unix)]
fn an_interrupted_run_is_saved_and_exits_with_130() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut child = start(&run);
    wait_for_checkpoint(&run);
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(json(&small(&run, &["--resume"]))["steps"], 12);
}

#[cfg(unix)]
fn start(run: &Path) -> std::process::Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
    command.args(SMALL).arg(run).stdout(std::process::Stdio::null());
    command.stderr(std::process::Stdio::null()).spawn().unwrap()
}

/// Waits until the run has a checkpoint of steps that it made; how many they are.
#[cfg(unix)]
pub fn wait_for_checkpoint(run: &Path) -> u64 {
    let last = RunFolder::last(run);
    for _ in 0..6000 {
        match Checkpoint::read(&last).map_or(0, |last| last.progress().step) {
            0 => std::thread::sleep(std::time::Duration::from_millis(10)),
            step => return step,
        }
    }
    panic!("no step was made within a minute");
}

#[test]
#[cfg(unix)]
fn a_full_disk_is_reported_and_the_old_checkpoint_stays() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    json(&small(&run, &["--steps", "2"]));
    let before = fs::read(run.join("last.ckpt")).unwrap();
    let args = [&SMALL[..], &[run.to_str().unwrap(), "--resume"]].concat();
    // Files beyond 64 KiB fail to be written, as on a full disk.
    let limited = "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\"";
    let mut command = Command::new("bash");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_fewshot")]).args(args);
    let output = command.output().unwrap();
    assert!(complaint(&output).contains("last.ckpt"), "{}", stderr(&output));
    assert_eq!(fs::read(run.join("last.ckpt")).unwrap(), before);
    let files = fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().path());
    assert!(files.into_iter().all(|file| file.extension().is_none_or(|of| of != "partial")));
    assert_eq!(json(&small(&run, &["--resume"]))["steps"], 12);
}

#[test]
fn a_run_folder_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    json(&small(&run, &[]));
    assert!(complaint(&small(&run, &[])).contains("already holds a run"));
    let other = complaint(&small(&run, &["--resume", "--lr", "0.5"]));
    assert!(other.contains("user.learning_rate 0.001"), "{other}");
    let foreign = folder.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("config.json"), "mine").unwrap();
    assert!(complaint(&small(&foreign, &[])).contains("files of its names"));
    assert_eq!(fs::read_to_string(foreign.join("config.json")).unwrap(), "mine");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(complaint(&small(&file.join("run"), &[])).contains("file"));
    let empty = folder.path().join("empty");
    assert!(complaint(&small(&empty, &["--resume"])).contains("no checkpoint to resume"));
}

#[test]
fn a_checkpoint_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    json(&small(&run, &[]));
    let eval = |path: &Path, more: &[&str]| {
        complaint(&fewshot(&[&["eval", path.to_str().unwrap()], more].concat()))
    };
    assert!(eval(&folder.path().join("nowhere"), &[]).contains("nowhere"));
    let text = folder.path().join("text.ckpt");
    fs::write(&text, "not a checkpoint").unwrap();
    assert!(eval(&text, &[]).contains("not a checkpoint"));
    let damaged = folder.path().join("damaged.ckpt");
    let mut bytes = fs::read(run.join("best.ckpt")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 255;
    fs::write(&damaged, bytes).unwrap();
    assert!(eval(&damaged, &[]).contains("damaged"));
    let images = image_folder(5, 20);
    let data = format!("folder:{}", images.path().display());
    let other = eval(&run, &["--data", &data]);
    assert!(other.contains("1x28x28") && other.contains("3x84x84"), "{other}");
}
