//! Where the kernels of one program on one machine are kept.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs, io};

use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use sha2::{Digest, Sha256};
use sysinfo::System;

/// Folders of programs that are kept.
const KEPT: usize = 4;

/// The folder of this program below `root`, which is made, and marked as used last; folders of others
/// that were not used for longest are removed.
pub(super) fn program_folder(root: &Path) -> Result<PathBuf, String> {
    if nvidia_models("/proc/driver/nvidia/gpus".as_ref()).len() > 1 {
        // CubeCL does not tell the kernels of one architecture from those of another one.
        return Err("there are NVIDIA devices of different models".to_owned());
    }
    let name = name().map_err(|error| format!("this program's file: {error}"))?;
    let folder = root.join(name);
    let made = fs::create_dir_all(&folder)
        .and_then(|()| fs::write(folder.join("used"), b""))
        .and_then(|()| prune(root));
    made.map(|()| folder).map_err(|error| format!("{}: {error}", root.display()))
}

/// The version, and a digest of the program's file and the machine's name: another build may have other
/// kernels of the same names, and another machine with the same home another device.
fn name() -> io::Result<String> {
    let program = env::current_exe()?;
    let file = program.metadata()?;
    let changed = file.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let host = System::host_name().unwrap_or_default();
    let text = format!("{} {} {changed} {host}", program.display(), file.len());
    let digest = Sha256::digest(text.as_bytes());
    let digits = digest.iter().take(6).map(|byte| format!("{byte:02x}"));
    Ok(format!("{}-{}", env!("CARGO_PKG_VERSION"), digits.collect::<String>()))
}

/// Leaves the folders that were used last.
fn prune(root: &Path) -> io::Result<()> {
    let used = |folder: PathBuf| -> Option<(SystemTime, PathBuf)> {
        let mark = folder.join("used").metadata().ok()?;
        Some((mark.modified().ok()?, folder))
    };
    let entries = fs::read_dir(root)?.filter_map(|entry| used(entry.ok()?.path()));
    let mut folders = entries.collect::<Vec<_>>();
    folders.sort();
    let rest = folders.len().saturating_sub(KEPT);
    folders[..rest].iter().try_for_each(|(_, folder)| fs::remove_dir_all(folder))
}

/// The models of NVIDIA's devices, as Linux's driver tells them in files, without waking a device.
fn nvidia_models(folder: &Path) -> BTreeSet<String> {
    let devices = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let texts = devices.filter_map(|it| fs::read_to_string(it.path().join("information")).ok());
    let models = texts.filter_map(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Model:"))?;
        Some(line.trim().to_owned())
    });
    models.collect()
}

/// True if CubeCL finds a file of settings, in this folder or above.
pub(super) fn has_settings() -> bool {
    let Ok(here) = env::current_dir() else { return false };
    let sections = CubeClRuntimeConfig::section_file_names().iter().map(|(file, _)| file);
    let names = || CubeClRuntimeConfig::file_names().iter().chain(sections.clone());
    here.ancestors().any(|folder| names().any(|name| folder.join(name).exists()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folders_that_were_used_last_are_kept() {
        let root = tempfile::tempdir().unwrap();
        for age in 0..KEPT + 2 {
            let folder = root.path().join(format!("other-{age}"));
            fs::create_dir(&folder).unwrap();
            let mark = fs::File::create(folder.join("used")).unwrap();
            let then = SystemTime::now() - std::time::Duration::from_secs(60 * (age as u64 + 1));
            mark.set_modified(then).unwrap();
        }
        fs::create_dir(root.path().join("of-somebody-else")).unwrap();
        let own = program_folder(root.path()).unwrap();
        assert!(own.starts_with(root.path()) && own.is_dir());
        let left = |age: usize| root.path().join(format!("other-{age}")).exists();
        assert_eq!((0..KEPT + 2).filter(|age| left(*age)).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(root.path().join("of-somebody-else").exists());
        assert_eq!(program_folder(root.path()).unwrap(), own, "the next run finds it again");
    }

    #[test]
    fn models_are_told_apart() {
        let root = tempfile::tempdir().unwrap();
        assert!(nvidia_models(&root.path().join("none")).is_empty());
        for (place, model) in [("a", "NVIDIA H100"), ("b", "NVIDIA H100"), ("c", "NVIDIA A100")] {
            let folder = root.path().join(place);
            fs::create_dir(&folder).unwrap();
            let text = format!("Model: \t\t {model}\nIRQ:   \t\t 31\n");
            fs::write(folder.join("information"), text).unwrap();
        }
        assert_eq!(nvidia_models(root.path()).len(), 2);
    }
}
