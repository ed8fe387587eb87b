use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System, get_current_pid};

use crate::hardware::Bytes;

/// Total and free memory of the machine, bounded by the limits of the control group (a container's
/// memory); `None` where the system tells nothing. What files are cached in counts as free.
pub(in crate::hardware) fn machine() -> Option<(Bytes, Bytes)> {
    let mut system = System::new();
    system.refresh_memory();
    let (mut total, mut free) = (system.total_memory(), system.available_memory());
    if let Some(group) = system.cgroup_limits() {
        total = total.min(group.total_memory);
        free = free.min(group.total_memory.saturating_sub(group.rss));
    }
    (total > 0).then_some((Bytes(total), Bytes(free)))
}

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

    #[test]
    fn a_process_lies_within_its_machine() {
        let (total, free) = machine().unwrap();
        assert!(free <= total);
        let before = resident().unwrap();
        assert!(before < total);
        let touched = vec![1u8; 64 << 20];
        let more = resident().unwrap().0 - before.0;
        assert!((60 << 20..80 << 20).contains(&more), "{more} bytes for {}", touched.len());
    }
}
