use std::path::Path;

use super::image_folder::{classes_in, decode_file, read_parts};
use crate::data::{FolderReport, ReadOptions, Result, Splits};

/// CUB-200-2011: 200 species of birds, 100 to train, 50 to validate and 50 to test on.
///
/// ```text
/// DIR/images/001.Black_footed_Albatross/*.jpg      or the same in DIR/CUB_200_2011
/// ```
///
/// # Conventions
/// Folders are numbered `i` from 0 in order of name; those with even `i` are to train on, with
/// `i % 4 == 1` to validate and with `i % 4 == 3` to test on. `train_test_split.txt`, which is for
/// classification, is not read, and pictures are not cropped to the birds. Papers use 84 x 84
/// pixels, or 224 x 224 for deeper networks.
///
/// # Errors
/// If the folder is absent or has fewer than four classes; and as [`image_folder`](crate::data::image_folder()).
///
/// # Source
/// Wah et al. (2011), "The Caltech-UCSD Birds-200-2011 Dataset"; the split is that of Chen et al. (2019), "A Closer Look
/// at Few-shot Classification".
pub fn cub(dir: impl AsRef<Path>, options: &ReadOptions) -> Result<FolderReport<Splits>> {
    let dir = dir.as_ref();
    let unpacked = dir.join("CUB_200_2011").join("images");
    let images = if unpacked.is_dir() { unpacked } else { dir.join("images") };
    let mut parts = [const { Vec::new() }; 3];
    for (number, class) in classes_in(&images)?.into_iter().enumerate() {
        parts[[0, 1, 0, 2][number % 4]].push(class);
    }
    read_parts(&images, parts, options, decode_file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::image_files::{names, pictures};

    #[test]
    fn every_second_class_is_to_train_on() {
        for images in ["images", "CUB_200_2011/images"] {
            let files: Vec<String> = (0..9).map(|n| format!("{images}/00{n}.Bird/1.jpg")).collect();
            let files: Vec<(&str, u8)> = files.iter().map(|file| (file.as_str(), 1)).collect();
            let root = pictures(&files);
            let splits = cub(&root, &ReadOptions::square(4)).unwrap().data;
            let train = ["000.Bird", "002.Bird", "004.Bird", "006.Bird", "008.Bird"];
            assert_eq!(names(&splits.train), train);
            assert_eq!(names(&splits.validation), ["001.Bird", "005.Bird"]);
            assert_eq!(names(&splits.test), ["003.Bird", "007.Bird"]);
        }
    }

    #[test]
    fn too_few_classes_are_an_error() {
        let root = pictures(&[("images/a/1.png", 1), ("images/b/1.png", 1), ("images/c/1.png", 1)]);
        let text = cub(&root, &ReadOptions::square(4)).unwrap_err().to_string();
        assert!(text.ends_with("images has no class to test on"), "{text}");
        let text =
            cub(root.path().join("images"), &ReadOptions::square(4)).unwrap_err().to_string();
        assert!(text.starts_with("cannot read "), "{text}");
    }
}
