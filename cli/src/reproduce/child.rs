//! This program as a child of itself.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::prelude::*;

/// Set once this process is asked to end.
static ASKED: AtomicBool = AtomicBool::new(false);

/// A child that a terminal has told the same saves its step in this time; another one is killed, from
/// which it continues at its last checkpoint.
const GRACE: Duration = Duration::from_secs(10);

const POLL: Duration = Duration::from_millis(50);

/// The report of `fewshot WORDS --json`, whose other output is passed on.
pub(super) fn report(words: &[&str]) -> Result<Value> {
    static LISTEN: Once = Once::new();
    LISTEN.call_once(|| {
        // Without a handler this process ends at a signal, and its child does not.
        let _ = ctrlc::set_handler(|| ASKED.store(true, Ordering::Relaxed));
    });
    let line = format!("fewshot {}", words.join(" "));
    let not_run = |error: std::io::Error| failed!("`{line}`: {error}");
    let program = std::env::current_exe().map_err(not_run)?;
    let mut command = Command::new(program);
    command.args(words).arg("--json").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(not_run)?;
    let status = wait(&mut child).map_err(not_run)?;
    if ASKED.load(Ordering::Relaxed) || status.code() == Some(130) {
        return Err(CliError::Interrupted);
    }
    if !status.success() {
        return Err(failed!("`{line}` failed"));
    }
    let mut text = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut text).map_err(not_run)?;
    serde_json::from_str(&text).map_err(|error| failed!("`{line}` printed no report: {error}"))
}

/// Waits for the end of a child, whose output is short enough for a pipe.
fn wait(child: &mut Child) -> std::io::Result<ExitStatus> {
    let mut asked_at = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if ASKED.load(Ordering::Relaxed) {
            let since = asked_at.get_or_insert_with(Instant::now);
            if since.elapsed() > GRACE {
                child.kill()?;
            }
        }
        thread::sleep(POLL);
    }
}
