use std::env::consts::{ARCH, OS};
use std::fmt;
use std::process::Command;

use serde::Serialize;
use sysinfo::{CpuRefreshKind, RefreshKind, System};
use time::OffsetDateTime;

/// The machine that figures were measured on.
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

/// Where the checkout that this program was built in stands now, with a `+` where its files differ from that;
/// nothing outside a checkout. It is the program's own commit if cargo runs it.
pub(crate) fn commit() -> Option<String> {
    let git = |words: &[&str]| {
        let folder = ["-C", concat!(env!("CARGO_MANIFEST_DIR"), "/..")];
        Command::new("git").args(folder).args(words).output().ok()
    };
    let head = git(&["rev-parse", "--short", "HEAD"]).filter(|out| out.status.success())?;
    let head = String::from_utf8(head.stdout).ok()?.trim().to_owned();
    let sources = ["src", "cli", "kernels", "models", "recipes", "Cargo.toml", "Cargo.lock"];
    let clean = git(&[&["diff", "--quiet", "HEAD", "--"], &sources[..]].concat())?;
    Some(if clean.status.success() { head } else { head + "+" })
}

pub(crate) fn today() -> String {
    OffsetDateTime::now_utc().date().to_string()
}
