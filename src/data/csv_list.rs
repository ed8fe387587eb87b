use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use csv::{ReaderBuilder, StringRecord, Trim};

use super::image_folder::{
    Class, PARTS, Parts, decode_file, read_parts, shuffled_into_parts, try_each,
};
use crate::data::{DataError, FolderReport, ReadOptions, Result, Splits};

/// Images of your own, listed in a CSV file.
///
/// ```text
/// path,label,split
/// cats/1.png,cat,train
/// "owls/2, at night.jpg",owl,test
/// ```
///
/// Paths start from the folder of the file. The first line names the columns, in any order; columns of other names are
/// passed over. A row's `split` is `train`, `val` (or `validation`) or `test`. Without that column the classes are
/// shuffled by `seed` and shared out as [`image_folder_splits`](crate::data::image_folder_splits) does.
/// Classes are taken in order of name, images in that of the file.
///
/// # Errors
/// If the file is not CSV, a column or a listed image is absent, a split has no class, or two have
/// one in common; and as [`image_folder`](crate::data::image_folder()) for its images.
pub fn csv_list(
    file: impl AsRef<Path>,
    options: &ReadOptions,
    seed: u64,
) -> Result<FolderReport<Splits>> {
    let file = file.as_ref();
    let table = Table::open(file)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let columns = [table.column("path")?, table.column("label")?];
    let parts = match table.column("split") {
        Ok(split) => table.parts(split, columns, folder)?,
        Err(_) => shuffled_into_parts(table.classes(&table.rows, columns, folder)?, seed)?,
    };
    read_parts(file, parts, options, decode_file)
}

/// A CSV file whose first line names the columns.
pub(super) struct Table {
    path: PathBuf,
    header: StringRecord,
    pub(super) rows: Vec<StringRecord>,
}

impl Table {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let text = fs::read(path).map_err(DataError::read(path))?;
        let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(&text[..]);
        let wrong = |error: csv::Error| list_error(path, error.to_string());
        let header = reader.headers().map_err(wrong)?.clone();
        let rows = reader.records().collect::<Result<_, _>>().map_err(wrong)?;
        Ok(Self { path: path.to_path_buf(), header, rows })
    }

    pub(super) fn column(&self, name: &str) -> Result<usize> {
        self.header.iter().position(|column| column == name).ok_or_else(|| {
            let found = self.header.iter().collect::<Vec<_>>().join(", ");
            list_error(&self.path, format!("there is no column {name} in its first line: {found}"))
        })
    }

    /// The classes of some rows in order of name. Images and classes are in these columns, files start from `folder`.
    pub(super) fn classes<'a>(
        &self,
        rows: impl IntoIterator<Item = &'a StringRecord>,
        [image, class]: [usize; 2],
        folder: &Path,
    ) -> Result<Vec<Class<PathBuf>>> {
        let mut classes = BTreeMap::<String, Vec<PathBuf>>::new();
        for row in rows {
            let file = folder.join(&row[image]);
            if row[class].is_empty() {
                return Err(self.wrong(row, "the class has no name"));
            }
            if !file.is_file() {
                return Err(self.wrong(row, &format!("there is no image {}", file.display())));
            }
            classes.entry(row[class].to_owned()).or_default().push(file);
        }
        Ok(classes.into_iter().collect())
    }

    fn parts(&self, split: usize, columns: [usize; 2], folder: &Path) -> Result<Parts<PathBuf>> {
        let mut rows = [const { Vec::new() }; 3];
        for row in &self.rows {
            let part = match &row[split] {
                "validation" => "val",
                part => part,
            };
            match PARTS.iter().position(|name| *name == part) {
                Some(part) => rows[part].push(row),
                None => {
                    let text = format!("{part:?} is none of the splits train, val and test");
                    return Err(self.wrong(row, &text));
                }
            }
        }
        try_each(rows, |rows| self.classes(rows, columns, folder))
    }

    fn wrong(&self, row: &StringRecord, reason: &str) -> DataError {
        let line = row.position().map_or(0, csv::Position::line);
        list_error(&self.path, format!("line {line}: {reason}"))
    }
}

pub(super) fn list_error(path: &Path, reason: String) -> DataError {
    DataError::SplitList { path: path.to_path_buf(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::image_files::{names, pictures, red};

    fn list(files: &[(&str, u8)], text: &str) -> (tempfile::TempDir, PathBuf) {
        let root = pictures(files);
        let path = root.path().join("list.csv");
        std::fs::write(&path, text).unwrap();
        (root, path)
    }

    fn open(path: &Path) -> Result<Splits, String> {
        let report = csv_list(path, &ReadOptions::square(4), 0);
        report.map(|report| report.data).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_say_class_and_split() {
        let (_root, path) = list(
            &[("a, b.png", 1), ("x/c.png", 2), ("d.png", 3), ("e.png", 4)],
            "label,note,split,path\nowl,,train,\"a, b.png\"\nfox,?,val,x/c.png\n\
             \"red \"\"fox\"\"\",,test,d.png\nowl,,train,e.png\n",
        );
        let splits = open(&path).unwrap();
        assert_eq!(splits.classes(), [1, 1, 1]);
        assert_eq!(names(&splits.test), ["red \"fox\""]);
        assert_eq!([red(&splits.train, 0, 0), red(&splits.train, 0, 1)], [1, 4]);
    }

    #[test]
    fn classes_without_splits_are_shuffled_by_the_seed() {
        let files: Vec<String> = (0..10).map(|class| format!("{class}.png")).collect();
        let rows = files.iter().map(|file| format!("{file},class {file}\n"));
        let text = format!("path,label\n{}", rows.collect::<String>());
        let files: Vec<(&str, u8)> = files.iter().map(|file| (file.as_str(), 9)).collect();
        let (_root, path) = list(&files, &text);
        assert_eq!(open(&path).unwrap().classes(), [6, 2, 2]);
        let order =
            |seed| names(&csv_list(&path, &ReadOptions::square(4), seed).unwrap().data.train);
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn nonsense_is_named_by_its_line() {
        let of = |text: &str| {
            let (_root, path) = list(&[("a.png", 1)], text);
            open(&path).unwrap_err()
        };
        assert!(of("").ends_with("list.csv: there is no column path in its first line: "));
        assert!(
            of("path,class\na.png,x\n").contains("no column label in its first line: path, class")
        );
        assert!(of("path,label\nb.png,x\n").contains("list.csv: line 2: there is no image"));
        assert!(of("path,label\na.png,\n").contains("line 2: the class has no name"));
        assert!(of("path,label\na.png\n").contains("line: 2"));
        let split = of("path,label,split\na.png,x,train\na.png,y,dev\n");
        assert!(split.ends_with("line 3: \"dev\" is none of the splits train, val and test"));
        let few = "a split into train, validation and test needs 3 classes, there are 1";
        assert_eq!(of("path,label\na.png,x\n"), few);
        let none = of("path,label,split\na.png,x,train\n");
        assert!(none.ends_with("list.csv has no class to validate on"), "{none}");
        let both = of("path,label,split\na.png,x,train\na.png,y,val\na.png,x,test\n");
        assert_eq!(both, "there are two classes x, and splits must have no class in common");
        let absent = open(Path::new("nowhere.csv")).unwrap_err();
        assert!(absent.starts_with("cannot read nowhere.csv"), "{absent}");
    }
}
