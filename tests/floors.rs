//! Imports point down only.

use std::fs;
use std::path::{Path, PathBuf};

/// The modules of `src/` from the lowest floor up; a row may import rows above it in this table.
const FLOORS: [&[&str]; 14] = [
    &["files", "machine", "phase", "random", "settings"],
    &["data", "plot"],
    &["metric"],
    &["episode"],
    &["optim"],
    &["precision"],
    &["parallel"],
    &["hardware"],
    &["plasticity"],
    &["adapt"],
    &["learners"],
    &["adapted"],
    &["export", "train"],
    &["catalog"],
];

/// The modules of `cli/src/`, likewise.
const COMMAND: [&[&str]; 8] = [
    &["data_spec", "download", "error", "machine", "method", "report"],
    &["args", "checkpoint", "output", "reproduce"],
    &["backend", "info", "pack", "settings", "warnings", "world"],
    &["episodes", "hardware", "pictures", "progress"],
    &["bench", "features", "plasticity", "runs", "training"],
    &["line", "sinusoids"],
    &["eval", "train"],
    &["main"],
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let below = folders.iter().flat_map(|folder| sources(folder));
    files
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .chain(below)
        .collect()
}

fn floor(floors: &[&[&str]], module: &str) -> Option<usize> {
    floors.iter().position(|modules| modules.contains(&module))
}

/// The top-level modules that a source file names after one of `starts`.
fn imported(text: &str, starts: &[&str]) -> Vec<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let found = code.flat_map(|line| {
        starts.iter().flat_map(move |start| line.split(start).skip(1).map(module_name))
    });
    found.filter(|module| !module.is_empty()).collect()
}

fn module_name(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Fails where a module of `folder` imports one of its own floor or above, or has no floor.
fn check(folder: &str, floors: &[&[&str]], starts: &[&str]) {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut checked = 0;
    for path in sources(&src) {
        let inside = path.strip_prefix(&src).unwrap();
        let module = inside.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = module.trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let own = floor(floors, module).unwrap_or_else(|| panic!("{module} has no floor"));
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("use crate::{"), "{}: one module a line", inside.display());
        for other in imported(&text, starts) {
            let Some(theirs) = floor(floors, &other) else {
                continue;
            };
            assert!(
                theirs < own || other == module,
                "{} imports {other}, which is not below {module}",
                inside.display()
            );
            checked += 1;
        }
    }
    assert!(checked > 30, "only {checked} imports were found");
}

#[test]
fn no_module_imports_from_its_own_floor_or_above() {
    check("src", &FLOORS, &["crate::", "fewshot::"]);
}

#[test]
fn no_module_of_the_command_imports_from_its_own_floor_or_above() {
    check("cli/src", &COMMAND, &["crate::"]);
}
