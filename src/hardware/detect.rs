//! Trying platforms without being dragged down by them.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::panics::{Silence, quietly};
use super::platforms::HOST_PLATFORMS;
use super::{Detection, DeviceInfo, DeviceKey, Found, Isolation, Platform, Rejection};

/// What a platform answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) devices: Vec<DeviceInfo>,
    pub(super) rejected: Vec<Rejection>,
}

impl Report {
    /// Finds and tries the devices of `platform`, in this thread; a panic is the device's or the
    /// platform's failure.
    pub(super) fn of(platform: &dyn Platform) -> Self {
        match quietly(|| platform.find()).unwrap_or_else(Err) {
            Err(reason) => Self::rejecting(platform, reason),
            Ok(found) if found.is_empty() => {
                Self::rejecting(platform, "it has no device".to_owned())
            }
            Ok(found) => {
                let mut report = Self::default();
                for (index, found) in found.into_iter().enumerate() {
                    report.try_device(platform, index, found);
                }
                report
            }
        }
    }

    fn try_device(&mut self, platform: &dyn Platform, index: usize, found: Found) {
        let key = DeviceKey::new(platform.name(), index);
        let start = Instant::now();
        match quietly(|| platform.probe(index)).unwrap_or_else(Err) {
            Err(reason) => self.rejected.push(Rejection {
                what: key.to_string(),
                tier: found.tier,
                tried: true,
                reason: format!("{}: {reason}", found.name),
            }),
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

    fn rejecting(platform: &dyn Platform, reason: String) -> Self {
        let (what, tier, tried) =
            (platform.name().to_owned(), platform.tier(), platform.is_built());
        Self { devices: Vec::new(), rejected: vec![Rejection { what, tier, tried, reason }] }
    }
}

/// The reports of all platforms, in their order.
pub(super) fn run(platforms: Vec<Box<dyn Platform>>, detection: &Detection) -> Vec<Report> {
    let _silence = Silence::begin();
    let deadline = Instant::now() + detection.deadline;
    let waiting = platforms.into_iter().map(|platform| PendingProbe::start(platform, detection));
    let waiting = waiting.collect::<Vec<_>>();
    waiting.into_iter().map(|waiting| waiting.finish(deadline, detection.deadline)).collect()
}

/// A platform that is being tried.
struct PendingProbe {
    /// What its report is if there is no answer: all but the reason.
    silent: Report,
    answer: Receiver<Report>,
    /// The process it is tried in, if that is not this one, and what it prints.
    process: Option<(Child, Receiver<String>)>,
}

impl PendingProbe {
    fn start(platform: Box<dyn Platform>, detection: &Detection) -> Self {
        let silent = Report::rejecting(platform.as_ref(), String::new());
        match &detection.isolation {
            Isolation::Process { program, arguments }
                if platform.is_built() && !HOST_PLATFORMS.contains(&platform.name()) =>
            {
                Self::process(silent, platform.name(), program, arguments)
            }
            _ => Self::thread(silent, platform),
        }
    }

    fn thread(silent: Report, platform: Box<dyn Platform>) -> Self {
        let (send, answer) = mpsc::channel();
        let name = format!("probe {}", platform.name());
        let work = move || drop(send.send(Report::of(platform.as_ref())));
        // Without a thread nobody sends, and that is the answer.
        let _ = thread::Builder::new().name(name).spawn(work);
        Self { silent, answer, process: None }
    }

    fn process(silent: Report, name: &str, program: &Path, arguments: &[String]) -> Self {
        let (send, answer) = mpsc::channel();
        let mut command = Command::new(program);
        command.args(arguments).arg(name);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        match command.spawn() {
            Ok(mut child) => {
                let printed = printed(&mut child);
                Self { silent, answer, process: Some((child, printed)) }
            }
            Err(error) => {
                let program = program.display();
                let reason = format!("its probe could not be started, {program}: {error}");
                let _ = send.send(silent.clone().because(reason));
                Self { silent, answer, process: None }
            }
        }
    }

    fn finish(self, deadline: Instant, given: Duration) -> Report {
        let Self { silent, answer, process } = self;
        let late = format!("no answer within {:.1} s", given.as_secs_f64());
        let Some((mut child, printed)) = process else {
            return match answer.recv_timeout(left(deadline)) {
                Ok(report) => report,
                Err(mpsc::RecvTimeoutError::Timeout) => silent.because(late),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    silent.because("its probe was lost".to_owned())
                }
            };
        };
        match output(&mut child, &printed, deadline) {
            None => silent.because(late),
            Some(Err(reason)) => silent.because(reason),
            Some(Ok(text)) => serde_json::from_str(&text).unwrap_or_else(|error| {
                silent.because(format!("its probe answered nonsense: {error}"))
            }),
        }
    }
}

impl Report {
    fn because(mut self, reason: String) -> Self {
        self.rejected.iter_mut().for_each(|rejection| rejection.reason.clone_from(&reason));
        self
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// All that `child` prints, once it has; a pipe that nobody reads would keep it from ending.
fn printed(child: &mut Child) -> Receiver<String> {
    let (send, printed) = mpsc::channel();
    if let Some(mut stdout) = child.stdout.take() {
        thread::spawn(move || {
            let mut text = String::new();
            if stdout.read_to_string(&mut text).is_ok() {
                let _ = send.send(text);
            }
        });
    }
    printed
}

/// What `child` prints, or why it failed; `None`, and the child killed, if it is too late.
fn output(
    child: &mut Child,
    printed: &Receiver<String>,
    deadline: Instant,
) -> Option<Result<String, String>> {
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
    if !status.success() {
        return Some(Err(format!("its probe crashed ({status})")));
    }
    // Something it left behind may hold the pipe open.
    Some(Ok(printed.recv_timeout(left(deadline)).ok()?))
}
