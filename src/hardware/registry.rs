use std::path::PathBuf;
use std::time::Duration;

use super::{HardwareError, Inventory, Platform, detect, platforms};

/// The platforms to look for devices on, built-in ones and one's own.
///
/// # Example
/// ```
/// use fewshot::hardware::{Detection, Registry};
///
/// let inventory = Registry::built_in().detect(&Detection::default());
/// for device in &inventory.devices {
///     println!("{} {}", device.key, device.name);
/// }
/// for rejection in &inventory.rejected {
///     println!("{}: {}", rejection.what, rejection.reason);
/// }
/// ```
pub struct Registry {
    platforms: Vec<Box<dyn Platform>>,
}

/// Conditions under which devices are tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Detection {
    /// The time after which a platform that has not answered is given up.
    pub deadline: Duration,
    /// Barrier between a driver that crashes and this program.
    pub isolation: Isolation,
    /// The platforms to try; all of them if empty.
    pub only: Vec<String>,
}

/// Barrier between a driver that crashes and this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// A thread for each platform. A panic is caught, a crash is not; a probe that hangs keeps its
    /// thread and its memory.
    Thread,
    /// A process for each platform that computes elsewhere than on the CPU: this program with these
    /// arguments and the platform's name after them, which must print what
    /// [`Registry::answer`] gives. Nothing of a probe is left behind.
    Process {
        /// The program, mostly [`std::env::current_exe`].
        program: PathBuf,
        /// Arguments before the platform's name.
        arguments: Vec<String>,
    },
}

impl Default for Detection {
    /// Threads, and ten seconds.
    fn default() -> Self {
        Self { deadline: Duration::from_secs(10), isolation: Isolation::Thread, only: Vec::new() }
    }
}

impl Registry {
    /// The platforms that Burn has backends for. Those that are not compiled in answer with that.
    pub fn built_in() -> Self {
        Self { platforms: platforms::built_in() }
    }

    /// No platform.
    pub fn empty() -> Self {
        Self { platforms: Vec::new() }
    }

    /// One more platform; among devices of one tier, earlier platforms come first.
    ///
    /// # Panics
    /// If there is one of the same name.
    pub fn with(mut self, platform: impl Platform + 'static) -> Self {
        let name = platform.name();
        assert!(self.platform(name).is_err(), "there already is a platform {name}");
        self.platforms.push(Box::new(platform));
        self
    }

    /// The names of the platforms.
    pub fn names(&self) -> Vec<&str> {
        self.platforms.iter().map(|platform| platform.name()).collect()
    }

    /// Finds and tries every device, each platform at the same time as the others.
    ///
    /// Never panics: a platform that does, or does not answer in time, is among the rejected.
    pub fn detect(self, detection: &Detection) -> Inventory {
        let chosen = self.platforms.into_iter().filter(|platform| {
            detection.only.is_empty() || detection.only.iter().any(|name| name == platform.name())
        });
        detect::run(chosen.collect(), detection)
    }

    /// Text that a child process prints for [`Isolation::Process`]: the devices of one platform, as
    /// JSON.
    ///
    /// # Errors
    /// [`HardwareError::Unknown`] if there is no such platform.
    pub fn answer(&self, platform: &str) -> Result<String, HardwareError> {
        let inventory = Inventory::of(self.platform(platform)?);
        Ok(serde_json::to_string(&inventory).expect("an inventory is plain data"))
    }

    fn platform(&self, name: &str) -> Result<&dyn Platform, HardwareError> {
        let platform = self.platforms.iter().find(|platform| platform.name() == name);
        platform
            .map(Box::as_ref)
            .ok_or_else(|| HardwareError::unknown("platform", name, self.names()))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;
    use crate::hardware::{DetectedDevice, DeviceClass, ProbeResult, Tier};

    /// A platform that does what a test needs.
    struct Fake {
        name: &'static str,
        probe: fn(usize) -> Result<ProbeResult, String>,
    }

    impl Platform for Fake {
        fn name(&self) -> &str {
            self.name
        }

        fn tier(&self) -> Tier {
            Tier::Gpu
        }

        fn find(&self) -> Result<Vec<DetectedDevice>, String> {
            let name = format!("{} of a test", self.name);
            Ok(vec![DetectedDevice::new(name, DeviceClass::Other, Tier::Gpu); 2])
        }

        fn probe(&self, index: usize) -> Result<ProbeResult, String> {
            (self.probe)(index)
        }
    }

    fn fake(name: &'static str, probe: fn(usize) -> Result<ProbeResult, String>) -> Fake {
        Fake { name, probe }
    }

    #[test]
    fn a_probe_that_panics_hangs_or_fails_spoils_nothing() {
        let registry = Registry::empty()
            .with(fake("panics", |_| panic!("driver bug 42\nat 0x0")))
            .with(fake("hangs", |_| {
                thread::sleep(Duration::from_secs(60));
                Ok(ProbeResult::default())
            }))
            .with(fake("fails", |index| match index {
                0 => Err("no memory".to_owned()),
                _ => Ok(ProbeResult::default()),
            }));
        let start = Instant::now();
        let deadline = Duration::from_millis(300);
        let inventory = registry.detect(&Detection { deadline, ..Detection::default() });
        assert!(start.elapsed() < Duration::from_secs(10));
        let keys = inventory.devices.iter().map(|d| d.key.to_string()).collect::<Vec<_>>();
        assert_eq!(keys, ["fails:1"]);
        let reason = |what: &str| {
            let rejection = inventory.rejected.iter().find(|rejection| rejection.what == what);
            rejection.unwrap_or_else(|| panic!("{what} was not rejected")).reason.clone()
        };
        assert_eq!(reason("panics:0"), "panics of a test: driver bug 42");
        assert_eq!(reason("hangs"), "no answer within 0.3 s");
        assert_eq!(reason("fails:0"), "fails of a test: no memory");
    }

    #[cfg(unix)]
    #[test]
    fn a_probe_in_a_process_may_crash_hang_or_talk_nonsense() {
        let process = |script: &str| Isolation::Process {
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
        };
        let reason = |script: &str| {
            let registry = Registry::empty().with(fake("driver", |_| unreachable!()));
            let deadline = Duration::from_millis(500);
            let detection =
                Detection { deadline, isolation: process(script), ..Detection::default() };
            registry.detect(&detection).rejected[0].reason.clone()
        };
        assert!(reason("kill -SEGV $$").starts_with("its probe crashed"));
        assert_eq!(reason("exec sleep 60"), "no answer within 0.5 s");
        assert!(reason("echo hello").starts_with("its probe answered nonsense"));
        assert!(reason("echo '{}' ; exit 3").starts_with("its probe crashed"));
    }

    #[test]
    fn a_process_that_answers_is_believed() {
        let answer = Registry::empty()
            .with(fake("driver", |_| Ok(ProbeResult::default())))
            .answer("driver")
            .unwrap();
        let script = format!("echo '{answer}'");
        let isolation = Isolation::Process {
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script],
        };
        let registry = Registry::empty().with(fake("driver", |_| unreachable!()));
        let inventory = registry.detect(&Detection { isolation, ..Detection::default() });
        let keys = inventory.devices.iter().map(|d| d.key.to_string()).collect::<Vec<_>>();
        assert_eq!(keys, ["driver:0", "driver:1"]);
    }

    #[cfg(feature = "flex")]
    #[test]
    fn every_built_in_platform_answers_and_flex_leads_the_processor() {
        let inventory = Registry::built_in().detect(&Detection::default());
        let names = Registry::built_in();
        for name in names.names() {
            let device = inventory.devices.iter().any(|device| device.key.platform == name);
            let rejected =
                inventory.rejected.iter().any(|r| r.what.split(':').next() == Some(name));
            assert!(device || rejected, "{name} is neither there nor rejected");
        }
        let cpu = inventory.select(&"cpu".parse().unwrap()).unwrap().device;
        assert_eq!(cpu.key.to_string(), "flex:0");
        assert!(cpu.memory.total.unwrap() >= cpu.memory.free.unwrap());
        assert!(cpu.capabilities.cores.unwrap() >= 1);
        assert!(cpu.capabilities.dtype("f16").arithmetic);
        assert!(cpu.capabilities.route.unwrap().starts_with("fused"));
    }
}
