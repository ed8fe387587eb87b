use std::collections::HashMap;
use std::mem;
use std::ops::Range;

use super::{Dtype, Node, bytes_of};

/// Follows the instructions of a pickle: all values, and the number of the one that is left.
pub(super) fn run(bytes: &[u8]) -> Result<(Vec<Node>, usize), String> {
    let mut machine = Machine { bytes, ..Machine::default() };
    match machine.run() {
        Ok(root) => Ok((machine.nodes, root)),
        Err(reason) => Err(format!("{reason}, before byte {}", machine.at)),
    }
}

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
    /// Bytes in [`Node::Decoded`].
    decoded: usize,
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
                b'.' => return Ok(self.pop_several(1)?[0]),
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
                0x80 => _ = self.take(1)?,
                0x95 => _ = self.take(8)?,
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
                function(&self.bytes[module], &self.bytes[name])
            }
            0x93 => {
                let of = self.pop_several(2)?;
                function(self.part(of[0]).unwrap_or_default(), self.part(of[1]).unwrap_or_default())
            }
            b'R' => self.call()?,
            _ => return Err(format!("it has the unknown instruction {code:#04x}")),
        })
    }

    /// What the functions make that arrays, NumPy's numbers and bytes are written as. No other is known.
    fn call(&mut self) -> Step<Node> {
        let of = self.pop_several(2)?;
        let (Node::Function(name), Node::List(arguments)) =
            (&self.nodes[of[0]], &self.nodes[of[1]])
        else {
            return Err("what is called is no function".into());
        };
        let bytes = |index: usize| self.part(*arguments.get(index)?);
        let made = match (name.as_str(), arguments.as_slice()) {
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
            ("builtins bytes" | "builtins bytearray", arguments) => {
                let bytes = if arguments.is_empty() { Some(&[][..]) } else { bytes(0) };
                bytes.map(|bytes| Node::Decoded(bytes.to_vec()))
            }
            _ => None,
        };
        let made = made.ok_or_else(|| {
            let first = bytes(0).unwrap_or_default();
            let first = String::from_utf8_lossy(&first[..first.len().min(40)]);
            format!("it calls {name} of {first:?}, which is not read")
        })?;
        if let Node::Decoded(bytes) = &made {
            self.decoded += bytes.len();
        }
        // One text may be decoded many times, and bytes be copied; no writer does it more than once.
        let fits = self.decoded <= 2 * self.bytes.len();
        if fits { Ok(made) } else { Err("it decodes a text again and again".into()) }
    }

    /// Gives an array or a type what it is made of.
    fn build(&mut self) -> Step<()> {
        let state = self.pop_several(1)?[0];
        let node = *self.stack.last().ok_or(MISSING)?;
        let built = match (&self.nodes[node], &self.nodes[state]) {
            (Node::Dtype(dtype), Node::List(state)) if state.len() > 1 => {
                let big_endian = self.part(state[1]) == Some(b">");
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
        let (Node::List(sizes), Node::Dtype(dtype), Some(bytes)) =
            (&self.nodes[shape], &self.nodes[dtype], self.part(data))
        else {
            return Err("an array has no shape, no type or no bytes".into());
        };
        let size = |&size: &usize| match self.nodes[size] {
            Node::Int(size) => usize::try_from(size).ok(),
            _ => None,
        };
        // NumPy has at most 64 axes.
        let shape = sizes.iter().take(65).map(size).collect::<Option<Vec<_>>>();
        let shape = shape.filter(|shape| shape.len() < 65).ok_or("an array has no shape")?;
        let wanted = shape.iter().try_fold(dtype.size, |all, &size| all.checked_mul(size));
        match wanted == Some(bytes.len()) {
            true => Ok(Node::Array(shape, *dtype, data)),
            false => Err(format!("an array of {shape:?} has {} bytes", bytes.len())),
        }
    }

    fn part(&self, node: usize) -> Option<&[u8]> {
        bytes_of(&self.nodes, self.bytes, node)
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
            Node::Dict(dict) if items.len().is_multiple_of(2) => {
                dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            }
            _ => return Err("values are put into what is no list and no dictionary".into()),
        }
        Ok(())
    }
}

/// A function by its module and name. NumPy 2 and Python 2 have other names of modules.
fn function(module: &[u8], name: &[u8]) -> Node {
    let [module, name] = [module, name].map(String::from_utf8_lossy);
    let module = module.replace("numpy._core.", "numpy.core.").replace("__builtin__", "builtins");
    Node::Function(format!("{module} {name}"))
}
