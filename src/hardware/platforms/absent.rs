use super::HOST_PLATFORMS;
use crate::hardware::{Found, Platform, Probed, Tier};

/// A platform that cannot be here.
pub(super) struct Absent {
    name: &'static str,
    reason: String,
}

impl Absent {
    pub(super) fn because(name: &'static str, reason: String) -> Box<dyn Platform> {
        Box::new(Self { name, reason })
    }

    #[allow(dead_code, reason = "with every feature on, nothing is uncompiled")]
    pub(super) fn uncompiled(name: &'static str) -> Box<dyn Platform> {
        let reason = format!("not compiled into this program; build it with --features {name}");
        Self::because(name, reason)
    }
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

    fn find(&self) -> Result<Vec<Found>, String> {
        Err(self.reason.clone())
    }

    fn probe(&self, _: usize) -> Result<Probed, String> {
        Err(self.reason.clone())
    }
}
