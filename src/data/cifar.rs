use std::fs;
use std::path::{Path, PathBuf};

use super::csv_list::list_error;
use super::image_folder::{
    Class, PARTS, class_of, decode_file, image_folder_splits, read_parts, split_folders, try_each,
};
use super::pickled_images::{by_number, decode_array, images_in, open_all};
use crate::data::{DataError, FolderReport, ReadOptions, Result, Splits};

/// CIFAR-FS: 64 classes of CIFAR-100 to train, 16 to validate and 20 to test on, of 600 images of 32 x 32 each.
///
/// ```text
/// DIR/data/apple/*.png                 or  DIR/CIFAR_FS_train.pickle  _val  _test
/// DIR/splits/bertinetto/train.txt  val.txt  test.txt
/// ```
///
/// A line of a list is the folder of a class. Pickles are dictionaries with `data`, uint8 `[n, h, w, 3]`, and `labels`,
/// the number of each image's class; their classes are `train/0`, and it is not seen whether two splits share one.
///
/// # Errors
/// If a list or pickle is absent or damaged, or names a class that is not there.
///
/// # Source
/// Bertinetto et al. (2019), "Meta-learning with differentiable closed-form solvers".
pub fn cifar_fs(dir: impl AsRef<Path>, options: &ReadOptions) -> Result<FolderReport<Splits>> {
    let dir = dir.as_ref();
    if has_pickles(dir, "CIFAR_FS") {
        return read_pickles(dir, "CIFAR_FS", options);
    }
    let lists = dir.join("splits").join("bertinetto");
    if !lists.exists() {
        let expected = "splits/bertinetto/train.txt and no CIFAR_FS_train.pickle";
        return Err(DataError::no_classes(dir, expected));
    }
    let data = dir.join("data");
    let parts = try_each(PARTS, |part| listed(&lists.join(format!("{part}.txt")), &data))?;
    read_parts(dir, parts, options, decode_file)
}

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
    if has_pickles(dir, "FC100") {
        return read_pickles(dir, "FC100", options);
    }
    if split_folders(dir).is_none() {
        let expected = "FC100_train.pickle and no folders train, val and test";
        return Err(DataError::no_classes(dir, expected));
    }
    image_folder_splits(dir, options, 0)
}

fn has_pickles(dir: &Path, name: &str) -> bool {
    dir.join(format!("{name}_train.pickle")).exists()
}

/// Reads dictionaries with `data`, uint8 `[n, h, w, 3]`, and `labels`, a number for each image.
fn read_pickles(dir: &Path, name: &str, options: &ReadOptions) -> Result<FolderReport<Splits>> {
    let pickles = open_all(dir, |part| format!("{name}_{part}.pickle"))?;
    let parts = try_each([0, 1, 2], |at| {
        let (part, pickle) = (PARTS[at], &pickles[at]);
        let images = images_in(pickle, pickle.root().get("data")?)?;
        let labels = pickle.root().get("labels")?;
        by_number(pickle, labels, images, |label| format!("{part}/{label}"))
    })?;
    read_parts(dir, parts, options, decode_array)
}

/// The classes that a list names, in its order.
fn listed(list: &Path, data: &Path) -> Result<Vec<Class<PathBuf>>> {
    let text = fs::read_to_string(list).map_err(DataError::read(list))?;
    let named = text.lines().map(str::trim).enumerate().filter(|(_, name)| !name.is_empty());
    let class = |(line, name): (usize, &str)| match data.join(name).is_dir() {
        true => class_of(&data.join(name)),
        false => {
            let data = data.display();
            Err(list_error(list, format!("line {}: there is no folder {name} in {data}", line + 1)))
        }
    };
    named.map(class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::image_files::{Py, image, names, pickled, pictures, put, red};
    use crate::data::{ClassDataset, Color};

    fn open(dir: &Path) -> Result<Splits, String> {
        let report = cifar_fs(dir, &ReadOptions::square(2));
        report.map(|report| report.data).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_name_the_folders_of_a_split() {
        let root = pictures(&[
            ("data/apple/1.png", 1),
            ("data/bear/1.png", 2),
            ("data/cup/1.png", 3),
            ("data/road/1.png", 4),
        ]);
        let ending = "has no splits/bertinetto/train.txt and no CIFAR_FS_train.pickle";
        assert!(open(root.path()).unwrap_err().ends_with(ending));
        put(root.path(), "splits/bertinetto/train.txt", "road\r\napple\n\n");
        put(root.path(), "splits/bertinetto/val.txt", "cup");
        assert!(open(root.path()).unwrap_err().contains("test.txt"));
        put(root.path(), "splits/bertinetto/test.txt", "bear\n");
        let splits = open(root.path()).unwrap();
        assert_eq!(names(&splits.train), ["road", "apple"]);
        assert_eq!([red(&splits.train, 0, 0), red(&splits.test, 0, 0)], [4, 2]);
        put(root.path(), "splits/bertinetto/test.txt", "\ntable\n");
        let text = open(root.path()).unwrap_err();
        assert!(text.contains("test.txt: line 2: there is no folder table in "), "{text}");
        put(root.path(), "splits/bertinetto/test.txt", "cup");
        assert!(open(root.path()).unwrap_err().contains("two classes cup"));
        put(root.path(), "splits/bertinetto/test.txt", "");
        assert!(open(root.path()).unwrap_err().ends_with("has no class to test on"));
    }

    fn labelled(labels: Vec<Py>) -> Vec<u8> {
        let pixels: Vec<u8> = (0..36).collect();
        let data = Py::Array(vec![3, 2, 2, 3], pixels);
        pickled(&Py::Dict(vec![("labels", Py::List(labels)), ("data", data)]))
    }

    #[test]
    fn pickles_have_a_number_for_each_image() {
        let root = pictures(&[]);
        let name = |part: &str| format!("CIFAR_FS_{part}.pickle");
        for part in PARTS {
            put(root.path(), &name(part), labelled([70, 5, 70].map(Py::Int).into()));
        }
        let splits = open(root.path()).unwrap();
        assert_eq!(names(&splits.validation), ["val/5", "val/70"]);
        // Channels lie together in the pickle, and one after another in an image.
        assert_eq!(image(&splits.train, 0, 0), [12, 15, 18, 21, 13, 16, 19, 22, 14, 17, 20, 23]);
        assert_eq!(splits.train.images(), 3);
        put(root.path(), &name("val"), labelled(vec![Py::Int(1)]));
        assert!(open(root.path()).unwrap_err().ends_with("there are 1 labels of 3 images"));
        put(root.path(), &name("val"), labelled(vec![Py::Text("a"), Py::Int(1), Py::Int(1)]));
        assert!(open(root.path()).unwrap_err().ends_with("labels is not a list of integers"));
        put(root.path(), &name("val"), pickled(&Py::Dict(vec![("data", Py::Int(1))])));
        assert!(open(root.path()).unwrap_err().ends_with("data is not an array of uint8"));
        fs::remove_file(root.path().join(name("val"))).unwrap();
        assert!(open(root.path()).unwrap_err().contains("CIFAR_FS_val.pickle"));
    }

    #[test]
    fn pickles_and_folders_are_read() {
        let options = ReadOptions { color: Color::Grey, ..ReadOptions::square(3) };
        let open = |dir: &Path| fc100(dir, &options).map(|report| report.data);
        let root = pictures(&[("train/a/1.png", 1), ("val/b/1.png", 1), ("test/c/1.png", 1)]);
        assert_eq!(names(&open(root.path()).unwrap().test), ["c"]);
        for part in PARTS {
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
