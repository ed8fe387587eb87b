//! Arrays, lists and dictionaries in the pickles of Python and NumPy. A pickle is a program; of its instructions only
//! those that build such values are followed, and what it calls is of a fixed list of functions, rebuilt here.

mod arrays;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use fewshot_models::pickle::{Node, Values, run};

use crate::data::DataError;

use arrays::Arrays;

/// A pickle in memory.
pub(super) struct Pickle {
    path: PathBuf,
    values: Values<Array>,
}

/// A value, and what errors call it.
#[derive(Clone, Copy)]
pub(super) struct Value<'a> {
    pickle: &'a Pickle,
    node: usize,
    name: &'a str,
}

/// A value that Python's functions make.
enum Array {
    Decoded(Vec<u8>),
    Dtype(Dtype),
    /// Shape, type and the number of its bytes.
    Of(Vec<usize>, Dtype, usize),
}

#[derive(Clone, Copy)]
struct Dtype {
    kind: u8,
    size: usize,
    big_endian: bool,
}

impl Pickle {
    /// Reads the whole file; values refer to its bytes.
    pub(super) fn open(path: PathBuf) -> Result<Self, DataError> {
        let file = File::open(&path).map_err(DataError::read(&path))?;
        let length = file.metadata().map_err(DataError::read(&path))?.len() as usize;
        Self::read(path, BufReader::new(file), length)
    }

    fn read(path: PathBuf, file: impl BufRead, length: usize) -> Result<Self, DataError> {
        match run(file, length, Arrays::default()) {
            Ok(values) => Ok(Self { path, values }),
            Err(reason) => Err(DataError::Pickle { path, reason }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn root(&self) -> Value<'_> {
        Value { pickle: self, node: self.values.root, name: "the whole" }
    }

    pub(super) fn wrong(&self, reason: String) -> DataError {
        DataError::Pickle { path: self.path.clone(), reason }
    }
}

fn bytes_of(values: &Values<Array>, node: usize) -> Option<&[u8]> {
    match &values.nodes[node] {
        Node::Object(Array::Decoded(bytes)) => Some(bytes),
        _ => values.part(node),
    }
}

impl<'a> Value<'a> {
    /// The value of a dictionary under a name.
    pub(super) fn get(self, key: &'a str) -> Result<Self, DataError> {
        let Node::Dict(pairs) = self.node() else { return Err(self.unlike("a dictionary")) };
        let pair = pairs.iter().rfind(|&&(name, _)| self.raw(name) == Some(key.as_bytes()));
        let &(_, node) = pair.ok_or_else(|| self.unlike(&format!("a dictionary with {key}")))?;
        Ok(Self { name: key, ..self.with_node(node) })
    }

    /// The names and values of a dictionary.
    pub(super) fn entries(self) -> Result<Vec<(String, Self)>, DataError> {
        let Node::Dict(pairs) = self.node() else { return Err(self.unlike("a dictionary")) };
        let names = self.texts_at(pairs.iter().map(|&(key, _)| key))?;
        Ok(names.into_iter().zip(pairs.iter().map(|&(_, node)| self.with_node(node))).collect())
    }

    /// The texts of a list or tuple.
    pub(super) fn texts(self) -> Result<Vec<String>, DataError> {
        let Node::List(items) = self.node() else { return Err(self.unlike("a list")) };
        self.texts_at(items.iter().copied())
    }

    /// The texts at these places, which may not be one text again and again.
    fn texts_at(self, nodes: impl Iterator<Item = usize>) -> Result<Vec<String>, DataError> {
        let mut left = self.pickle.values.bytes.len();
        let text = |node| {
            let length = self.raw(node).map_or(0, <[u8]>::len);
            left = left.checked_sub(length).ok_or_else(|| {
                self.pickle.wrong(format!("{} has more text than the file", self.name))
            })?;
            self.with_node(node).text()
        };
        nodes.map(text).collect()
    }

    /// The elements of a list or tuple.
    pub(super) fn items(self) -> Result<Vec<Self>, DataError> {
        let Node::List(items) = self.node() else { return Err(self.unlike("a list")) };
        Ok(items.iter().map(|&node| self.with_node(node)).collect())
    }

    pub(super) fn text(self) -> Result<String, DataError> {
        let bytes = self.raw(self.node).ok_or_else(|| self.unlike("a text"))?;
        let latin = |_| bytes.iter().map(|&byte| char::from(byte)).collect();
        Ok(String::from_utf8(bytes.to_vec()).unwrap_or_else(latin))
    }

    /// Bytes, or an array of them.
    pub(super) fn bytes(self) -> Result<&'a [u8], DataError> {
        self.raw(self.node).map_or_else(|| Ok(self.array()?.1), Ok)
    }

    /// Shape and values of an array of bytes.
    pub(super) fn array(self) -> Result<(&'a [usize], &'a [u8]), DataError> {
        match self.node() {
            Node::Object(Array::Of(shape, Dtype { kind: b'u', size: 1, .. }, data)) => {
                Ok((shape, self.raw(*data).unwrap_or_default()))
            }
            _ => Err(self.unlike("an array of uint8")),
        }
    }

    /// The numbers of a list, tuple or array.
    pub(super) fn integers(self) -> Result<Vec<i64>, DataError> {
        if let Node::Object(Array::Of(_, dtype, data)) = self.node() {
            let numbers = self.raw(*data).unwrap_or_default().chunks_exact(dtype.size);
            let numbers: Option<_> = numbers.map(|bytes| dtype.integer(bytes)).collect();
            return numbers.ok_or_else(|| self.unlike("an array of integers"));
        }
        let number = |value: Self| match value.node() {
            Node::Int(number) => Ok(*number),
            _ => Err(self.unlike("a list of integers")),
        };
        self.items()?.into_iter().map(number).collect()
    }

    fn node(self) -> &'a Node<Array> {
        &self.pickle.values.nodes[self.node]
    }

    fn with_node(self, node: usize) -> Self {
        Self { node, ..self }
    }

    fn raw(self, node: usize) -> Option<&'a [u8]> {
        bytes_of(&self.pickle.values, node)
    }

    fn unlike(self, expected: &str) -> DataError {
        self.pickle.wrong(format!("{} is not {expected}", self.name))
    }
}

impl Dtype {
    fn parse(text: &[u8]) -> Option<Self> {
        let (&kind, size) = text.split_first()?;
        let size = std::str::from_utf8(size).ok()?.parse().ok()?;
        let known = matches!((kind, size), (b'i' | b'u' | b'f' | b'b', 1 | 2 | 4 | 8));
        known.then_some(Self { kind, size, big_endian: false })
    }

    /// A whole number of at most 8 bytes.
    fn integer(self, bytes: &[u8]) -> Option<i64> {
        let highest = if self.big_endian { bytes.first() } else { bytes.last() };
        let sign = i64::from(self.kind == b'i' && highest.is_some_and(|&byte| byte > 127));
        let digit = |value, &byte: &u8| value << 8 | i64::from(byte);
        b"iu".contains(&self.kind).then(|| match self.big_endian {
            true => bytes.iter().fold(-sign, digit),
            false => bytes.iter().rev().fold(-sign, digit),
        })
    }
}

#[cfg(test)]
mod tests;
