//! PTX as text to PTX as data. Nothing here knows what an instruction does.

mod lexer;
mod parser;

use std::collections::HashMap;

pub use parser::parse;

/// PTX's fundamental types, and the packed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ty {
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    Tf32,
    F32,
    F64,
    F32x2,
    E4m3x2,
    E5m2x2,
    Pred,
}

impl Ty {
    pub fn named(text: &str) -> Option<Ty> {
        Some(match text {
            "b8" => Ty::B8,
            "b16" => Ty::B16,
            "b32" => Ty::B32,
            "b64" => Ty::B64,
            "b128" => Ty::B128,
            "u8" => Ty::U8,
            "u16" => Ty::U16,
            "u32" => Ty::U32,
            "u64" => Ty::U64,
            "s8" => Ty::S8,
            "s16" => Ty::S16,
            "s32" => Ty::S32,
            "s64" => Ty::S64,
            "f16" => Ty::F16,
            "f16x2" => Ty::F16x2,
            "bf16" => Ty::Bf16,
            "bf16x2" => Ty::Bf16x2,
            "tf32" => Ty::Tf32,
            "f32" => Ty::F32,
            "f64" => Ty::F64,
            "f32x2" => Ty::F32x2,
            "e4m3x2" => Ty::E4m3x2,
            "e5m2x2" => Ty::E5m2x2,
            "pred" => Ty::Pred,
            _ => return None,
        })
    }

    pub fn bytes(self) -> usize {
        match self {
            Ty::B8 | Ty::U8 | Ty::S8 => 1,
            Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 | Ty::Bf16 | Ty::E4m3x2 | Ty::E5m2x2 => 2,
            Ty::B32 | Ty::U32 | Ty::S32 | Ty::F16x2 | Ty::Bf16x2 | Ty::Tf32 | Ty::F32 => 4,
            Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 | Ty::F32x2 => 8,
            Ty::B128 => 16,
            Ty::Pred => 1,
        }
    }

    pub fn is_signed(self) -> bool {
        matches!(self, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Global,
    Shared,
    Local,
    Param,
    Const,
    Generic,
}

/// A variable of the module or of a function.
#[derive(Clone, Debug)]
pub struct Variable {
    pub space: Space,
    pub name: String,
    pub align: usize,
    pub bytes: usize,
    pub init: Vec<u8>,
    /// Where in `init` the address of another variable belongs, and what is added to it.
    pub addresses: Vec<(usize, String, i64)>,
    pub is_extern: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Base {
    Register(u32),
    Variable(usize),
    Symbol(String),
    None,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register of the function.
    Register(u32),
    /// `!%p`.
    Not(u32),
    /// `%p|%q`.
    Both(Box<Operand>, Box<Operand>),
    /// `_`.
    Nothing,
    Special(String),
    Integer(i128),
    /// Bits as `f32`.
    Single(u32),
    /// Bits as `f64`.
    Double(u64),
    Vector(Vec<Operand>),
    Memory(Base, i64),
    /// A variable of the function, by index.
    Variable(usize),
    /// A variable of the module, or a function.
    Symbol(String),
    Label(String),
    /// `(a, b)` of a call.
    List(Vec<Operand>),
    /// `[map, {x, y}]`.
    Tensor(Box<Operand>, Vec<Operand>),
}

#[derive(Clone, Debug)]
pub struct Instruction {
    /// Register of the guard, and whether it is negated.
    pub guard: Option<(u32, bool)>,
    /// `["ld", "global", "v4", "f32"]`.
    pub name: Vec<String>,
    pub operands: Vec<Operand>,
    pub line: u32,
    /// Scopes that it is in, innermost last.
    pub scopes: Vec<u32>,
}

#[derive(Clone, Debug)]
pub enum Statement {
    Instruction(Instruction),
    Label,
    /// Name and labels of a table for `brx.idx`.
    Targets(String, Vec<String>),
}

#[derive(Clone, Debug, Default)]
pub struct Function {
    pub name: String,
    pub is_entry: bool,
    pub results: Vec<usize>,
    pub parameters: Vec<usize>,
    /// All variables of the function: parameters, results, and those declared in it.
    pub variables: Vec<Variable>,
    pub registers: Vec<Ty>,
    pub register_names: Vec<String>,
    pub body: Option<Vec<Statement>>,
    /// Labels: scope and name to the statement that they stand before.
    pub labels: HashMap<(u32, String), usize>,
    pub most_threads: Option<u32>,
    pub required_threads: Option<[u32; 3]>,
    pub cluster: Option<[u32; 3]>,
}

#[derive(Clone, Debug, Default)]
pub struct Module {
    pub version: String,
    pub target: String,
    pub variables: Vec<Variable>,
    pub functions: Vec<Function>,
}
