use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::output::print_status;

/// Prints the warnings of the library. Of drivers and backends, whose messages a user of the command can
/// do nothing about, only kernels are counted, if that is wanted.
struct Warnings;

/// Openings of the messages of CubeCL 0.10's runtimes on a kernel that is compiled: cubecl-cuda and cubecl-hip,
/// compute/context.rs, and cubecl-wgpu, backend/base.rs and vulkan.rs.
const COMPILING: [&str; 2] = ["Compiling ", "[cubecl-wgpu] compiling "];

/// Opening of its message on a launch: cubecl-runtime, logging/server.rs.
const LAUNCHING: &str = "Executing ";

static COMPILED: AtomicUsize = AtomicUsize::new(0);
static LAUNCHED: AtomicUsize = AtomicUsize::new(0);

impl Log for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn && metadata.target().starts_with("fewshot")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            print_status(format_args!("warning: {}", record.args()));
        } else if record.target().starts_with("cubecl_") {
            let text = record.args().to_string();
            let compiles = COMPILING.iter().any(|start| text.starts_with(start));
            COMPILED.fetch_add(usize::from(compiles), Ordering::Relaxed);
            LAUNCHED.fetch_add(usize::from(text.starts_with(LAUNCHING)), Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

pub(super) fn install() {
    // It fails where another one listens already, which is nobody's concern here.
    if log::set_logger(&Warnings).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

pub(super) struct KernelCount {
    counter: &'static AtomicUsize,
    before: usize,
}

impl KernelCount {
    /// Begins to count kernels that are compiled.
    pub(super) fn compiled() -> Self {
        Self::begin(LevelFilter::Trace, &COMPILED)
    }

    /// Begins to count launches, where [`log_launches`](fewshot::hardware::log_launches) has them logged.
    pub(super) fn launched() -> Self {
        Self::begin(LevelFilter::Info, &LAUNCHED)
    }

    fn begin(level: LevelFilter, counter: &'static AtomicUsize) -> Self {
        log::set_max_level(level);
        Self { counter, before: counter.load(Ordering::Relaxed) }
    }

    pub(super) fn so_far(&self) -> usize {
        self.counter.load(Ordering::Relaxed) - self.before
    }

    /// The same once no thread logs any more.
    pub(super) fn settled(&self) -> usize {
        let mut count = self.so_far();
        loop {
            thread::sleep(Duration::from_millis(50));
            let more = self.so_far();
            if more == count {
                return count;
            }
            count = more;
        }
    }
}

impl Drop for KernelCount {
    fn drop(&mut self) {
        log::set_max_level(LevelFilter::Warn);
    }
}
