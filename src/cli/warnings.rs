use log::{Level, LevelFilter, Log, Metadata, Record};

use super::output::tell;

/// Tells what the library warns of. Drivers and backends have a lot to say that a user of the command
/// can do nothing about.
struct Warnings;

impl Log for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn && metadata.target().starts_with("fewshot")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            tell(format_args!("warning: {}", record.args()));
        }
    }

    fn flush(&self) {}
}

/// From now on.
pub(super) fn listen() {
    // It fails where another one listens already, which is nobody's concern here.
    if log::set_logger(&Warnings).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}
