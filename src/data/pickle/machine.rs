use std::collections::HashMap;
use std::mem;
use std::ops::Range;

/// A value of a pickle, which names others by their number.
#[derive(Clone)]
pub(super) enum Node {
    /// None, and numbers that are not whole.
    None,
    Int(i64),
    /// Bytes or a text, in the file.
    Bytes(Range<usize>),
    Decoded(Vec<u8>),
    /// Also tuples.
    List(Vec<usize>),
    Dict(Vec<(usize, usize)>),
    Function(&'static str),
    Dtype(Dtype),
    /// Shape, type and the number of its bytes.
    Array(Vec<usize>, Dtype, usize),
}

#[derive(Clone, Copy)]
pub(super) struct Dtype {
    pub(super) kind: u8,
    pub(super) size: usize,
    big_endian: bool,
}

pub(super) fn bytes_of<'a>(nodes: &'a [Node], file: &'a [u8], node: usize) -> Option<&'a [u8]> {
    match &nodes[node] {
        Node::Bytes(range) => Some(&file[range.clone()]),
        Node::Decoded(bytes) => Some(bytes),
        _ => None,
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
    pub(super) fn integer(self, bytes: &[u8]) -> Option<i64> {
        let mut bytes = bytes.to_vec();
        if self.big_endian {
            bytes.reverse();
        }
        let sign = i64::from(self.kind == b'i' && bytes.last().is_some_and(|&byte| byte > 127));
        let value = bytes.iter().rev().fold(-sign, |value, &byte| value << 8 | i64::from(byte));
        b"iu".contains(&self.kind).then_some(value)
    }
}

/// Follows the instructions of a pickle: all values, and the number of the one that is left.
pub(super) fn run(bytes: &[u8]) -> Result<(Vec<Node>, usize), String> {
    let mut machine = Machine { bytes, ..Machine::default() };
    match machine.run() {
        Ok(root) => Ok((machine.nodes, root)),
        Err(reason) => Err(format!("{reason}, before byte {}", machine.at)),
    }
}

/// What may be called: what arrays, NumPy's numbers, bytes and dictionaries are made by.
const FUNCTIONS: [&str; 8] = [
    "numpy.core.multiarray _reconstruct",
    "numpy.core.numeric _frombuffer",
    "numpy.core.multiarray scalar",
    "numpy ndarray",
    "numpy dtype",
    "_codecs encode",
    "builtins bytes",
    "builtins bytearray",
];

/// The stack machine that a pickle is a program of.
#[derive(Default)]
struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    stack: Vec<usize>,
    /// Heights of the stack that lists begin at.
    marks: Vec<usize>,
    memo: HashMap<usize, usize>,
}

type Step<T> = Result<T, String>;

const MISSING: &str = "an instruction takes a value that is not there";
const COLUMNS: &str = "an array does not lie row by row";

impl Machine<'_> {
    fn run(&mut self) -> Step<usize> {
        if self.bytes.first() != Some(&0x80) {
            return Err("it is no pickle of protocol 2 or later".into());
        }
        loop {
            match self.number(1)? as u8 {
                b'.' => return self.pop(),
                b'(' => self.marks.push(self.stack.len()),
                b'q' => self.number(1).and_then(|key| self.keep(key))?,
                b'r' => self.number(4).and_then(|key| self.keep(key))?,
                0x94 => self.keep(self.memo.len())?,
                b'h' => self.number(1).and_then(|key| self.kept(key))?,
                b'j' => self.number(4).and_then(|key| self.kept(key))?,
                b'a' => self.pop_several(1).and_then(|items| self.extend(items))?,
                b's' => self.pop_several(2).and_then(|items| self.extend(items))?,
                b'e' | b'u' => self.pop_marked().and_then(|items| self.extend(items))?,
                b'b' => self.build()?,
                // The protocol, and how long a part is.
                0x80 => drop(self.take(1)?),
                0x95 => drop(self.take(8)?),
                code => {
                    let node = self.value(code)?;
                    self.stack.push(self.nodes.len());
                    self.nodes.push(node);
                }
            }
        }
    }

    /// The value that an instruction puts on the stack.
    fn value(&mut self, code: u8) -> Step<Node> {
        Ok(match code {
            b'N' => Node::None,
            b'G' => self.take(8).map(|_| Node::None)?,
            0x88 | 0x89 => Node::Int((code == 0x88).into()),
            b'K' => Node::Int(self.number(1)? as i64),
            b'M' => Node::Int(self.number(2)? as i64),
            b'J' => Node::Int((self.number(4)? as i32).into()),
            0x8a => {
                let range = self.counted(1)?;
                let long = Dtype { kind: b'i', size: range.len(), big_endian: false };
                let long = (long.size <= 8).then(|| long.integer(&self.bytes[range])).flatten();
                Node::Int(long.ok_or("a number has more than 64 bits")?)
            }
            b'U' | b'C' | 0x8c => Node::Bytes(self.counted(1)?),
            b'T' | b'B' | b'X' => Node::Bytes(self.counted(4)?),
            0x8d | 0x8e | 0x96 => Node::Bytes(self.counted(8)?),
            b']' | b')' => Node::List(Vec::new()),
            b't' => Node::List(self.pop_marked()?),
            0x85..=0x87 => Node::List(self.pop_several(usize::from(code - 0x84))?),
            b'}' => Node::Dict(Vec::new()),
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                function(&self.bytes[module], &self.bytes[name])?
            }
            0x93 => {
                let of = self.pop_several(2)?;
                let part = |node| bytes_of(&self.nodes, self.bytes, node).unwrap_or_default();
                function(part(of[0]), part(of[1]))?
            }
            b'R' => {
                let of = self.pop_several(2)?;
                match (&self.nodes[of[0]], &self.nodes[of[1]]) {
                    (Node::Function(name), Node::List(arguments)) => {
                        self.called(name, arguments)?
                    }
                    _ => return Err("what is called is no function".into()),
                }
            }
            _ => return Err(format!("it has the unknown instruction {code:#04x}")),
        })
    }

    fn called(&self, name: &str, arguments: &[usize]) -> Step<Node> {
        let bytes = |index: usize| bytes_of(&self.nodes, self.bytes, *arguments.get(index)?);
        let made = match (name, arguments) {
            // Its state follows.
            ("numpy.core.multiarray _reconstruct", _) => Some(Node::None),
            ("numpy.core.numeric _frombuffer", &[data, dtype, shape, _]) => {
                let rows = bytes(3) == Some(b"C");
                return if rows { self.array(shape, dtype, data) } else { Err(COLUMNS.into()) };
            }
            ("numpy.core.multiarray scalar", &[dtype, _]) => match (&self.nodes[dtype], bytes(1)) {
                (Node::Dtype(dtype), Some(bytes)) if bytes.len() == dtype.size => {
                    Some(dtype.integer(bytes).map_or(Node::None, Node::Int))
                }
                _ => None,
            },
            ("numpy dtype", _) => bytes(0).and_then(Dtype::parse).map(Node::Dtype),
            ("_codecs encode", _) => {
                let text = bytes(0).and_then(|text| std::str::from_utf8(text).ok());
                let latin = |text: &str| text.chars().map(|c| u8::try_from(c).ok()).collect();
                text.and_then(latin).map(Node::Decoded)
            }
            ("builtins bytes" | "builtins bytearray", []) => Some(Node::Decoded(Vec::new())),
            ("builtins bytes" | "builtins bytearray", &[bytes]) => Some(self.nodes[bytes].clone()),
            _ => None,
        };
        let first = || String::from_utf8_lossy(bytes(0).unwrap_or_default());
        made.ok_or_else(|| format!("{name} of {:?} is not read", first()))
    }

    /// Gives an array or a type what it is made of.
    fn build(&mut self) -> Step<()> {
        let state = self.pop()?;
        let node = *self.stack.last().ok_or(MISSING)?;
        let built = match (&self.nodes[node], &self.nodes[state]) {
            (Node::Dtype(dtype), Node::List(state)) if state.len() > 1 => {
                let big_endian = bytes_of(&self.nodes, self.bytes, state[1]) == Some(b">");
                Node::Dtype(Dtype { big_endian, ..*dtype })
            }
            (Node::None, Node::List(state)) if state.len() == 5 => match self.nodes[state[3]] {
                Node::Int(0) => self.array(state[1], state[2], state[4])?,
                _ => return Err(COLUMNS.into()),
            },
            _ => return Err("a state is given to what is no array and no type".into()),
        };
        self.nodes[node] = built;
        Ok(())
    }

    fn array(&self, shape: usize, dtype: usize, data: usize) -> Step<Node> {
        let bytes = bytes_of(&self.nodes, self.bytes, data);
        let (Node::List(sizes), Node::Dtype(dtype), Some(bytes)) =
            (&self.nodes[shape], &self.nodes[dtype], bytes)
        else {
            return Err("an array has no shape, no type or no bytes".into());
        };
        let size = |&size: &usize| match self.nodes[size] {
            Node::Int(size) => usize::try_from(size).map_err(|_| MISSING.to_owned()),
            _ => Err(MISSING.to_owned()),
        };
        let shape = sizes.iter().map(size).collect::<Step<Vec<_>>>()?;
        let wanted = shape.iter().try_fold(dtype.size, |all, &size| all.checked_mul(size));
        match wanted == Some(bytes.len()) {
            true => Ok(Node::Array(shape, *dtype, data)),
            false => Err(format!("an array of {shape:?} has {} bytes", bytes.len())),
        }
    }

    fn take(&mut self, length: usize) -> Step<Range<usize>> {
        let end = self.at.checked_add(length).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or("it ends in the middle of a value")?;
        Ok(mem::replace(&mut self.at, end)..end)
    }

    fn number(&mut self, length: usize) -> Step<usize> {
        let digits = self.take(length)?;
        Ok(self.bytes[digits].iter().rev().fold(0, |all, &digit| all << 8 | usize::from(digit)))
    }

    /// Bytes that come after their number.
    fn counted(&mut self, length: usize) -> Step<Range<usize>> {
        self.number(length).and_then(|length| self.take(length))
    }

    fn line(&mut self) -> Step<Range<usize>> {
        let length = self.bytes[self.at..].iter().position(|&byte| byte == b'\n');
        let line = self.take(length.unwrap_or(usize::MAX))?;
        self.at += 1;
        Ok(line)
    }

    fn pop(&mut self) -> Step<usize> {
        Ok(self.stack.pop().ok_or(MISSING)?)
    }

    fn pop_several(&mut self, count: usize) -> Step<Vec<usize>> {
        let first = self.stack.len().checked_sub(count).ok_or(MISSING)?;
        Ok(self.stack.split_off(first))
    }

    fn pop_marked(&mut self) -> Step<Vec<usize>> {
        let mark = self.marks.pop().filter(|&mark| mark <= self.stack.len());
        Ok(self.stack.split_off(mark.ok_or(MISSING)?))
    }

    fn keep(&mut self, key: usize) -> Step<()> {
        self.memo.insert(key, *self.stack.last().ok_or(MISSING)?);
        Ok(())
    }

    fn kept(&mut self, key: usize) -> Step<()> {
        self.stack.push(*self.memo.get(&key).ok_or(MISSING)?);
        Ok(())
    }

    /// Puts values into the list, or pairs of them into the dictionary, that is on the stack.
    fn extend(&mut self, items: Vec<usize>) -> Step<()> {
        let to = *self.stack.last().ok_or(MISSING)?;
        match &mut self.nodes[to] {
            Node::List(list) => list.extend(items),
            Node::Dict(dict) if items.len() % 2 == 0 => {
                dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            }
            _ => return Err("values are put into what is no list and no dictionary".into()),
        }
        Ok(())
    }
}

fn function(module: &[u8], name: &[u8]) -> Step<Node> {
    let [module, name] = [module, name].map(String::from_utf8_lossy);
    let module = module.replace("numpy._core.", "numpy.core.").replace("__builtin__", "builtins");
    let wanted = format!("{module} {name}");
    let found = FUNCTIONS.iter().find(|function| **function == wanted);
    Ok(Node::Function(found.ok_or_else(|| format!("it calls {wanted}, which is not read"))?))
}
