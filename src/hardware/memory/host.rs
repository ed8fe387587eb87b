use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System, get_current_pid};

use crate::machine::Bytes;

/// The memory of this process that lies in the machine's memory (its resident set).
pub(super) fn resident() -> Option<Bytes> {
    let process = get_current_pid().ok()?;
    let mut system = System::new();
    system.refresh_processes_specifics(
        ProcessesToUpdate::Some(&[process]),
        false,
        ProcessRefreshKind::nothing().with_memory().without_tasks(),
    );
    let bytes = system.process(process)?.memory();
    (bytes > 0).then_some(Bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::memory;

    #[test]
    fn a_process_lies_within_its_machine() {
        let (total, free) = memory().unwrap();
        assert!(free <= total);
        let before = resident().unwrap();
        assert!(before < total);
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        let more = resident().unwrap().0 - before.0;
        assert!((60 << 20..80 << 20).contains(&more), "{more} bytes for {}", touched.len());
    }
}
