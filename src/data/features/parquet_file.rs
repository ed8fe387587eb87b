use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use parquet::basic::Type;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::Features;
use crate::data::DataError;

const EMBEDDING: &str = "embedding";
const CLASS_NAME: &str = "class_name";

/// Rows that are read at a time.
const RECORDS: usize = 1 << 16;

pub(super) fn parse(path: &Path) -> Result<Features, DataError> {
    let damaged = |error: ParquetError| DataError::FeatureFile {
        path: path.to_owned(),
        format: "Parquet",
        reason: error.to_string(),
    };
    let file = File::open(path).map_err(|source| {
        let path = path.to_owned();
        DataError::Read { path, source }
    })?;
    let file = SerializedFileReader::new(file).map_err(damaged)?;
    let embedding = Leaf::find(&file, EMBEDDING, "a list of floats or doubles", |physical| {
        matches!(physical, Type::FLOAT | Type::DOUBLE)
    })?;
    let name = Leaf::find(&file, CLASS_NAME, "text", |physical| physical == Type::BYTE_ARRAY)?;
    let mut table = Table::default();
    for group in 0..file.num_row_groups() {
        let group = file.get_row_group(group).map_err(damaged)?;
        let read = |leaf: &Leaf| group.get_column_reader(leaf.index).map_err(damaged);
        let names = match read(&name)? {
            ColumnReader::ByteArrayColumnReader(reader) => name.read(reader).map_err(damaged)?,
            _ => unreachable!("the column is of text"),
        };
        let names = names.one_each(CLASS_NAME, table.rows)?;
        let names = names.iter().map(|name| name.as_utf8().map(str::to_owned));
        let names = names.collect::<Result<Vec<_>, _>>().map_err(damaged)?;
        match read(&embedding)? {
            ColumnReader::FloatColumnReader(reader) => {
                table.add(names, embedding.read(reader).map_err(damaged)?, |value| value)?;
            }
            ColumnReader::DoubleColumnReader(reader) => {
                table.add(names, embedding.read(reader).map_err(damaged)?, |value| value as f32)?;
            }
            _ => unreachable!("the column is of floats or doubles"),
        }
    }
    Features::new(table.length.unwrap_or(0), table.classes)
}

/// Where the values of a column are.
struct Leaf {
    index: usize,
    /// The definition level of a value that is there.
    deepest: i16,
    /// Whether a row may have several values.
    repeated: bool,
}

impl Leaf {
    /// The only leaf of the column `name`, if its type fits.
    fn find(
        file: &impl FileReader,
        name: &str,
        wanted: &'static str,
        fits: impl Fn(Type) -> bool,
    ) -> Result<Self, DataError> {
        let refused = |found: String| DataError::NoFeaturesIn {
            name: format!("column {name}"),
            wanted,
            found,
        };
        let columns = file.metadata().file_metadata().schema_descr().columns().iter();
        let mut leaves = columns.enumerate().filter(|(_, leaf)| leaf.path().parts()[0] == name);
        let (index, leaf) = leaves.next().ok_or_else(|| refused("not there".to_owned()))?;
        if leaves.next().is_some() {
            return Err(refused("of several values".to_owned()));
        }
        if !fits(leaf.physical_type()) {
            return Err(refused(leaf.physical_type().to_string()));
        }
        let (deepest, repeated) = (leaf.max_def_level(), leaf.max_rep_level() > 0);
        Ok(Self { index, deepest, repeated })
    }

    fn read<D: DataType>(
        &self,
        mut reader: ColumnReaderImpl<D>,
    ) -> Result<Column<D::T>, ParquetError> {
        let (mut values, mut present, mut places) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let (levels, repetitions) = (Some(&mut present), Some(&mut places));
            if reader.read_records(RECORDS, levels, repetitions, &mut values)?.0 == 0 {
                break;
            }
        }
        // Columns that are always there have no definition levels, those of one value a row no others.
        let count = present.len().max(places.len()).max(values.len());
        let levels = (0..count).map(|level| Level {
            begins: !self.repeated || places[level] == 0,
            is_there: self.deepest == 0 || present[level] == self.deepest,
        });
        Ok(Column { levels: levels.collect(), values })
    }
}

/// The values of a row group, and what is to be made of them.
struct Column<T> {
    values: Vec<T>,
    levels: Vec<Level>,
}

/// A value, or its absence.
struct Level {
    /// Whether it is the first of its row.
    begins: bool,
    is_there: bool,
}

impl<T> Column<T> {
    /// The values of a column with one a row.
    fn one_each(self, name: &str, first: usize) -> Result<Vec<T>, DataError> {
        match self.levels.iter().position(|level| !(level.begins && level.is_there)) {
            Some(row) => Err(absent(name, first + row)),
            None => Ok(self.values),
        }
    }

    /// How many values each row has.
    fn lengths(&self, name: &str, first: usize) -> Result<Vec<usize>, DataError> {
        let mut lengths: Vec<usize> = Vec::new();
        for level in &self.levels {
            if level.begins {
                lengths.push(0);
            }
            match lengths.last_mut() {
                Some(length) if level.is_there => *length += 1,
                _ => return Err(absent(name, first + lengths.len().saturating_sub(1))),
            }
        }
        Ok(lengths)
    }
}

fn absent(name: &str, row: usize) -> DataError {
    let name = format!("column {name} in row {row}");
    DataError::NoFeaturesIn { name, wanted: "values", found: "null or empty".to_owned() }
}

/// The rows so far.
#[derive(Default)]
struct Table {
    classes: BTreeMap<String, Vec<f32>>,
    length: Option<usize>,
    rows: usize,
}

impl Table {
    /// Adds the rows of a group.
    fn add<T>(
        &mut self,
        names: Vec<String>,
        found: Column<T>,
        number: impl Fn(T) -> f32,
    ) -> Result<(), DataError> {
        let lengths = found.lengths(EMBEDDING, self.rows)?;
        self.rows += lengths.len();
        let mut values = found.values.into_iter().map(number);
        for (name, found) in names.into_iter().zip(lengths) {
            let wanted = *self.length.get_or_insert(found);
            if found != wanted {
                let what = format!("a row of class {name}");
                return Err(DataError::FeatureLength { what, wanted, found });
            }
            self.classes.entry(name).or_default().extend(values.by_ref().take(found));
        }
        Ok(())
    }
}
