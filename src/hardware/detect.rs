//! Trying platforms without being dragged down by them.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::panics::quietly;
use super::platforms::HOST_PLATFORMS;
use super::{
    DetectedDevice, Detection, DeviceInfo, DeviceKey, Inventory, Isolation, Platform, Rejection,
};

impl Inventory {
    /// Finds and tries the devices of `platform`, in this thread; a panic is the device's or the
    /// platform's failure.
    pub(super) fn of(platform: &dyn Platform) -> Self {
        let candidates = match quietly(|| platform.find()).unwrap_or_else(Err) {
            Ok(none) if none.is_empty() => return rejecting(platform, "it has no device"),
            Ok(candidates) => candidates,
            Err(reason) => return rejecting(platform, reason),
        };
        let (mut devices, mut rejected) = (Vec::new(), Vec::new());
        for (index, candidate) in candidates.into_iter().enumerate() {
            match probe(platform, index, candidate) {
                Ok(device) => devices.push(device),
                Err(rejection) => rejected.push(rejection),
            }
        }
        Self::new(devices, rejected)
    }
}

fn probe(
    platform: &dyn Platform,
    index: usize,
    candidate: DetectedDevice,
) -> Result<DeviceInfo, Rejection> {
    let key = DeviceKey::new(platform.name(), index);
    let start = Instant::now();
    let DetectedDevice { name, class, tier, driver, skipped } = candidate;
    match quietly(|| platform.probe(index)).unwrap_or_else(Err) {
        Err(reason) => Err(Rejection {
            what: key.to_string(),
            tier,
            tried: true,
            reason: format!("{name}: {reason}"),
        }),
        Ok(probed) => Ok(DeviceInfo {
            key,
            name,
            class,
            tier,
            driver,
            skipped,
            memory: probed.memory,
            capabilities: probed.capabilities,
            probe_ms: start.elapsed().as_secs_f64() * 1e3,
        }),
    }
}

fn rejecting(platform: &dyn Platform, reason: impl Into<String>) -> Inventory {
    let (what, tier, tried) = (platform.name().to_owned(), platform.tier(), platform.is_built());
    let reason = reason.into();
    Inventory::new(Vec::new(), vec![Rejection { what, tier, tried, reason }])
}

/// Inventory of all platforms, which are tried at the same time.
pub(super) fn run(platforms: Vec<Box<dyn Platform>>, detection: &Detection) -> Inventory {
    let deadline = Instant::now() + detection.deadline;
    let late = format!("no answer within {:.1} s", detection.deadline.as_secs_f64());
    let begin = |platform: Box<dyn Platform>| {
        let silent = rejecting(&*platform, "");
        (silent, start(platform, &detection.isolation))
    };
    let begun = platforms.into_iter().map(begin).collect::<Vec<_>>();
    let (mut devices, mut rejected) = (Vec::new(), Vec::new());
    for (mut silent, wait) in begun {
        let inventory = wait(deadline).unwrap_or_else(|reason| {
            silent.rejected[0].reason = reason.unwrap_or_else(|| late.clone());
            silent
        });
        devices.extend(inventory.devices);
        rejected.extend(inventory.rejected);
    }
    Inventory::new(devices, rejected)
}

/// Waits for a platform that is being tried: what it has, why nothing is known of it, or nothing where
/// it did not answer in time.
type PendingProbe = Box<dyn FnOnce(Instant) -> Result<Inventory, Option<String>>>;

fn start(platform: Box<dyn Platform>, isolation: &Isolation) -> PendingProbe {
    match isolation {
        Isolation::Process { program, arguments }
            if platform.is_built() && !HOST_PLATFORMS.contains(&platform.name()) =>
        {
            let mut command = Command::new(program);
            command.args(arguments).arg(platform.name());
            in_process(command)
        }
        _ => in_thread(platform),
    }
}

fn in_thread(platform: Box<dyn Platform>) -> PendingProbe {
    let (send, answer) = mpsc::channel();
    let name = format!("probe {}", platform.name());
    let work = move || drop(send.send(Inventory::of(&*platform)));
    // Without a thread nobody sends, and that is the answer.
    let _ = thread::Builder::new().name(name).spawn(work);
    Box::new(move |deadline| {
        answer.recv_timeout(left(deadline)).map_err(|error| match error {
            RecvTimeoutError::Timeout => None,
            RecvTimeoutError::Disconnected => Some("its probe was lost".to_owned()),
        })
    })
}

fn in_process(mut command: Command) -> PendingProbe {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let program = command.get_program().display();
            let reason = format!("its probe could not be started, {program}: {error}");
            return Box::new(|_| Err(Some(reason)));
        }
    };
    let printed = printed(child.stdout.take());
    Box::new(move |deadline| {
        // Its output ends when it does.
        let text = printed.recv_timeout(left(deadline));
        if text.is_err() {
            let _ = child.kill();
        }
        let status = child.wait().map_err(|error| format!("its probe was lost: {error}"))?;
        let text = text.map_err(|_| None)?;
        if !status.success() {
            return Err(Some(format!("its probe crashed ({status})")));
        }
        serde_json::from_slice(&text)
            .map_err(|error| Some(format!("its probe answered nonsense: {error}")))
    })
}

/// All that a process prints, once it has; a pipe that nobody reads would keep it from ending.
fn printed(output: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (send, printed) = mpsc::channel();
    let read = move || {
        let mut text = Vec::new();
        if output.is_some_and(|mut output| output.read_to_end(&mut text).is_ok()) {
            let _ = send.send(text);
        }
    };
    // Without a thread nobody sends, and the probe counts as lost.
    let _ = thread::Builder::new().spawn(read);
    printed
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
