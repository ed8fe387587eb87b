//! Arrays of NumPy in `.npy` files.
//!
//! The header is read here, by NumPy's rule for files of strangers (at most 10 000 bytes), and its sizes are compared with
//! the bytes that follow before anything is made of them.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use burn::tensor::f16;

use super::FeatureRows;
use super::numbers::each;
use crate::data::{DataError, Result};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Bytes of a header, at most, as `max_header_size` of `numpy.load`.
const MOST_OF_HEADER: usize = 10_000;

/// Bytes that are read at a time, a multiple of the size of every number.
const CHUNK: usize = 1 << 16;

pub(super) fn read(path: &Path) -> Result<FeatureRows> {
    let read = DataError::read(path);
    let file = File::open(path).map_err(&read)?;
    let bytes = file.metadata().map_err(&read)?.len();
    Array::open(BufReader::new(file), bytes, "npy", path)?.rows("the array", path)
}

/// An array whose header is read and whose numbers are not.
pub(super) struct Array<R> {
    header: Header,
    reader: R,
    format: &'static str,
}

/// The numbers that bytes are.
type Numbers = fn(&[u8]) -> Vec<f32>;

/// The label that bytes are, if they are one.
type Label = fn(&[u8]) -> Option<String>;

struct Header {
    /// Kind of the numbers as NumPy writes it, such as `<f4`; empty of records.
    kind: String,
    shape: Vec<usize>,
    order: Order,
    /// Bytes of the file before the numbers.
    length: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// Row after row.
    C,
    /// Column after column.
    Fortran,
}

impl<R: Read> Array<R> {
    /// An array in `bytes` bytes of a file in this format, which errors call `path`.
    pub(super) fn open(
        mut reader: R,
        bytes: u64,
        format: &'static str,
        path: &Path,
    ) -> Result<Self> {
        let damaged = DataError::damaged::<String>(path, format);
        let header = Header::read(&mut reader).map_err(&damaged)?;
        let array = Self { header, reader, format };
        let after = bytes.saturating_sub(array.header.length);
        match array.bytes() {
            Some(needed) if array.is_readable() && needed != after => {
                let Header { kind, shape, .. } = &array.header;
                Err(damaged(format!("{kind} {shape:?} take {needed} bytes, and {after} are there")))
            }
            None => Err(damaged(format!("the shape {:?} is beyond all memory", array.shape()))),
            Some(_) => Ok(array),
        }
    }

    fn shape(&self) -> &[usize] {
        &self.header.shape
    }

    /// Rows `[n, d]` of floats. Errors call the array `name`.
    pub(super) fn rows(self, name: &str, path: &Path) -> Result<FeatureRows> {
        let (length, values) = self.numbers(name, path)?;
        FeatureRows::new(length, values)
    }

    /// Values in a row, and all rows, one after the other.
    pub(super) fn numbers(mut self, name: &str, path: &Path) -> Result<(usize, Vec<f32>)> {
        let number = self.number();
        let (&[rows, length], Some(number)) = (self.shape(), number) else {
            return Err(self.refused(name, "float16, float32 or float64 numbers [n, d]"));
        };
        if rows == 0 || length == 0 {
            return Err(self.refused(name, "one row of one value at least"));
        }
        let mut values = Vec::new();
        let convert = |bytes: &[u8]| values.extend(number(bytes));
        self.chunks(convert).map_err(DataError::damaged(path, self.format))?;
        Ok(match self.header.order {
            Order::C => (length, values),
            Order::Fortran => {
                let row = |row: usize| values.iter().skip(row).step_by(rows).copied();
                (length, (0..rows).flat_map(row).collect())
            }
        })
    }

    /// Labels `[n]`: whole numbers or text. Errors call the array `name`.
    pub(super) fn labels(mut self, name: &str, path: &Path) -> Result<Vec<String>> {
        let (Some(label), &[_]) = (self.label(), self.shape()) else {
            return Err(self.refused(name, "whole numbers or text [n]"));
        };
        let mut content = Vec::new();
        self.chunks(|bytes| content.extend(bytes))
            .map_err(DataError::damaged(path, self.format))?;
        let size = self.size().unwrap_or(1);
        let labels = content.chunks_exact(size).enumerate().map(|(row, bytes)| {
            label(bytes).filter(|label| !label.is_empty()).ok_or_else(|| DataError::NoFeaturesIn {
                name: format!("row {row} of {name}"),
                expected: "a label",
                actual: "empty or no text".to_owned(),
            })
        });
        labels.collect()
    }

    /// Passes all bytes of the numbers to `take`, some at a time, none of which is cut.
    fn chunks(&mut self, mut take: impl FnMut(&[u8])) -> std::io::Result<()> {
        let mut left = self.bytes().unwrap_or(0);
        let size = self.size().unwrap_or(1);
        let chunk = CHUNK.next_multiple_of(size) as u64;
        let mut buffer = Vec::new();
        while left > 0 {
            buffer.resize(left.min(chunk) as usize, 0);
            self.reader.read_exact(&mut buffer)?;
            take(&buffer);
            left -= buffer.len() as u64;
        }
        Ok(())
    }

    /// Bytes that the numbers take, if they can be counted.
    fn bytes(&self) -> Option<u64> {
        let sizes = self.header.shape.iter().copied().chain([self.size().unwrap_or(1)]);
        let bytes = sizes.map(|size| size as u64).try_fold(1_u64, u64::checked_mul)?;
        (bytes <= isize::MAX as u64).then_some(bytes)
    }

    /// Bytes of a number or of a label.
    fn size(&self) -> Option<usize> {
        let kind = self.header.kind.get(1..)?;
        let size: usize = kind.get(1..)?.parse().ok()?;
        // Text has 4 bytes a character.
        if kind.starts_with('U') { size.checked_mul(4) } else { Some(size) }
    }

    fn is_readable(&self) -> bool {
        self.number().is_some() || self.label().is_some()
    }

    fn number(&self) -> Option<Numbers> {
        Some(match self.header.kind.as_str() {
            "<f2" => |bytes| each(bytes, |of| f16::from_le_bytes(of).to_f32()),
            ">f2" => |bytes| each(bytes, |of| f16::from_be_bytes(of).to_f32()),
            "<f4" => |bytes| each(bytes, f32::from_le_bytes),
            ">f4" => |bytes| each(bytes, f32::from_be_bytes),
            "<f8" => |bytes| each(bytes, |of| f64::from_le_bytes(of) as f32),
            ">f8" => |bytes| each(bytes, |of| f64::from_be_bytes(of) as f32),
            _ => return None,
        })
    }

    fn label(&self) -> Option<Label> {
        let kind = self.header.kind.as_str();
        let size = self.size()?;
        Some(match (kind.get(..2)?, size) {
            ("|i", 1) => |of| Some(i8::from_le_bytes(of.try_into().ok()?).to_string()),
            ("|u", 1) => |of| Some(u8::from_le_bytes(of.try_into().ok()?).to_string()),
            ("<i", 2 | 4 | 8) => |of| Some(signed(of.iter().rev().copied()).to_string()),
            (">i", 2 | 4 | 8) => |of| Some(signed(of.iter().copied()).to_string()),
            ("<u", 2 | 4 | 8) => |of| Some(unsigned(of.iter().rev().copied()).to_string()),
            (">u", 2 | 4 | 8) => |of| Some(unsigned(of.iter().copied()).to_string()),
            ("<U", 4..) => |of| text(of, u32::from_le_bytes),
            (">U", 4..) => |of| text(of, u32::from_be_bytes),
            ("|S", 1..) => |of| {
                let text = std::str::from_utf8(of).ok()?;
                Some(text.trim_end_matches('\0').to_owned())
            },
            _ => return None,
        })
    }

    /// An array that is not what is `expected` of it.
    fn refused(&self, name: &str, expected: &'static str) -> DataError {
        let Header { kind, shape, .. } = &self.header;
        let actual = match kind.get(..2).unwrap_or_default() {
            "|O" | "<O" | ">O" => "of pickled Python objects, which are never read".to_owned(),
            "|V" | "<V" | ">V" => {
                format!("{kind} {shape:?}, bytes without a kind: NumPy has no bfloat16")
            }
            "" => "of records".to_owned(),
            _ => format!("{kind} {shape:?}"),
        };
        DataError::NoFeaturesIn { name: name.to_owned(), expected, actual }
    }
}

impl Header {
    fn read(reader: &mut impl Read) -> Result<Self, String> {
        let mut start = [0; 8];
        let cut = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "it ends in its header".to_owned(),
            _ => error.to_string(),
        };
        reader.read_exact(&mut start).map_err(cut)?;
        if !start.starts_with(MAGIC) {
            return Err("it does not begin as one".to_owned());
        }
        let mut size = [0; 4];
        let prefix = match start[6..] {
            [1, _] => 2,
            [2 | 3, _] => 4,
            _ => return Err(format!("it is of version {}.{}", start[6], start[7])),
        };
        reader.read_exact(&mut size[..prefix]).map_err(cut)?;
        let size = u32::from_le_bytes(size) as usize;
        if size > MOST_OF_HEADER {
            return Err(format!("its header has {size} bytes, at most {MOST_OF_HEADER} are read"));
        }
        let mut text = vec![0; size];
        reader.read_exact(&mut text).map_err(cut)?;
        let header = Self::parse(&String::from_utf8_lossy(&text));
        let mut header = header.ok_or("its header does not say kind, order and shape")?;
        header.length = (start.len() + prefix + size) as u64;
        Ok(header)
    }

    /// Reads Python's `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
    fn parse(text: &str) -> Option<Self> {
        let value = |key: &str| {
            let (_, value) = text.split_once(&format!("'{key}':"))?;
            Some(value.trim_start())
        };
        let kind = match value("descr")?.strip_prefix('\'') {
            Some(kind) => kind.split_once('\'')?.0.to_owned(),
            None => String::new(),
        };
        let order = match value("fortran_order")? {
            order if order.starts_with("False") => Order::C,
            order if order.starts_with("True") => Order::Fortran,
            _ => return None,
        };
        let (shape, _) = value("shape")?.strip_prefix('(')?.split_once(')')?;
        // Python 2 wrote 3L.
        let sizes = shape.split(',').map(|size| size.trim().trim_end_matches('L'));
        let sizes = sizes.filter(|size| !size.is_empty());
        let shape = sizes.map(|size| size.parse().ok()).collect::<Option<_>>()?;
        Some(Self { kind, shape, order, length: 0 })
    }
}

/// The number of these bytes, the most significant first.
fn unsigned(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0, |number, byte| number << 8 | u64::from(byte))
}

/// The same with the first bit for the sign.
fn signed(mut bytes: impl Iterator<Item = u8>) -> i64 {
    let first = bytes.next().map_or(0, |byte| i64::from(byte as i8));
    bytes.fold(first, |number, byte| number << 8 | i64::from(byte))
}

/// Text of four bytes a character, padded with zeros.
fn text(bytes: &[u8], character: impl Fn([u8; 4]) -> u32) -> Option<String> {
    let characters = bytes.as_chunks().0.iter().map(|&bytes| char::from_u32(character(bytes)));
    let text: String = characters.collect::<Option<_>>()?;
    Some(text.trim_end_matches('\0').to_owned())
}
