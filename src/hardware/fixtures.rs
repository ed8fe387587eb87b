//! Machines that nobody here has.

use std::path::{Path, PathBuf};

use super::Inventory;

pub(super) fn path(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/inventories");
    folder.join(format!("{name}.json"))
}

pub(super) fn inventory(name: &str) -> Inventory {
    Inventory::read(&path(name)).unwrap()
}
