use std::fs;
use std::path::Path;

use sysinfo::System;

use super::Bytes;

/// Total and free memory of the machine, bounded by the limits of the control groups (a container's
/// or a service's memory); `None` where the system tells nothing. What files are cached in counts as
/// free.
pub(crate) fn memory() -> Option<(Bytes, Bytes)> {
    let mut system = System::new();
    system.refresh_memory();
    let (mut total, mut free) = (system.total_memory(), system.available_memory());
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    for Group { limit, used } in groups(Path::new("/sys/fs/cgroup"), &own) {
        total = total.min(limit);
        free = free.min(limit.saturating_sub(used));
    }
    (total > 0).then_some((Bytes(total), Bytes(free)))
}

/// A control group with a limit.
struct Group {
    limit: u64,
    /// Memory of its processes, without what files are cached in.
    used: u64,
}

/// Where a version of control groups keeps its limits, and the names of them.
struct Version {
    folder: &'static str,
    limit: &'static str,
    used: &'static str,
}

const V1: Version =
    Version { folder: "memory", limit: "memory.limit_in_bytes", used: "total_rss " };
const V2: Version = Version { folder: "", limit: "memory.max", used: "anon " };

/// The control groups that a process is in, of which `own` is its `/proc/self/cgroup`: its own and
/// those around it.
fn groups(mount: &Path, own: &str) -> Vec<Group> {
    let lines = own.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.strip_prefix('/')?);
        match controllers {
            "" => Some((V2, path)),
            _ => controllers.split(',').any(|name| name == "memory").then_some((V1, path)),
        }
    });
    let all = lines.flat_map(|(version, path)| {
        let around = Path::new(path).ancestors();
        let folders = around.map(|group| mount.join(version.folder).join(group));
        folders.filter_map(|folder| group(&folder, &version)).collect::<Vec<_>>()
    });
    all.collect()
}

fn group(folder: &Path, version: &Version) -> Option<Group> {
    let text = |name| fs::read_to_string(folder.join(name)).ok();
    let limit = text(version.limit)?.trim().parse().ok()?;
    let stat = text("memory.stat")?;
    let used = stat.lines().find_map(|line| line.strip_prefix(version.used))?;
    Some(Group { limit, used: used.trim().parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_all_groups_around_a_process_count() {
        let mount = tempfile::tempdir().unwrap();
        let write = |version: &Version, path: &str, limit: &str, used: u64| {
            let folder = mount.path().join(version.folder).join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(version.limit), limit).unwrap();
            let stat = format!("rss 3\ncache 4\n{}{used}\nanon_thp 9\n", version.used);
            fs::write(folder.join("memory.stat"), stat).unwrap();
        };
        write(&V2, "users", "9000\n", 300);
        write(&V2, "users/one", "4000\n", 100);
        write(&V2, "users/one/job", "max\n", 50);
        write(&V2, "others", "10\n", 1);
        write(&V1, "users", "8000\n", 200);
        let of = |own| {
            let groups = groups(mount.path(), own).into_iter();
            groups.map(|Group { limit, used }| (limit, used)).collect::<Vec<_>>()
        };
        assert_eq!(of("0::/users/one/job\n"), [(4000, 100), (9000, 300)]);
        assert_eq!(of("8:pids:/others\n4:cpu,memory:/users\n0::/\n"), [(8000, 200)]);
        assert_eq!(of("0::/\n"), []);
        assert_eq!(of("nonsense\n4:memory:users\n"), []);
    }
}
