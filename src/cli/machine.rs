use std::env::consts::{ARCH, OS};
use std::fmt;

use serde::Serialize;
use sysinfo::{CpuRefreshKind, RefreshKind, System};

/// What figures cannot be read without.
#[derive(Serialize)]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    threads: usize,
    os: String,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cores, threads, os } = self;
        write!(f, "{cpu}, {cores} cores, {threads} threads, {os}")
    }
}

impl Machine {
    pub(crate) fn here() -> Self {
        let cpus = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
        let system = System::new_with_specifics(cpus);
        let cpu = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned());
        Self {
            cpu: cpu.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("unknown {ARCH}")),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            threads: rayon::current_num_threads(),
            os: format!("{OS} {ARCH}"),
        }
    }
}
