use std::env::consts::{ARCH, OS};
use std::fmt;
use std::fs;
use std::process::Command;

use serde::Serialize;

/// What figures cannot be read without.
#[derive(Serialize)]
pub(super) struct Machine {
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
    pub(super) fn here() -> Self {
        Self {
            cpu: cpu().unwrap_or_else(|| format!("unknown {ARCH}")),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            threads: rayon::current_num_threads(),
            os: format!("{OS} {ARCH}"),
        }
    }
}

/// The name of the processor, where the system tells it.
fn cpu() -> Option<String> {
    let name = match OS {
        "linux" => {
            let text = fs::read_to_string("/proc/cpuinfo").ok()?;
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            line.split_once(':')?.1.to_owned()
        }
        "macos" => {
            let output = Command::new("sysctl").args(["-n", "machdep.cpu.brand_string"]).output();
            String::from_utf8(output.ok()?.stdout).ok()?
        }
        _ => return None,
    };
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}
