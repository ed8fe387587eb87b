//! Python's pickles. A pickle is a program; of its instructions only those that build plain values
//! are followed here, and what it calls is left to [`Objects`].

use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::ops::Range;

/// Values that refer to one another by their number, so that none is copied or nested.
#[derive(Debug)]
pub struct Values<T> {
    /// The pickle.
    pub bytes: Vec<u8>,
    /// All values.
    pub nodes: Vec<Node<T>>,
    /// The number of the value that the pickle stands for.
    pub root: usize,
}

/// A value of a pickle, which names others by their number.
#[derive(Debug)]
pub enum Node<T> {
    /// None, and numbers that are not whole or have more than 64 bits.
    None,
    /// A whole number, or a truth value.
    Int(i64),
    /// Bytes or a text, as they are in the file.
    Bytes(Range<usize>),
    /// A list or a tuple.
    List(Vec<usize>),
    /// A dictionary's keys and values.
    Dict(Vec<(usize, usize)>),
    /// A class or function by its module and name, as they are in the file.
    Function(Range<usize>, Range<usize>),
    /// A value made by [`Objects`].
    Object(T),
}

/// The functions that a pickle may call. No function of Python runs: an implementation answers each call itself.
pub trait Objects {
    /// Values that are not plain.
    type Object;

    /// `true` to ignore two mistakes in place of an error: a call of a value that is no function, and an insertion into a
    /// value that is no list and no dictionary.
    const FORGETS: bool;

    /// The value that a function returns for its arguments.
    ///
    /// # Errors
    /// Where the function is unknown.
    fn call(
        &mut self,
        values: &Values<Self::Object>,
        function: &str,
        arguments: &[usize],
    ) -> Step<Node<Self::Object>>;

    /// The value that replaces `node` when it is given a state; `None` if the node stays.
    ///
    /// # Errors
    /// Where the value takes no state.
    fn build(
        &mut self,
        _values: &Values<Self::Object>,
        _node: usize,
        _state: usize,
    ) -> Step<Option<Node<Self::Object>>> {
        Ok(None)
    }
}

/// A result whose error is the reason as a text.
pub type Step<T> = Result<T, String>;

/// Follows the instructions of a pickle, and reads not beyond it; `length` is about how long it is.
///
/// # Conventions
/// A part of the file beside its pickle is the value that names it there.
///
/// # Errors
/// Where it is damaged, has other instructions or far more of them than its size calls for, or [`Objects`] say so.
pub fn run<O: Objects>(reader: impl BufRead, length: usize, objects: O) -> Step<Values<O::Object>> {
    let (bytes, nodes) = (Vec::with_capacity(length), Vec::new());
    let values = Values { bytes, nodes, root: 0 };
    let (stack, marks, memo) = (Vec::new(), Vec::new(), HashMap::new());
    let mut machine = Machine { reader, objects, values, stack, marks, memo };
    match machine.run() {
        Ok(root) => Ok(Values { root, ..machine.values }),
        Err(reason) => Err(format!("{reason}, before byte {}", machine.values.bytes.len())),
    }
}

/// The stack machine that a pickle is a program of.
struct Machine<R, O: Objects> {
    reader: R,
    objects: O,
    values: Values<O::Object>,
    stack: Vec<usize>,
    /// Heights of the stack that lists begin at.
    marks: Vec<usize>,
    memo: HashMap<usize, usize>,
}

const MISSING: &str = "an instruction takes a value that is not there";
/// Instructions that a pickle may have beside one for each 64 of its bytes. Each makes values of a hundred bytes at
/// most, so that a small file does not take much memory.
const INSTRUCTIONS: usize = 1_500_000;

/// Axes of an array, at most, in NumPy and PyTorch.
const AXES: usize = 64;

/// Bytes of a function's module and name, at most.
const FUNCTION: usize = 256;

const CUT: &str = "it ends in the middle of a value";

impl<T> Values<T> {
    /// Bytes or a text, if it lies in the file.
    pub fn part(&self, node: usize) -> Option<&[u8]> {
        match &self.nodes[node] {
            Node::Bytes(range) => Some(&self.bytes[range.clone()]),
            _ => None,
        }
    }

    /// A list of sizes, one for each axis of an array.
    pub fn sizes(&self, node: usize) -> Option<Vec<usize>> {
        let Node::List(sizes) = &self.nodes[node] else { return None };
        if sizes.len() > AXES {
            return None;
        }
        let size = |&size: &usize| match self.nodes[size] {
            Node::Int(size) => usize::try_from(size).ok(),
            _ => None,
        };
        sizes.iter().map(size).collect()
    }

    /// The module and name of a function. NumPy 2 and Python 2 have other names of modules.
    fn function(&self, module: &Range<usize>, name: &Range<usize>) -> Step<String> {
        let length = module.len() + name.len();
        if length > FUNCTION {
            return Err(format!(
                "it calls what has a name of {length} bytes, at most {FUNCTION} are read"
            ));
        }
        let [module, name] =
            [module, name].map(|part| String::from_utf8_lossy(&self.bytes[part.clone()]));
        let module =
            module.replace("numpy._core.", "numpy.core.").replace("__builtin__", "builtins");
        Ok(format!("{module} {name}"))
    }
}

impl<R: BufRead, O: Objects> Machine<R, O> {
    fn run(&mut self) -> Step<usize> {
        if self.number(1).ok() != Some(0x80) {
            return Err("it is no pickle of protocol 2 or later".into());
        }
        self.number(1)?;
        let mut done = 0;
        loop {
            if done >= INSTRUCTIONS + self.values.bytes.len() / 64 {
                return Err(format!("it has more than {done} instructions"));
            }
            done += 1;
            match self.number(1)? as u8 {
                b'.' => return Ok(self.pop_several(1)?[0]),
                b'(' => self.marks.push(self.stack.len()),
                b'0' => _ = self.pop_several(1)?,
                b'q' => self.number(1).and_then(|key| self.memoize(key))?,
                b'r' => self.number(4).and_then(|key| self.memoize(key))?,
                0x94 => self.memoize(self.memo.len())?,
                b'h' => self.number(1).and_then(|key| self.recall(key))?,
                b'j' => self.number(4).and_then(|key| self.recall(key))?,
                b'a' => self.pop_several(1).and_then(|items| self.extend(items))?,
                b's' => self.pop_several(2).and_then(|items| self.extend(items))?,
                b'e' | b'u' => self.pop_marked().and_then(|items| self.extend(items))?,
                b'b' => {
                    let state = self.pop_several(1)?[0];
                    let node = *self.stack.last().ok_or(MISSING)?;
                    if let Some(built) = self.objects.build(&self.values, node, state)? {
                        self.values.nodes[node] = built;
                    }
                }
                // The value on the stack names a part of the file beside the pickle.
                b'Q' => {}
                // The protocol, and how long a part is.
                0x80 => _ = self.number(1)?,
                0x95 => _ = self.number(8)?,
                code => {
                    let node = self.value(code)?;
                    self.stack.push(self.values.nodes.len());
                    self.values.nodes.push(node);
                }
            }
        }
    }

    /// The value that an instruction puts on the stack.
    fn value(&mut self, code: u8) -> Step<Node<O::Object>> {
        Ok(match code {
            b'N' => Node::None,
            b'G' => self.number(8).map(|_| Node::None)?,
            0x88 | 0x89 => Node::Int((code == 0x88).into()),
            b'K' => Node::Int(self.number(1)? as i64),
            b'M' => Node::Int(self.number(2)? as i64),
            b'J' => Node::Int((self.number(4)? as i32).into()),
            0x8a => {
                let digits = self.counted(1)?;
                let digits = &self.values.bytes[digits];
                let sign = i64::from(digits.last().is_some_and(|&digit| digit > 127));
                let digit = |all, &digit: &u8| all << 8 | i64::from(digit);
                match digits.len() {
                    0..=8 => Node::Int(digits.iter().rev().fold(-sign, digit)),
                    _ => Node::None,
                }
            }
            b'U' | b'C' | 0x8c => Node::Bytes(self.counted(1)?),
            b'T' | b'B' | b'X' => Node::Bytes(self.counted(4)?),
            0x8d | 0x8e | 0x96 => Node::Bytes(self.counted(8)?),
            b']' | b')' => Node::List(Vec::new()),
            b't' | b'l' => Node::List(self.pop_marked()?),
            0x85..=0x87 => Node::List(self.pop_several(usize::from(code - 0x84))?),
            b'}' => Node::Dict(Vec::new()),
            b'c' => Node::Function(self.line()?, self.line()?),
            0x93 => {
                let of = self.pop_several(2)?;
                match [of[0], of[1]].map(|of| &self.values.nodes[of]) {
                    [Node::Bytes(module), Node::Bytes(name)] => {
                        Node::Function(module.clone(), name.clone())
                    }
                    _ => return Err("a function's module and name are no texts".into()),
                }
            }
            b'R' | 0x81 => {
                let of = self.pop_several(2)?;
                match [of[0], of[1]].map(|of| &self.values.nodes[of]) {
                    [Node::Function(module, name), Node::List(arguments)] => {
                        let function = self.values.function(module, name)?;
                        self.objects.call(&self.values, &function, arguments)?
                    }
                    _ if O::FORGETS => Node::None,
                    _ => return Err("what is called is no function".into()),
                }
            }
            _ => return Err(format!("it has the unknown instruction {code:#04x}")),
        })
    }

    /// Reads `length` bytes; a length beyond the end of the file takes no memory.
    fn take(&mut self, length: usize) -> Step<Range<usize>> {
        let from = self.values.bytes.len();
        let mut part = self.reader.by_ref().take(length as u64);
        let read = part.read_to_end(&mut self.values.bytes).map_err(|error| error.to_string())?;
        if read == length { Ok(from..from + read) } else { Err(CUT.into()) }
    }

    fn number(&mut self, length: usize) -> Step<usize> {
        let mut digits = [0; 8];
        self.reader.read_exact(&mut digits[..length]).map_err(|_| CUT)?;
        self.values.bytes.extend_from_slice(&digits[..length]);
        Ok(u64::from_le_bytes(digits) as usize)
    }

    /// Bytes that come after their number.
    fn counted(&mut self, length: usize) -> Step<Range<usize>> {
        self.number(length).and_then(|length| self.take(length))
    }

    fn line(&mut self) -> Step<Range<usize>> {
        let from = self.values.bytes.len();
        let bytes = &mut self.values.bytes;
        self.reader.read_until(b'\n', bytes).map_err(|error| error.to_string())?;
        if bytes[from..].ends_with(b"\n") { Ok(from..bytes.len() - 1) } else { Err(CUT.into()) }
    }

    fn pop_several(&mut self, count: usize) -> Step<Vec<usize>> {
        let first = self.stack.len().checked_sub(count).ok_or(MISSING)?;
        Ok(self.stack.drain(first..).collect())
    }

    fn pop_marked(&mut self) -> Step<Vec<usize>> {
        let mark = self.marks.pop().filter(|&mark| mark <= self.stack.len());
        Ok(self.stack.drain(mark.ok_or(MISSING)?..).collect())
    }

    fn memoize(&mut self, key: usize) -> Step<()> {
        self.memo.insert(key, *self.stack.last().ok_or(MISSING)?);
        Ok(())
    }

    fn recall(&mut self, key: usize) -> Step<()> {
        self.stack.push(*self.memo.get(&key).ok_or(MISSING)?);
        Ok(())
    }

    /// Puts values into the list, or pairs of them into the dictionary, that is on the stack.
    fn extend(&mut self, items: Vec<usize>) -> Step<()> {
        let to = *self.stack.last().ok_or(MISSING)?;
        match &mut self.values.nodes[to] {
            Node::List(list) => list.extend(items),
            Node::Dict(dict) if items.len().is_multiple_of(2) => {
                dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            }
            _ if O::FORGETS => {}
            _ => return Err("values are put into what is no list and no dictionary".into()),
        }
        Ok(())
    }
}
