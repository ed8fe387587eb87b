use std::path::Path;

use super::image_folder::{image_folder_splits, split_folders};
use super::pickled_images::read_labelled;
use crate::data::{DataError, FolderReport, ReadOptions, Result, Splits};

/// FC100: 60 classes of CIFAR-100 to train, 20 to validate and 20 to test on, of other superclasses each; 600 images of
/// 32 x 32 a class.
///
/// ```text
/// DIR/FC100_train.pickle  FC100_val.pickle  FC100_test.pickle      or  DIR/train/apple/*.png  val/…  test/…
/// ```
///
/// Pickles are those of [`cifar_fs`](crate::data::cifar_fs).
///
/// # Errors
/// If a pickle is absent or damaged; and as [`image_folder`](crate::data::image_folder()) for folders.
///
/// # Source
/// Oreshkin et al. (2018), "TADAM: Task dependent adaptive metric for improved few-shot learning".
pub fn fc100(dir: impl AsRef<Path>, options: &ReadOptions) -> Result<FolderReport<Splits>> {
    let dir = dir.as_ref();
    let pickle = |part: &str| format!("FC100_{part}.pickle");
    if dir.join(pickle("train")).exists() {
        return read_labelled(dir, pickle, options);
    }
    if split_folders(dir).is_none() {
        let wanted = "FC100_train.pickle and no folders train, val and test";
        return Err(DataError::NoClasses { path: dir.to_path_buf(), wanted });
    }
    image_folder_splits(dir, options, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::image_files::{Py, names, pickled, pictures, put};
    use crate::data::{ClassDataset, Color};

    #[test]
    fn pickles_and_folders_are_read() {
        let options = ReadOptions { color: Color::Grey, ..ReadOptions::square(3) };
        let open = |dir: &Path| fc100(dir, &options).map(|report| report.data);
        let root = pictures(&[("train/a/1.png", 1), ("val/b/1.png", 1), ("test/c/1.png", 1)]);
        assert_eq!(names(&open(root.path()).unwrap().test), ["c"]);
        for part in ["train", "val", "test"] {
            let data = Py::Array(vec![1, 2, 2, 3], vec![100; 12]);
            let pickle = Py::Dict(vec![("data", data), ("labels", Py::List(vec![Py::Int(2)]))]);
            put(root.path(), &format!("FC100_{part}.pickle"), pickled(&pickle));
        }
        let splits = open(root.path()).unwrap();
        assert_eq!(names(&splits.test), ["test/2"]);
        assert_eq!(splits.test.image_shape().to_string(), "1x3x3");
        let nothing = open(&root.path().join("train")).unwrap_err().to_string();
        assert!(nothing.ends_with("no FC100_train.pickle and no folders train, val and test"));
    }
}
