use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use csv::{Reader, ReaderBuilder, StringRecord, Trim};

use super::file_id::FileId;
use super::image_folder::{Class, PARTS, Parts, decode_file, read_parts, shuffled_into_parts};
use crate::data::{DataError, FolderReport, ReadOptions, Result, Splits, class_name};

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
/// Classes are taken in order of name, images in that of the file. A picture that several rows name, by one path or by
/// several, is read once, and [counted](FolderReport::repeated_rows).
///
/// # Errors
/// If the file is not CSV, a column or a listed image is absent, an image is in two classes or splits, a class has no
/// [plain name](crate::data::class_name), a split has no class, or two have one in common; and as [`image_folder`](crate::data::image_folder()) for its images.
pub fn csv_list(
    file: impl AsRef<Path>,
    options: &ReadOptions,
    seed: u64,
) -> Result<FolderReport<Splits>> {
    let file = file.as_ref();
    let table = Table::open(file)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let columns = [table.column("path")?, table.column("label")?];
    let (parts, repeated_rows) = match table.column("split") {
        Ok(split) => table.parts(split, columns, folder)?,
        Err(_) => {
            let (classes, repeated) = table.classes(columns, folder)?;
            (shuffled_into_parts(classes, seed)?, repeated)
        }
    };
    let report = read_parts(file, parts, options, decode_file)?;
    Ok(FolderReport { repeated_rows, ..report })
}

/// A CSV file whose first line names the columns. Rows are parsed one at a time: of a million, only the files and
/// classes are in memory.
pub(super) struct Table {
    path: PathBuf,
    text: Vec<u8>,
    header: StringRecord,
}

impl Table {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let text = fs::read(path).map_err(DataError::read(path))?;
        let header = reader(&text).headers().cloned();
        let header = header.map_err(|error| list_error(path, error.to_string()))?;
        Ok(Self { path: path.to_path_buf(), text, header })
    }

    pub(super) fn column(&self, name: &str) -> Result<usize> {
        self.header.iter().position(|column| column == name).ok_or_else(|| {
            let columns = self.header.iter().collect::<Vec<_>>().join(", ");
            list_error(
                &self.path,
                format!("there is no column {name} in its first line: {columns}"),
            )
        })
    }

    /// The classes in order of name, and how many rows name a picture again. Images and classes are in these columns,
    /// files start from `folder`.
    pub(super) fn classes(
        &self,
        columns: [usize; 2],
        folder: &Path,
    ) -> Result<(Vec<Class<PathBuf>>, usize)> {
        let ([classes, _, _], repeated) = self.listed(columns, folder, |_| Ok(0))?;
        Ok((classes, repeated))
    }

    fn parts(
        &self,
        split: usize,
        columns: [usize; 2],
        folder: &Path,
    ) -> Result<(Parts<PathBuf>, usize)> {
        self.listed(columns, folder, |row| {
            let part = match &row[split] {
                "validation" => "val",
                part => part,
            };
            PARTS.iter().position(|name| *name == part).ok_or_else(|| {
                let text = format!("{part:?} is none of the splits train, val and test");
                self.wrong(row, &text)
            })
        })
    }

    fn listed(
        &self,
        [image, class]: [usize; 2],
        folder: &Path,
        part_of: impl Fn(&StringRecord) -> Result<usize>,
    ) -> Result<(Parts<PathBuf>, usize)> {
        let mut listed = Listed::default();
        let (mut reader, mut row) = (reader(&self.text), StringRecord::new());
        let failed = |error: csv::Error| list_error(&self.path, error.to_string());
        while reader.read_record(&mut row).map_err(failed)? {
            let part = part_of(&row)?;
            let file = folder.join(&row[image]);
            listed
                .add(&row[class], file, line_of(&row), part)
                .map_err(|reason| self.wrong(&row, &reason))?;
        }
        let Listed { classes, repeated, .. } = listed;
        let mut parts: Parts<PathBuf> = Default::default();
        for ListedClass { name, files, .. } in classes {
            for (part, files) in parts.iter_mut().zip(files).filter(|(_, files)| !files.is_empty())
            {
                part.push((name.clone(), files));
            }
        }
        parts.iter_mut().for_each(|part| part.sort());
        Ok((parts, repeated))
    }

    fn wrong(&self, row: &StringRecord, reason: &str) -> DataError {
        list_error(&self.path, format!("line {}: {reason}", line_of(row)))
    }
}

/// Classes with their pictures, as rows name them one after the other.
#[derive(Default)]
struct Listed {
    classes: Vec<ListedClass>,
    /// Places of classes, by their names as rows spell them.
    labels: HashMap<String, usize>,
    /// Places of classes, by their names in composed form.
    names: HashMap<String, usize>,
    pictures: HashMap<FileId, FirstRow>,
    /// Rows that name a picture again.
    repeated: usize,
}

struct ListedClass {
    name: String,
    /// Line of its first row.
    line: u64,
    /// Pictures of each part.
    files: [Vec<PathBuf>; 3],
}

/// Where a picture is named first.
struct FirstRow {
    line: u64,
    class: usize,
    part: usize,
}

impl Listed {
    /// The error is what is wrong with the row.
    fn add(&mut self, label: &str, file: PathBuf, line: u64, part: usize) -> Result<(), String> {
        let class = self.class(label, line)?;
        let absent = || format!("there is no image {}", file.display());
        let id = FileId::read(&file).ok().filter(|_| file.is_file()).ok_or_else(absent)?;
        let Some(first) = self.pictures.get(&id) else {
            self.pictures.insert(id, FirstRow { line, class, part });
            self.classes[class].files[part].push(file);
            return Ok(());
        };
        let [here, there] = [class, first.class].map(|class| &self.classes[class].name);
        let (file, before) = (file.display(), first.line);
        if first.class != class {
            return Err(format!("{file} is of class {here:?}, and of {there:?} on line {before}"));
        }
        if first.part != part {
            let [here, there] = [part, first.part].map(|part| PARTS[part]);
            return Err(format!("{file} is in split {here}, and in {there} on line {before}"));
        }
        self.repeated += 1;
        Ok(())
    }

    fn class(&mut self, label: &str, line: u64) -> Result<usize, String> {
        if let Some(&class) = self.labels.get(label) {
            return Ok(class);
        }
        if label.is_empty() {
            return Err("the class has no name".to_owned());
        }
        let name = class_name(label).map_err(|error| error.to_string())?;
        let class = self.classes.len();
        if let Some(other) = self.names.insert(name.clone(), class) {
            let line = self.classes[other].line;
            return Err(format!("class {name:?} has another spelling in Unicode on line {line}"));
        }
        self.labels.insert(label.to_owned(), class);
        self.classes.push(ListedClass { name, line, files: Default::default() });
        Ok(class)
    }
}

fn reader(text: &[u8]) -> Reader<&[u8]> {
    ReaderBuilder::new().trim(Trim::All).from_reader(text)
}

fn line_of(row: &StringRecord) -> u64 {
    row.position().map_or(0, csv::Position::line)
}

pub(super) fn list_error(path: &Path, reason: String) -> DataError {
    DataError::SplitList { path: path.to_path_buf(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ClassDataset;
    use crate::data::image_files::{names, pictures, put, red};

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
    fn a_picture_with_a_row_for_each_annotation_is_one_picture() {
        let files: Vec<String> = (0..12).map(|file| format!("x/{file}.png")).collect();
        let rows = (0..60).map(|row| format!("x/{}.png,{},{row}\n", row / 5, row / 20));
        let text = format!("path,label,box\n{}", rows.collect::<String>());
        let files: Vec<(&str, u8)> =
            files.iter().zip(1..).map(|(file, red)| (file.as_str(), red)).collect();
        let (_root, path) = list(&files, &text);
        let report = csv_list(&path, &ReadOptions::square(4), 0).unwrap();
        assert_eq!(report.repeated_rows, 48);
        let Splits { train, validation, test } = report.data;
        for set in [train, validation, test] {
            assert_eq!((set.classes(), set.examples(0)), (1, 4));
            let first = 1 + 4 * set.class_name(0).parse::<u8>().unwrap();
            let reds: Vec<u8> = (0..4).map(|example| red(&set, 0, example)).collect();
            assert_eq!(reds, [first, first + 1, first + 2, first + 3]);
        }
    }

    #[test]
    fn every_path_to_a_picture_is_the_same_picture() {
        let files = [("x/a.png", 1), ("b.png", 2), ("c.png", 3), ("d.png", 4)];
        let rows = "x/a.png,one,train\n./x/a.png,one,train\nx/../x//a.png,one,train\n\
                    b.png,one,train\nc.png,two,val\nd.png,three,test\n";
        let (root, path) = list(&files, &format!("path,label,split\n{rows}"));
        let report = csv_list(&path, &ReadOptions::square(4), 0).unwrap();
        assert_eq!((report.repeated_rows, report.data.train.examples(0)), (2, 2));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("x/a.png", root.path().join("link.png")).unwrap();
            put(root.path(), "list.csv", format!("path,label,split\n{rows}link.png,one,train\n"));
            let report = csv_list(&path, &ReadOptions::square(4), 0).unwrap();
            assert_eq!((report.repeated_rows, report.data.train.examples(0)), (3, 2));
        }
        let whole = root.path().join("b.png");
        put(
            root.path(),
            "list.csv",
            format!("path,label,split\n{rows}{},one,train\n", whole.display()),
        );
        assert_eq!(csv_list(&path, &ReadOptions::square(4), 0).unwrap().repeated_rows, 3);
    }

    #[test]
    fn a_picture_of_two_classes_or_splits_is_an_error_with_both_lines() {
        let files = [("a.png", 1), ("b.png", 2), ("c.png", 3)];
        let of = |text: &str| {
            let (_root, path) = list(&files, text);
            open(&path).unwrap_err()
        };
        let classes = of("path,label\na.png,owl\nb.png,fox\n./a.png,fox\n");
        assert!(classes.contains("list.csv: line 4: "), "{classes}");
        assert!(
            classes.ends_with("a.png is of class \"fox\", and of \"owl\" on line 2"),
            "{classes}"
        );
        let splits =
            of("path,label,split\nb.png,owl,train\na.png,owl,train\na.png,owl,validation\n");
        assert!(splits.contains("list.csv: line 4: "), "{splits}");
        assert!(splits.ends_with("a.png is in split val, and in train on line 3"), "{splits}");
    }

    #[test]
    fn the_digest_of_a_class_does_not_depend_on_where_the_list_lies() {
        let digests = || {
            let files = [("a.png", 1), ("b.png", 2), ("c.png", 3)];
            let (_root, path) = list(&files, "path,label\na.png,x\nb.png,y\nc.png,z\n");
            let all = open(&path).unwrap().all().unwrap();
            (0..3).map(|class| all.files_digest(class).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(digests(), digests());
    }

    #[test]
    fn a_class_has_one_plain_name() {
        let files = [("a.png", 1), ("b.png", 2), ("c.png", 3)];
        let (_root, path) =
            list(&files, "path,label\na.png,cafe\u{301}\nb.png,cafe\u{301}\nc.png,bar\n");
        let table = Table::open(&path).unwrap();
        let (classes, repeated) = table.classes([0, 1], path.parent().unwrap()).unwrap();
        let counts: Vec<_> =
            classes.iter().map(|(name, files)| (name.as_str(), files.len())).collect();
        assert_eq!((counts, repeated), (vec![("bar", 1), ("caf\u{e9}", 2)], 0));
        let of = |text: &str| {
            let (_root, path) = list(&files, text);
            open(&path).unwrap_err()
        };
        let two = of("path,label\na.png,caf\u{e9}\nb.png,bar\nc.png,cafe\u{301}\n");
        let why = "line 4: class \"caf\u{e9}\" has another spelling in Unicode on line 2";
        assert!(two.ends_with(why), "{two}");
        let climbing = of("path,label\na.png,../../x\n");
        let why = "line 2: no class can be called \"../../x\": it has a / or \\";
        assert!(climbing.ends_with(why), "{climbing}");
        let unseen = of("path,label\na.png,ow\u{200b}l\n");
        assert!(unseen.contains("line 2: no class can be called \"ow\\u{200b}l\""), "{unseen}");
    }

    #[test]
    fn a_list_of_more_images_than_memory_holds_is_an_error_before_any_is_decoded() {
        let root = tempfile::tempdir().unwrap();
        // Of 12.9 GB each in memory.
        let rows = (0..1000).map(|file| {
            put(root.path(), &format!("{file}.png"), format!("no picture {file}"));
            format!("{file}.png,{}\n", file % 4)
        });
        put(root.path(), "list.csv", format!("path,label\n{}", rows.collect::<String>()));
        let options = ReadOptions::square(65_535);
        let text = csv_list(root.path().join("list.csv"), &options, 0).unwrap_err().to_string();
        assert!(
            text.starts_with("1000 images of 3x65535x65535 need 11.7 TiB of memory, "),
            "{text}"
        );
        assert!(text.contains(" are free: a smaller --image-size or fewer images fit"), "{text}");
    }

    #[test]
    fn nonsense_is_named_by_its_line() {
        let of = |text: &str| {
            let (_root, path) = list(&[("a.png", 1), ("b.png", 1), ("c.png", 1)], text);
            open(&path).unwrap_err()
        };
        assert!(of("").ends_with("list.csv: there is no column path in its first line: "));
        assert!(
            of("path,class\na.png,x\n").contains("no column label in its first line: path, class")
        );
        assert!(of("path,label\nd.png,x\n").contains("list.csv: line 2: there is no image"));
        assert!(of("path,label\na.png,\n").contains("line 2: the class has no name"));
        assert!(of("path,label\na.png\n").contains("line: 2"));
        let split = of("path,label,split\na.png,x,train\na.png,y,dev\n");
        assert!(split.ends_with("line 3: \"dev\" is none of the splits train, val and test"));
        let few = "a split into train, validation and test needs 3 classes, there are 1";
        assert_eq!(of("path,label\na.png,x\n"), few);
        let none = of("path,label,split\na.png,x,train\n");
        assert!(none.ends_with("list.csv has no class to validate on"), "{none}");
        let both = of("path,label,split\na.png,x,train\nb.png,y,val\nc.png,x,test\n");
        assert_eq!(both, "there are two classes x, and splits must have no class in common");
        let absent = open(Path::new("nowhere.csv")).unwrap_err();
        assert!(absent.starts_with("cannot read nowhere.csv"), "{absent}");
    }
}
