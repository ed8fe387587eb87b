use super::HOST_PLATFORMS;
use crate::hardware::{DetectedDevice, Platform, ProbeResult, Tier};

/// A platform that cannot be here.
pub(super) struct Absent {
    pub(super) name: &'static str,
    pub(super) reason: String,
}

impl Platform for Absent {
    fn name(&self) -> &str {
        self.name
    }

    fn tier(&self) -> Tier {
        match self.name {
            "cuda" => Tier::Cuda,
            "rocm" => Tier::Rocm,
            "metal" => Tier::Metal,
            name if HOST_PLATFORMS.contains(&name) => Tier::Cpu,
            _ => Tier::Gpu,
        }
    }

    fn is_built(&self) -> bool {
        false
    }

    fn find(&self) -> Result<Vec<DetectedDevice>, String> {
        Err(self.reason.clone())
    }

    fn probe(&self, _: usize) -> Result<ProbeResult, String> {
        Err(self.reason.clone())
    }
}
