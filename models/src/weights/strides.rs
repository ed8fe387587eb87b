//! How the tensors of a PyTorch file lie in memory, which `burn-store` 0.21 does not read: it takes every tensor for
//! contiguous, and gets those of a transposed layout wrong.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

use zip::ZipArchive;

/// Sizes and strides of a tensor, both in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

impl Layout {
    /// Whether elements lie in row-major order.
    pub(super) fn is_contiguous(&self) -> bool {
        let mut wanted = 1;
        self.shape.iter().zip(&self.strides).rev().all(|(&size, &stride)| {
            let fits = size == 1 || stride == wanted;
            wanted *= size;
            fits
        })
    }

    /// Where each element lies, in row-major order; `None` unless that is every place up to their number, once.
    pub(super) fn places(&self) -> Option<Vec<usize>> {
        let mut places = vec![0];
        for (&size, &stride) in self.shape.iter().zip(&self.strides) {
            let along = |place: usize| (0..size).map(move |at| place + at * stride);
            places = places.into_iter().flat_map(along).collect();
        }
        let mut taken = vec![false; places.len()];
        let dense = places.iter().all(|&place| {
            taken.get_mut(place).is_some_and(|taken| !std::mem::replace(taken, true))
        });
        dense.then_some(places)
    }
}

/// The layouts of all tensors of a file that PyTorch has written, by the names that `burn-store` gives them.
pub(super) fn layouts(file: &Path) -> io::Result<HashMap<String, Layout>> {
    let mut reader = BufReader::new(File::open(file)?);
    let root = match ZipArchive::new(&mut reader) {
        Ok(mut archive) => {
            let pickle = archive.file_names().find(|name| name.ends_with("data.pkl"));
            let pickle = pickle.map(str::to_owned).ok_or_else(|| broken("no data.pkl"))?;
            value(&mut BufReader::new(archive.by_name(&pickle)?))?
        }
        Err(_) => {
            reader.rewind()?;
            // A number, a version and sizes of types come before the tensors.
            for _ in 0..3 {
                value(&mut reader)?;
            }
            value(&mut reader)?
        }
    };
    let mut found = HashMap::new();
    flatten(root, String::new(), &mut found);
    Ok(found)
}

fn flatten(value: Value, name: String, found: &mut HashMap<String, Layout>) {
    match value {
        Value::Tensor(layout) => {
            found.insert(name, layout);
        }
        Value::Dict(items) => {
            for (key, value) in items {
                let Value::Text(key) = key else { continue };
                let name = if name.is_empty() { key } else { format!("{name}.{key}") };
                flatten(value, name, found);
            }
        }
        _ => {}
    }
}

/// As much of Python's values as state dictionaries are made of.
#[derive(Clone, Debug)]
enum Value {
    Mark,
    Int(i64),
    Text(String),
    /// Tuples and lists.
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    /// A class or function by its module and name.
    Global(String),
    Tensor(Layout),
    Other,
}

fn broken(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn bytes<const N: usize>(reader: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn text(reader: &mut impl Read, length: u64) -> io::Result<String> {
    let mut found = Vec::new();
    reader.take(length).read_to_end(&mut found)?;
    match found.len() as u64 == length {
        true => Ok(String::from_utf8_lossy(&found).into_owned()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn line(reader: &mut impl Read) -> io::Result<String> {
    let mut found = Vec::new();
    loop {
        match bytes::<1>(reader)? {
            [b'\n'] => return Ok(String::from_utf8_lossy(&found).into_owned()),
            [byte] => found.push(byte),
        }
    }
}

/// What is on the stack of the machine that a pickle is a program of.
#[derive(Default)]
struct Stack {
    values: Vec<Value>,
    memo: HashMap<u32, Value>,
}

impl Stack {
    fn pop(&mut self) -> io::Result<Value> {
        self.values.pop().ok_or_else(|| broken("a pickle takes more than there is"))
    }

    fn pop_list(&mut self) -> io::Result<Vec<Value>> {
        let mark = self.values.iter().rposition(|value| matches!(value, Value::Mark));
        let mark = mark.ok_or_else(|| broken("a pickle has no mark"))?;
        let found = self.values.split_off(mark + 1);
        self.values.pop();
        Ok(found)
    }

    fn pop_tuple(&mut self, length: usize) -> io::Result<()> {
        let first = self.values.len().checked_sub(length);
        let first = first.ok_or_else(|| broken("a pickle takes more than there is"))?;
        let found = self.values.split_off(first);
        self.values.push(Value::List(found));
        Ok(())
    }

    fn put(&mut self, key: u32) {
        if let Some(last) = self.values.last() {
            self.memo.insert(key, last.clone());
        }
    }

    fn get(&mut self, key: u32) -> io::Result<()> {
        let found = self.memo.get(&key).cloned();
        self.values.push(found.ok_or_else(|| broken("a pickle asks for what it never kept"))?);
        Ok(())
    }

    fn set_items(&mut self, items: Vec<Value>) {
        let Some(Value::Dict(dict)) = self.values.last_mut() else { return };
        let mut items = items.into_iter();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            dict.push((key, value));
        }
    }

    fn append(&mut self, items: Vec<Value>) {
        if let Some(Value::List(list)) = self.values.last_mut() {
            list.extend(items);
        }
    }
}

/// What a function makes of its arguments.
fn called(function: &Value, arguments: Value) -> Value {
    let (Value::Global(name), Value::List(arguments)) = (function, arguments) else {
        return Value::Other;
    };
    match name.as_str() {
        "collections OrderedDict" => Value::Dict(Vec::new()),
        "torch._utils _rebuild_parameter" => arguments.into_iter().next().unwrap_or(Value::Other),
        "torch._utils _rebuild_tensor_v2" | "torch._utils _rebuild_tensor" => {
            let sizes = |index: usize| match arguments.get(index) {
                Some(Value::List(sizes)) => {
                    let sizes = sizes.iter().map(|size| match size {
                        Value::Int(size) => usize::try_from(*size).ok(),
                        _ => None,
                    });
                    sizes.collect::<Option<Vec<_>>>()
                }
                _ => None,
            };
            match (sizes(2), sizes(3)) {
                (Some(shape), Some(strides)) => Value::Tensor(Layout { shape, strides }),
                _ => Value::Other,
            }
        }
        _ => Value::Other,
    }
}

/// Runs one pickle.
fn value(reader: &mut impl Read) -> io::Result<Value> {
    let mut stack = Stack::default();
    loop {
        let [code] = bytes(reader)?;
        let pushed = match code {
            b'.' => return stack.pop(),
            // Which protocol, and how long a part is.
            0x80 => {
                bytes::<1>(reader)?;
                continue;
            }
            0x95 => {
                bytes::<8>(reader)?;
                continue;
            }
            b'(' => Value::Mark,
            b'}' => Value::Dict(Vec::new()),
            b']' | b')' => Value::List(Vec::new()),
            b'N' | 0x88 | 0x89 => Value::Other,
            b'K' => Value::Int(bytes::<1>(reader)?[0].into()),
            b'M' => Value::Int(u16::from_le_bytes(bytes(reader)?).into()),
            b'J' => Value::Int(i32::from_le_bytes(bytes(reader)?).into()),
            0x8a => {
                let [length] = bytes(reader)?;
                let mut number = [0; 8];
                let mut digits = vec![0; length.into()];
                reader.read_exact(&mut digits)?;
                digits.iter().zip(&mut number).for_each(|(digit, to)| *to = *digit);
                Value::Int(i64::from_le_bytes(number))
            }
            b'G' => {
                bytes::<8>(reader)?;
                Value::Other
            }
            b'X' | b'T' | b'B' => {
                let length = u32::from_le_bytes(bytes(reader)?);
                Value::Text(text(reader, length.into())?)
            }
            b'U' | b'C' | 0x8c => {
                let [length] = bytes(reader)?;
                Value::Text(text(reader, length.into())?)
            }
            b'c' => Value::Global(format!("{} {}", line(reader)?, line(reader)?)),
            0x93 => match (stack.pop()?, stack.pop()?) {
                (Value::Text(name), Value::Text(module)) => {
                    Value::Global(format!("{module} {name}"))
                }
                _ => Value::Other,
            },
            // Storages, of which only strides are asked.
            b'Q' => {
                stack.pop()?;
                Value::Other
            }
            b'R' | 0x81 => {
                let arguments = stack.pop()?;
                called(&stack.pop()?, arguments)
            }
            b't' | b'l' => Value::List(stack.pop_list()?),
            0x85..=0x87 => {
                stack.pop_tuple(usize::from(code - 0x84))?;
                continue;
            }
            b'q' => {
                let [key] = bytes(reader)?;
                stack.put(key.into());
                continue;
            }
            b'r' => {
                stack.put(u32::from_le_bytes(bytes(reader)?));
                continue;
            }
            0x94 => {
                stack.put(stack.memo.len() as u32);
                continue;
            }
            b'h' => {
                let [key] = bytes(reader)?;
                stack.get(key.into())?;
                continue;
            }
            b'j' => {
                stack.get(u32::from_le_bytes(bytes(reader)?))?;
                continue;
            }
            b's' => {
                let (value, key) = (stack.pop()?, stack.pop()?);
                stack.set_items(vec![key, value]);
                continue;
            }
            b'u' => {
                let items = stack.pop_list()?;
                stack.set_items(items);
                continue;
            }
            b'a' => {
                let item = stack.pop()?;
                stack.append(vec![item]);
                continue;
            }
            b'e' => {
                let items = stack.pop_list()?;
                stack.append(items);
                continue;
            }
            b'b' | b'0' => {
                stack.pop()?;
                continue;
            }
            _ => return Err(broken(format!("a pickle has the unknown code {code:#04x}"))),
        };
        stack.values.push(pushed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_a_transposed_tensor() {
        let layout = Layout { shape: vec![2, 3], strides: vec![1, 2] };
        assert!(!layout.is_contiguous());
        assert_eq!(layout.places().unwrap(), [0, 2, 4, 1, 3, 5]);
        let view = Layout { shape: vec![2, 2], strides: vec![3, 1] };
        assert!(view.places().is_none() && !view.is_contiguous());
        let repeated = Layout { shape: vec![2, 2], strides: vec![0, 1] };
        assert!(repeated.places().is_none());
        for strides in [vec![3, 1], vec![3, 7]] {
            let size = if strides[1] == 1 { 3 } else { 1 };
            let whole = Layout { shape: vec![2, size], strides: vec![size, strides[1]] };
            assert!(whole.is_contiguous(), "{whole:?}");
        }
    }
}
