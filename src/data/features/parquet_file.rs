use std::fs::File;
use std::path::Path;

use parquet::basic::Type;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::Type as SchemaType;

use super::FeatureRows;
use crate::data::{DataError, Result};

const EMBEDDING: &str = "embedding";
const CLASS_NAME: &str = "class_name";

pub(super) fn read(path: &Path) -> Result<FeatureRows> {
    let damaged = DataError::damaged::<ParquetError>(path, "Parquet");
    let file = File::open(path).map_err(DataError::read(path))?;
    let file = SerializedFileReader::new(file).map_err(&damaged)?;
    let floats = [Type::FLOAT, Type::DOUBLE];
    check(&file, EMBEDDING, "a list of floats or doubles", &floats)?;
    check(&file, CLASS_NAME, "text", &[Type::BYTE_ARRAY])?;
    let root = file.metadata().file_metadata().schema();
    let both = root.get_fields().iter().filter(|it| [EMBEDDING, CLASS_NAME].contains(&it.name()));
    let both = SchemaType::group_type_builder(root.name()).with_fields(both.cloned().collect());
    let rows = file.get_row_iter(Some(both.build().map_err(&damaged)?)).map_err(&damaged)?;
    let mut length = None;
    let (mut all, mut labels) = (Vec::new(), Vec::new());
    for (number, row) in rows.enumerate() {
        let row = row.map_err(&damaged)?;
        let absent = |name: &str| DataError::NoFeaturesIn {
            name: format!("column {name} in row {number}"),
            expected: "values",
            actual: "null or empty".to_owned(),
        };
        let name = match field(&row, CLASS_NAME) {
            Some(Field::Str(name)) => name.clone(),
            Some(Field::Bytes(bytes)) => bytes.as_utf8().map_err(&damaged)?.to_owned(),
            _ => return Err(absent(CLASS_NAME)),
        };
        let values = field(&row, EMBEDDING).and_then(numbers);
        let values = values.filter(|values| !values.is_empty()).ok_or_else(|| absent(EMBEDDING))?;
        let (actual, expected) = (values.len(), *length.get_or_insert(values.len()));
        if actual != expected {
            let what = format!("a row of class {name}");
            return Err(DataError::FeatureLength { what, expected, actual });
        }
        all.extend(values);
        labels.push(name);
    }
    FeatureRows::new(length.unwrap_or(0), all)?.with_labels(labels)
}

/// Checks that the column `name` exists, has one value or list a row, and is of one of these types.
fn check(file: &impl FileReader, name: &str, expected: &'static str, types: &[Type]) -> Result {
    let columns = file.metadata().file_metadata().schema_descr().columns().iter();
    let leaves: Vec<_> = columns.filter(|leaf| leaf.path().parts()[0] == name).collect();
    let actual = match leaves[..] {
        [] => "not there".to_owned(),
        [leaf] if types.contains(&leaf.physical_type()) => return Ok(()),
        [leaf] => leaf.physical_type().to_string(),
        _ => "of several values".to_owned(),
    };
    Err(DataError::NoFeaturesIn { name: format!("column {name}"), expected, actual })
}

fn field<'a>(row: &'a Row, name: &str) -> Option<&'a Field> {
    row.get_column_iter().find(|(column, _)| *column == name).map(|(_, field)| field)
}

fn numbers(field: &Field) -> Option<Vec<f32>> {
    let Field::ListInternal(list) = field else { return None };
    let number = |value: &Field| match value {
        Field::Float(value) => Some(*value),
        Field::Double(value) => Some(*value as f32),
        _ => None,
    };
    list.elements().iter().map(number).collect()
}
