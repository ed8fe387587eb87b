//! Archives of NumPy's arrays, `.npz`.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use zip::ZipArchive;

use super::Features;
use super::npy_file::Array;
use super::open::Content;
use crate::data::{DataError, Result};

/// Array of all rows, and that of their labels.
const EMBEDDINGS: &str = "embeddings";
const LABELS: &str = "labels";

/// Times that deflated bytes are longer than their archive, at most.
const DEFLATED: u64 = 1032;

pub(super) fn content(path: &Path) -> Result<Content> {
    let mut archive = Archive::open(path)?;
    let names = archive.names()?;
    let has = |name: &str| names.iter().any(|of| of == name);
    if has(EMBEDDINGS) {
        let rows = archive.array(EMBEDDINGS)?.rows(&called(EMBEDDINGS), path)?;
        return Ok(Content::Rows(match has(LABELS) {
            false => rows,
            true => rows.with_labels(archive.array(LABELS)?.labels(&called(LABELS), path)?)?,
        }));
    }
    let (mut length, mut classes) = (None, Vec::new());
    for name in names {
        let (actual, values) = archive.array(&name)?.numbers(&called(&name), path)?;
        let expected = *length.get_or_insert(actual);
        if actual != expected {
            return Err(DataError::FeatureLength { what: called(&name), expected, actual });
        }
        classes.push((name, values));
    }
    Ok(Content::Classes(Features::new(length.unwrap_or(0), classes)?))
}

fn called(name: &str) -> String {
    format!("the array {name}")
}

struct Archive<'a> {
    zip: ZipArchive<BufReader<File>>,
    path: &'a Path,
}

impl<'a> Archive<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        let file = File::open(path).map_err(DataError::read(path))?;
        let zip = ZipArchive::new(BufReader::new(file)).map_err(DataError::damaged(path, "npz"))?;
        Ok(Self { zip, path })
    }

    /// Names of the arrays, without the ending of their files.
    fn names(&self) -> Result<Vec<String>> {
        let no_array = |file: &str| {
            DataError::damaged(self.path, "npz")(format!("{file} in it is no .npy file"))
        };
        let name = |file: &str| {
            let name = file.strip_suffix(".npy").map(str::to_owned);
            name.ok_or_else(|| no_array(file))
        };
        self.zip.file_names().map(name).collect()
    }

    fn array(&mut self, name: &str) -> Result<Array<impl Read>> {
        let Self { zip, path } = self;
        let file = format!("{name}.npy");
        let entry = zip.by_name(&file).map_err(DataError::damaged(path, "npz"))?;
        if entry.size() > entry.compressed_size().saturating_mul(DEFLATED) {
            let (size, compressed) = (entry.size(), entry.compressed_size());
            let reason = format!("{file} is to have {size} bytes in {compressed} deflated ones");
            return Err(DataError::damaged(path, "npz")(reason));
        }
        let bytes = entry.size();
        Array::open(entry, bytes, "npz", path)
    }
}
