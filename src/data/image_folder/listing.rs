use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::read::Class;
use crate::data::file_id::FileId;
use crate::data::{DataError, Result, class_name};

/// Endings of the names of pictures. The last three are of formats that are refused where pictures are decoded: nobody
/// loses a picture without a word.
pub(super) const EXTENSIONS: [&str; 11] =
    ["png", "jpg", "jpeg", "bmp", "gif", "webp", "tif", "tiff", "avif", "heic", "heif"];

/// Folders that systems put beside the files of users.
const OF_SYSTEMS: [&str; 3] = ["__MACOSX", "@eaDir", "$RECYCLE.BIN"];

/// Names of the folders of splits.
const SPLITS: [&str; 5] = ["train", "val", "validation", "valid", "test"];

/// The classes of a folder and their images, both in order of name.
pub(in crate::data) fn classes_in(root: &Path) -> Result<Vec<Class<PathBuf>>> {
    let around = folders_around(root)?;
    let Content { folders, pictures } = Content::read(root, &around)?;
    let Some(first) = folders.first() else {
        let expected = "subfolders: each class is a folder of images";
        return Err(DataError::no_classes(root, expected));
    };
    if !pictures.is_empty() {
        return Err(DataError::PicturesBesideFolder { pictures, folder: first.clone() });
    }
    refuse_splits(root, &folders, &around)?;
    let (mut classes, mut owners) = (BTreeMap::new(), HashMap::new());
    for folder in folders {
        let ((name, files), entered) = walked_class(&folder, &around)?;
        for shared in entered {
            if let Some(other) = owners.insert(shared, folder.clone()) {
                return Err(DataError::OneFolder { folders: [other, folder] });
            }
        }
        if let Some((other, _)) = classes.insert(name.clone(), (folder.clone(), files)) {
            return Err(DataError::OneName { class: name, folders: [other, folder] });
        }
    }
    Ok(classes.into_iter().map(|(name, (_, files))| (name, files)).collect())
}

/// The classes that a folder is: if it has folders they are classes, else it is one itself.
pub(in crate::data) fn classes_of(folder: &Path) -> Result<Vec<Class<PathBuf>>> {
    let Content { folders, pictures } = Content::read(folder, &folders_around(folder)?)?;
    if pictures.is_empty() && !folders.is_empty() {
        return classes_in(folder);
    }
    for below in folders {
        if !files_below(&below, &EXTENSIONS)?.is_empty() {
            return Err(DataError::PicturesBesideFolder { pictures, folder: below });
        }
    }
    Ok(vec![class_of(folder)?])
}

/// All files with one of these extensions, in a folder and in those below, in order of path.
pub(in crate::data) fn files_below(folder: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    Walk::below(folder, extensions, &HashSet::new()).map(|walk| walk.files)
}

/// The class that a folder is, and its images.
pub(in crate::data) fn class_of(folder: &Path) -> Result<Class<PathBuf>> {
    walked_class(folder, &HashSet::new()).map(|(class, _)| class)
}

/// The folders to train, to validate and to test on, if there are all three.
pub(in crate::data) fn split_folders(root: &Path) -> Option<[PathBuf; 3]> {
    let of_names =
        |names: &[&str]| names.iter().map(|name| root.join(name)).find(|path| path.is_dir());
    Some([of_names(&["train"])?, of_names(&["val", "validation"])?, of_names(&["test"])?])
}

/// Entries of a folder that are not hidden, in order of name.
pub(in crate::data) fn visible_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    let mut paths = paths.map_err(DataError::read(folder))?;
    paths.retain(|path| !is_hidden(path));
    paths.sort();
    Ok(paths)
}

/// Folders and pictures in a folder, without those further down, in order of name.
struct Content {
    folders: Vec<PathBuf>,
    pictures: Vec<PathBuf>,
}

impl Content {
    /// Without links to the folders around it.
    fn read(folder: &Path, around: &HashSet<FileId>) -> Result<Self> {
        let mut content = Self { folders: Vec::new(), pictures: Vec::new() };
        for path in visible_in(folder)? {
            match is_folder(&path)? {
                true if around.contains(&id(&path)?) => {}
                true => content.folders.push(path),
                false if ends_in(&path, &EXTENSIONS) => content.pictures.push(path),
                false => {}
            }
        }
        Ok(content)
    }
}

/// A way through the folders below one, into each of them once.
struct Walk<'a> {
    extensions: &'a [&'a str],
    /// Folders that are not entered.
    around: HashSet<FileId>,
    entered: HashSet<FileId>,
    files: Vec<PathBuf>,
}

impl<'a> Walk<'a> {
    fn below(folder: &Path, extensions: &'a [&'a str], around: &HashSet<FileId>) -> Result<Self> {
        let mut around: HashSet<_> = folders_around(folder)?.union(around).cloned().collect();
        around.remove(&id(folder)?);
        let mut walk = Self { extensions, around, entered: HashSet::new(), files: Vec::new() };
        walk.enter(folder)?;
        Ok(walk)
    }

    fn enter(&mut self, folder: &Path) -> Result {
        let id = id(folder)?;
        if self.around.contains(&id) || !self.entered.insert(id) {
            return Ok(());
        }
        for path in visible_in(folder)? {
            match is_folder(&path)? {
                true => self.enter(&path)?,
                false if ends_in(&path, self.extensions) => self.files.push(path),
                false => {}
            }
        }
        Ok(())
    }
}

/// The class that a folder is, and the folders that its images are in. Folders around it are not entered.
fn walked_class(
    folder: &Path,
    around: &HashSet<FileId>,
) -> Result<(Class<PathBuf>, HashSet<FileId>)> {
    let name = name_of(folder)?;
    let Walk { entered, files, .. } = Walk::below(folder, &EXTENSIONS, around)?;
    match files.is_empty() {
        true => Err(DataError::NoImages { path: folder.to_owned() }),
        false => Ok(((name, files), entered)),
    }
}

/// A folder of splits has no class of its own: theirs are a folder further down.
fn refuse_splits(root: &Path, folders: &[PathBuf], around: &HashSet<FileId>) -> Result {
    let names = folders.iter().filter_map(|path| path.file_name()?.to_str());
    let splits: Vec<_> =
        names.filter(|name| SPLITS.contains(&name.to_lowercase().as_str())).collect();
    if splits.len() < 2 || splits.len() < folders.len() {
        return Ok(());
    }
    for folder in folders {
        let Content { folders, pictures } = Content::read(folder, around)?;
        if folders.is_empty() || !pictures.is_empty() {
            return Ok(());
        }
    }
    let splits = splits.into_iter().map(str::to_owned).collect();
    Err(DataError::SplitFolders { path: root.to_owned(), splits })
}

/// A folder and those that it is in.
fn folders_around(folder: &Path) -> Result<HashSet<FileId>> {
    let whole = folder.canonicalize().map_err(DataError::read(folder))?;
    whole.ancestors().map(id).collect()
}

fn id(path: &Path) -> Result<FileId> {
    FileId::read(path).map_err(DataError::read(path))
}

/// A link to nothing is an error that names it.
fn is_folder(path: &Path) -> Result<bool> {
    path.metadata().map(|metadata| metadata.is_dir()).map_err(DataError::read(path))
}

/// The name of the class that a folder is, whatever path leads to it: `.` has a name too.
fn name_of(folder: &Path) -> Result<String> {
    let whole = match folder.file_name() {
        Some(_) => folder.to_owned(),
        None => folder.canonicalize().map_err(DataError::read(folder))?,
    };
    class_name(&whole.file_name().unwrap_or_default().to_string_lossy())
}

fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with('.') || OF_SYSTEMS.contains(&&*name)
}

fn ends_in(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    extensions.contains(&extension.as_str())
}
