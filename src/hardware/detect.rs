//! Trying platforms without being dragged down by them.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::panics::{Silence, first_line, text};
use super::{Detection, DeviceInfo, DeviceKey, Found, Isolation, Platform, Rejection};

/// What a platform answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) devices: Vec<DeviceInfo>,
    pub(super) rejected: Vec<Rejection>,
}

impl Report {
    /// Finds and tries the devices of `platform`, in this thread.
    pub(super) fn of(platform: &dyn Platform) -> Self {
        let mut report = Self::default();
        match platform.find() {
            Err(reason) => report.reject(platform.name(), reason),
            Ok(found) if found.is_empty() => report.reject(platform.name(), "it has no device"),
            Ok(found) => {
                for (index, found) in found.into_iter().enumerate() {
                    report.try_device(platform, index, found);
                }
            }
        }
        report
    }

    fn try_device(&mut self, platform: &dyn Platform, index: usize, found: Found) {
        let key = DeviceKey::new(platform.name(), index);
        let start = Instant::now();
        match platform.probe(index) {
            Err(reason) => self.reject(&key.to_string(), format!("{}: {reason}", found.name)),
            Ok(probed) => self.devices.push(DeviceInfo {
                key,
                name: found.name,
                class: found.class,
                tier: found.tier,
                driver: found.driver,
                passed_over: found.passed_over,
                memory: probed.memory,
                capabilities: probed.capabilities,
                probe_ms: start.elapsed().as_secs_f64() * 1e3,
            }),
        }
    }

    fn reject(&mut self, what: &str, reason: impl Into<String>) {
        self.rejected.push(Rejection { what: what.to_owned(), reason: reason.into() });
    }

    fn rejecting(what: &str, reason: impl Into<String>) -> Self {
        let mut report = Self::default();
        report.reject(what, reason);
        report
    }
}

/// The reports of all platforms, in their order.
pub(super) fn run(platforms: Vec<Box<dyn Platform>>, detection: &Detection) -> Vec<Report> {
    let _silence = Silence::begin();
    let deadline = Instant::now() + detection.deadline;
    let waiting = platforms.into_iter().map(|platform| Waiting::start(platform, detection));
    let waiting = waiting.collect::<Vec<_>>();
    waiting.into_iter().map(|waiting| waiting.finish(deadline, detection.deadline)).collect()
}

/// A platform that is being tried.
enum Waiting {
    Thread { name: String, answer: mpsc::Receiver<Report>, thread: thread::JoinHandle<()> },
    Process { name: String, child: Child },
    Answered(Report),
}

impl Waiting {
    fn start(platform: Box<dyn Platform>, detection: &Detection) -> Self {
        match &detection.isolation {
            Isolation::Process { program, arguments } if !is_safe(platform.name()) => {
                Self::process(platform.name(), program, arguments)
            }
            _ => Self::thread(platform),
        }
    }

    fn thread(platform: Box<dyn Platform>) -> Self {
        let name = platform.name().to_owned();
        let (send, answer) = mpsc::channel();
        let work = move || drop(send.send(Report::of(platform.as_ref())));
        match thread::Builder::new().name(format!("probe {name}")).spawn(work) {
            Ok(thread) => Self::Thread { name, answer, thread },
            Err(error) => Self::Answered(Report::rejecting(&name, format!("no thread: {error}"))),
        }
    }

    fn process(name: &str, program: &Path, arguments: &[String]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).arg(name);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        match command.spawn() {
            Ok(child) => Self::Process { name: name.to_owned(), child },
            Err(error) => Self::Answered(Report::rejecting(
                name,
                format!("its probe could not be started, {}: {error}", program.display()),
            )),
        }
    }

    fn finish(self, deadline: Instant, given: Duration) -> Report {
        let late = |name: &str| {
            Report::rejecting(name, format!("no answer within {:.1} s", given.as_secs_f64()))
        };
        match self {
            Self::Answered(report) => report,
            Self::Thread { name, answer, thread } => {
                let left = deadline.saturating_duration_since(Instant::now());
                match answer.recv_timeout(left) {
                    Ok(report) => report,
                    Err(RecvTimeoutError::Timeout) => late(&name),
                    Err(RecvTimeoutError::Disconnected) => {
                        let panic = thread.join().err().map(|panic| text(&*panic));
                        let line = first_line(panic.as_deref().unwrap_or_default()).to_owned();
                        Report::rejecting(&name, format!("its probe failed: {line}"))
                    }
                }
            }
            Self::Process { name, mut child } => match output(&mut child, deadline) {
                None => late(&name),
                Some(Err(reason)) => Report::rejecting(&name, reason),
                Some(Ok(text)) => serde_json::from_str(&text).unwrap_or_else(|error| {
                    Report::rejecting(&name, format!("its probe answered nonsense: {error}"))
                }),
            },
        }
    }
}

/// Whether a crash of the platform would be one of this program anyway.
fn is_safe(name: &str) -> bool {
    ["flex", "ndarray", "candle"].contains(&name)
}

/// What `child` prints, or why it failed; `None`, and the child killed, if it is too late.
fn output(child: &mut Child, deadline: Instant) -> Option<Result<String, String>> {
    let mut stdout = child.stdout.take().expect("stdout is piped");
    // A pipe that is full would keep the child from ending.
    let reader = thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text).map_err(|error| error.to_string())
    });
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                // It may have ended just now; either way nothing of it must stay.
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
            Err(error) => return Some(Err(format!("its probe was lost: {error}"))),
        }
    };
    let text = reader.join().unwrap_or_else(|_| Err("its answer was lost".to_owned()));
    if !status.success() {
        return Some(Err(format!("its probe crashed ({status})")));
    }
    Some(text)
}
