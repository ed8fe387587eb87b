use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::Deserialize;

use super::csv_list::{Table, list_error};
use super::image_folder::{decode_file, read_parts, shuffled_into_parts};
use crate::data::{DataError, FolderReport, ReadOptions, Result, Splits};

/// Names of the columns of `labels.csv`.
#[derive(Deserialize)]
#[serde(default)]
struct Info {
    image_column_name: String,
    category_column_name: String,
}

/// One dataset of Meta-Album, each of which has classes of one domain, photographed at 128 x 128 pixels.
///
/// ```text
/// DIR/images/*.jpg
/// DIR/labels.csv       FILE_NAME,CATEGORY,SUPER_CATEGORY
/// DIR/info.json        other names of these columns; may be absent
/// ```
///
/// The classes are shuffled by `seed` and shared out as
/// [`image_folder_splits`](crate::data::image_folder_splits) does. Super-categories are not read.
///
/// # Errors
/// If `labels.csv` is absent or not CSV, a column or a listed image is not there, or there are
/// fewer than 3 classes.
///
/// # Source
/// Ullah et al. (2022), "Meta-Album: Multi-domain Meta-Dataset for Few-Shot Image Classification".
pub fn meta_album(
    dir: impl AsRef<Path>,
    options: &ReadOptions,
    seed: u64,
) -> Result<FolderReport<Splits>> {
    let dir = dir.as_ref();
    let info = dir.join("info.json");
    let columns = match fs::read(&info) {
        Ok(text) => {
            serde_json::from_slice(&text).map_err(|error| list_error(&info, error.to_string()))?
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Info::default(),
        Err(error) => return Err(DataError::read(&info)(error)),
    };
    let table = Table::open(&dir.join("labels.csv"))?;
    let columns =
        [table.column(&columns.image_column_name)?, table.column(&columns.category_column_name)?];
    let (classes, repeated_rows) = table.classes(columns, &dir.join("images"))?;
    let report = read_parts(dir, shuffled_into_parts(classes, seed)?, options, decode_file)?;
    Ok(FolderReport { repeated_rows, ..report })
}

impl Default for Info {
    fn default() -> Self {
        Self { image_column_name: "FILE_NAME".into(), category_column_name: "CATEGORY".into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::image_files::{names, pictures, put};

    fn open(dir: &Path, seed: u64) -> Result<Splits, String> {
        let report = meta_album(dir, &ReadOptions::square(4), seed);
        report.map(|report| report.data).map_err(|error| error.to_string())
    }

    #[test]
    fn categories_are_classes() {
        let root = pictures(&[
            ("images/1.jpg", 1),
            ("images/2.jpg", 2),
            ("images/3.jpg", 3),
            ("images/4.jpg", 4),
        ]);
        assert!(open(root.path(), 0).unwrap_err().contains("labels.csv"));
        let rows = "1.jpg, bee, insect\n2.jpg,wasp,insect\n3.jpg,owl,bird\n4.jpg,owl,bird\n";
        put(root.path(), "labels.csv", format!("FILE_NAME, CATEGORY, SUPER_CATEGORY\n{rows}"));
        let splits = open(root.path(), 0).unwrap();
        assert_eq!(splits.classes(), [1, 1, 1]);
        let mut all =
            [names(&splits.train), names(&splits.validation), names(&splits.test)].concat();
        all.sort();
        assert_eq!(all, ["bee", "owl", "wasp"]);
        let train = |seed| names(&open(root.path(), seed).unwrap().train);
        assert!((1..9).any(|seed| train(seed) != train(0)));

        put(root.path(), "labels.csv", format!("file,class,SUPER_CATEGORY\n{rows}"));
        assert!(open(root.path(), 0).unwrap_err().contains("no column FILE_NAME"));
        put(
            root.path(),
            "info.json",
            r#"{"image_column_name": "file", "category_column_name": "class"}"#,
        );
        assert_eq!(open(root.path(), 0).unwrap().classes(), [1, 1, 1]);
        let repeated = |text: String| {
            put(root.path(), "labels.csv", text);
            meta_album(root.path(), &ReadOptions::square(4), 0).unwrap().repeated_rows
        };
        assert_eq!(repeated(format!("file,class,SUPER_CATEGORY\n{rows}")), 0);
        assert_eq!(repeated(format!("file,class,SUPER_CATEGORY\n{rows}4.jpg,owl,bird\n")), 1);
        put(root.path(), "info.json", "{");
        assert!(open(root.path(), 0).unwrap_err().contains("info.json: EOF"));
    }
}
