use std::borrow::Cow;
use std::path::Path;

use super::decode::decode;
use super::image_folder::{
    PARTS, Source, image_folder_splits, read_parts, split_folders, try_each,
};
use super::pickle::Pickle;
use super::pickled_images::{by_number, open_all};
use crate::data::{DataError, FolderReport, ReadOptions, Result, Splits};

/// One encoded image of a list.
struct Encoded<'a> {
    pickle: &'a Pickle,
    number: usize,
    bytes: &'a [u8],
}

impl Source for Encoded<'_> {
    fn identity(&self, _: &Path) -> Cow<'_, [u8]> {
        self.bytes.into()
    }
}

/// tieredImageNet: 351 classes to train, 97 to validate and 160 to test on, of other branches of ImageNet's hierarchy.
///
/// ```text
/// DIR/train/n01530575/*.jpg            or  DIR/train_images_png.pkl  val_…  test_…
/// DIR/val/…  DIR/test/…                    DIR/train_labels.pkl      val_…  test_…
/// ```
///
/// Images of a pickle are a list of PNG files, as bytes or as arrays of uint8. Its labels are a dictionary with
/// `label_specific`, a number for each image, and `label_specific_str`, the names of the numbers. Two ImageNet classes
/// may have one name, so classes are `train/0 name`. Papers use 84 x 84 pixels.
///
/// # Errors
/// If a pickle is absent, damaged or has other values; and as [`image_folder`](crate::data::image_folder()) for a folder.
///
/// # Source
/// Ren et al. (2018), "Meta-Learning for Semi-Supervised Few-Shot Classification".
pub fn tiered_imagenet(
    dir: impl AsRef<Path>,
    options: &ReadOptions,
) -> Result<FolderReport<Splits>> {
    let dir = dir.as_ref();
    if split_folders(dir).is_some() {
        return image_folder_splits(dir, options, 0);
    }
    if !dir.join("train_images_png.pkl").exists() {
        let expected = "folders train, val and test and no train_images_png.pkl";
        return Err(DataError::no_classes(dir, expected));
    }
    let images = open_all(dir, |part| format!("{part}_images_png.pkl"))?;
    let labels = open_all(dir, |part| format!("{part}_labels.pkl"))?;
    let parts = try_each([0, 1, 2], |at| {
        let (part, images, labels) = (PARTS[at], &images[at], &labels[at]);
        let encoded =
            images.root().items()?.into_iter().enumerate().map(|(number, image)| {
                Ok(Encoded { pickle: images, number, bytes: image.bytes()? })
            });
        let names = labels.root().get("label_specific_str")?.texts()?;
        let name = |label: i64| {
            let name = usize::try_from(label).ok().and_then(|label| names.get(label));
            format!("{part}/{label} {}", name.map_or("", String::as_str))
        };
        let encoded = encoded.collect::<Result<Vec<_>>>()?;
        by_number(labels, labels.root().get("label_specific")?, encoded, name)
    })?;
    read_parts(dir, parts, options, |image: &Encoded<'_>, limits| {
        let path = image.pickle.path().join(image.number.to_string());
        decode(image.bytes, &path, limits)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use image::{ImageFormat, Rgb, RgbImage};

    use super::*;
    use crate::data::OnBroken;
    use crate::data::image_files::{Py, names, pickled, pictures, put, red};

    fn png(red: u8) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        let image = RgbImage::from_pixel(5, 5, Rgb([red, 0, 0]));
        image.write_to(&mut bytes, ImageFormat::Png).unwrap();
        bytes.into_inner()
    }

    fn open(dir: &Path, on_broken: OnBroken) -> Result<FolderReport<Splits>, String> {
        let options = ReadOptions { on_broken, ..ReadOptions::square(5) };
        tiered_imagenet(dir, &options).map_err(|error| error.to_string())
    }

    fn put_pickles(root: &Path, part: &str, images: Vec<Py>, labels: Vec<i32>) {
        let images = pickled(&Py::List(images));
        put(root, &format!("{part}_images_png.pkl"), images);
        let labels = Py::List(labels.into_iter().map(Py::Int).collect());
        let names = Py::List(vec![Py::Text("crane"), Py::Text("crane")]);
        let labels = Py::Dict(vec![("label_specific", labels), ("label_specific_str", names)]);
        put(root, &format!("{part}_labels.pkl"), pickled(&labels));
    }

    #[test]
    fn folders_are_read_as_such() {
        let root = pictures(&[("train/a/1.png", 1), ("val/b/1.png", 2), ("test/c/1.png", 3)]);
        let splits = open(root.path(), OnBroken::Fail).unwrap().data;
        assert_eq!((names(&splits.test), red(&splits.test, 0, 0)), (vec!["c".to_owned()], 3));
        let text = open(&root.path().join("train"), OnBroken::Fail).unwrap_err();
        let ending = "has no folders train, val and test and no train_images_png.pkl";
        assert!(text.ends_with(ending), "{text}");
    }

    #[test]
    fn pickles_hold_encoded_images() {
        let root = pictures(&[]);
        for part in ["train", "val", "test"] {
            let array = png(9);
            let images =
                vec![Py::Bytes(png(7)), Py::Array(vec![array.len(), 1], array), Py::Bytes(png(8))];
            put_pickles(root.path(), part, images, vec![1, 0, 1]);
        }
        let splits = open(root.path(), OnBroken::Fail).unwrap().data;
        assert_eq!(names(&splits.train), ["train/0 crane", "train/1 crane"]);
        let reds = [red(&splits.test, 0, 0), red(&splits.test, 1, 0), red(&splits.test, 1, 1)];
        assert_eq!(reds, [9, 7, 8]);

        put_pickles(
            root.path(),
            "val",
            vec![Py::Bytes(png(1)), Py::Bytes(b"PNG".into())],
            vec![0, 0],
        );
        let text = open(root.path(), OnBroken::Fail).unwrap_err();
        assert!(text.contains("val_images_png.pkl/1 is not a readable image"), "{text}");
        let report = open(root.path(), OnBroken::Skip).unwrap();
        assert_eq!(report.data.validation.images(), 1);
        assert!(report.skipped[0].path.ends_with("val_images_png.pkl/1"));
        put_pickles(root.path(), "val", vec![Py::Int(1)], vec![0]);
        assert!(
            open(root.path(), OnBroken::Fail).unwrap_err().ends_with("is not an array of uint8")
        );
    }
}
