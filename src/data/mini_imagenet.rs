use std::path::Path;

use super::csv_list::Table;
use super::image_folder::{PARTS, decode_file, read_parts, try_each};
use super::pickled_images::{decode_array, images_in, open_all};
use crate::data::{DataError, FolderReport, ReadOptions, Result, Splits};

/// mini-ImageNet: 64 classes to train, 16 to validate and 20 to test on, of 600 photographs each.
///
/// ```text
/// DIR/train.csv  val.csv  test.csv      filename,label
/// DIR/images/n0153282900000005.jpg
/// ```
///
/// or, if there is no `train.csv`, `mini-imagenet-cache-train.pkl`, `-val.pkl` and `-test.pkl`: dictionaries with
/// `image_data`, uint8 `[n, h, w, 3]`, and `class_dict`, the numbers of the images of each class. Papers use 84 x 84
/// pixels.
///
/// # Errors
/// If a list or pickle is absent or damaged, names an image that is not there, or shares a class with
/// another.
///
/// # Source
/// Vinyals et al. (2016); the splits are those of Ravi and Larochelle (2017), the pickles those of Ren et al. (2018).
pub fn mini_imagenet(dir: impl AsRef<Path>, options: &ReadOptions) -> Result<FolderReport<Splits>> {
    let dir = dir.as_ref();
    let pickle = |part: &str| format!("mini-imagenet-cache-{part}.pkl");
    if dir.join("train.csv").exists() {
        let mut repeated_rows = 0;
        let parts = try_each(PARTS, |part| {
            let table = Table::open(&dir.join(format!("{part}.csv")))?;
            let columns = [table.column("filename")?, table.column("label")?];
            let (classes, repeated) = table.classes(columns, &dir.join("images"))?;
            repeated_rows += repeated;
            Ok(classes)
        })?;
        let report = read_parts(dir, parts, options, decode_file)?;
        return Ok(FolderReport { repeated_rows, ..report });
    }
    if !dir.join(pickle("train")).exists() {
        let expected = "train.csv and no mini-imagenet-cache-train.pkl";
        return Err(DataError::no_classes(dir, expected));
    }
    let pickles = open_all(dir, pickle)?;
    let parts = try_each(pickles.each_ref(), |pickle| {
        let images = images_in(pickle, pickle.root().get("image_data")?)?;
        let count = images.len();
        let (mut classes, mut left) = (Vec::new(), count);
        for (class, numbers) in pickle.root().get("class_dict")?.entries()? {
            let image = |number: i64| {
                let range = usize::try_from(number).ok().and_then(|number| images.get(number));
                range.copied().ok_or_else(|| {
                    pickle.wrong(format!("{class} has image {number}, there are {count}"))
                })
            };
            let images =
                numbers.integers()?.into_iter().map(image).collect::<Result<Vec<_>, _>>()?;
            left = left.checked_sub(images.len()).ok_or_else(|| {
                pickle.wrong(format!("its classes have more images than the {count} there are"))
            })?;
            classes.push((class, images));
        }
        classes.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(classes)
    })?;
    read_parts(dir, parts, options, decode_array)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::image_files::{Py, image, names, pickled, pictures, put, red};

    fn open(dir: &Path) -> Result<Splits, String> {
        let report = mini_imagenet(dir, &ReadOptions::square(4));
        report.map(|report| report.data).map_err(|error| error.to_string())
    }

    fn cache(first: u8, name: &'static str, shape: Vec<usize>, numbers: [i32; 2]) -> Vec<u8> {
        let values = shape.iter().product();
        let pixels = (0..values).map(|at| first + (at * shape[0] / values) as u8).collect();
        let numbers = Py::List(numbers.map(Py::Int).into());
        let classes = Py::Dict(vec![(name, numbers), ("first", Py::List(vec![Py::Int(0)]))]);
        let classes =
            if first == 0 { classes } else { Py::Dict(vec![(name, Py::List(vec![Py::Int(1)]))]) };
        pickled(&Py::Dict(vec![("image_data", Py::Array(shape, pixels)), ("class_dict", classes)]))
    }

    #[test]
    fn lists_say_the_class_of_each_image() {
        let root = pictures(&[
            ("images/a1.jpg", 9),
            ("images/a2.png", 8),
            ("images/b1.png", 7),
            ("images/c1.png", 6),
        ]);
        put(root.path(), "train.csv", "filename,label\na2.png,n01\na1.jpg,n01\n");
        put(root.path(), "val.csv", "filename,label\nb1.png,n02\n");
        assert!(open(root.path()).unwrap_err().contains("test.csv"));
        put(root.path(), "test.csv", "filename,label\nc1.png,n03\n");
        let splits = open(root.path()).unwrap();
        assert_eq!(splits.classes(), [1, 1, 1]);
        assert_eq!((splits.train.images(), red(&splits.train, 0, 0)), (2, 8));
        put(root.path(), "test.csv", "filename,label\nd1.png,n03\n");
        assert!(open(root.path()).unwrap_err().contains("test.csv: line 2: there is no image"));
        put(root.path(), "test.csv", "filename,label\nc1.png,n01\n");
        assert!(open(root.path()).unwrap_err().contains("two classes n01"));
        put(root.path(), "test.csv", "file,label\nc1.png,n01\n");
        assert!(open(root.path()).unwrap_err().contains("no column filename"));
    }

    #[test]
    fn caches_hold_images_by_class() {
        let root = pictures(&[]);
        let name = |part: &str| format!("mini-imagenet-cache-{part}.pkl");
        let ending = "has no train.csv and no mini-imagenet-cache-train.pkl";
        assert!(open(root.path()).unwrap_err().ends_with(ending));
        put(root.path(), &name("train"), cache(0, "last", vec![3, 4, 4, 3], [2, 1]));
        put(root.path(), &name("val"), cache(10, "b", vec![3, 4, 4, 3], [0, 0]));
        put(root.path(), &name("test"), cache(20, "c", vec![2, 4, 4, 3], [0, 0]));
        let splits = open(root.path()).unwrap();
        assert_eq!(names(&splits.train), ["first", "last"]);
        let reds = [red(&splits.train, 0, 0), red(&splits.train, 1, 0), red(&splits.train, 1, 1)];
        assert_eq!(reds, [0, 2, 1]);
        assert_eq!(image(&splits.test, 0, 0), [21; 48]);

        put(root.path(), &name("train"), cache(0, "last", vec![3, 4, 4, 3], [2, 3]));
        assert!(
            open(root.path()).unwrap_err().ends_with("train.pkl: last has image 3, there are 3")
        );
        put(root.path(), &name("train"), cache(0, "last", vec![3, 3, 4, 4], [0, 1]));
        let shape = "images are an array of [3, 3, 4, 4], not [n, h, w, 3]";
        assert!(open(root.path()).unwrap_err().ends_with(shape));
        put(root.path(), &name("train"), "");
        assert!(open(root.path()).unwrap_err().contains("train.pkl: it is no pickle"));
    }
}
