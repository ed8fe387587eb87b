use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::read::Class;
use crate::data::{DataError, Result};

pub(super) const EXTENSIONS: [&str; 6] = ["png", "jpg", "jpeg", "bmp", "gif", "webp"];

/// The classes of a folder and their images, both in order of name.
pub(in crate::data) fn classes_in(root: &Path) -> Result<Vec<Class<PathBuf>>> {
    let mut folders = visible_in(root)?;
    folders.retain(|path| path.is_dir());
    if folders.is_empty() {
        let wanted = "subfolders: each class is a folder of images";
        return Err(DataError::no_classes(root, wanted));
    }
    folders.into_iter().map(class_of).collect()
}

/// All files with one of these extensions, in a folder and in those below, in order of path.
pub(in crate::data) fn files_below(folder: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in visible_in(folder)? {
        match path.is_dir() {
            true => found.extend(files_below(&path, extensions)?),
            false if ends_in(&path, extensions) => found.push(path),
            false => {}
        }
    }
    Ok(found)
}

/// The class that a folder is, and its images.
pub(in crate::data) fn class_of(folder: PathBuf) -> Result<Class<PathBuf>> {
    let mut files = visible_in(&folder)?;
    files.retain(|path| path.is_file() && ends_in(path, &EXTENSIONS));
    if files.is_empty() {
        return Err(DataError::NoImages { path: folder });
    }
    Ok((name_of(&folder), files))
}

/// The folders to train, to validate and to test on, if there are all three.
pub(in crate::data) fn split_folders(root: &Path) -> Option<[PathBuf; 3]> {
    let of_names =
        |names: &[&str]| names.iter().map(|name| root.join(name)).find(|path| path.is_dir());
    Some([of_names(&["train"])?, of_names(&["val", "validation"])?, of_names(&["test"])?])
}

/// What is in a folder and not hidden, in order of name.
pub(in crate::data) fn visible_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    let mut paths = paths.map_err(DataError::read(folder))?;
    paths.retain(|path| !name_of(path).starts_with('.'));
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn ends_in(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    extensions.contains(&extension.as_str())
}
