//! From PTX to instructions of the machine: functions become part of their callers, names become places, and each
//! operation becomes the function that does it.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::lanes::{CONSTANT, LANES, ROW};
use super::tensor::Tile;
use super::{Class, Cx, Inst, Kernel, Kind, NO_GUARD, SHARED_START, Special};
use crate::ptx::{Base, Function, Module, Operand, Space, Statement, Ty};

/// An operation over a row, as the function that the executor calls.
macro_rules! f1 {
    ($a:ty => $d:ty, |$x:ident| $e:expr) => {{
        unsafe fn run(cx: &mut $crate::machine::Cx, i: &$crate::machine::Inst, m: u32) {
            unsafe { $crate::machine::lanes::map1::<$a, $d>(cx, i, m, |$x: $a| -> $d { $e }) }
        }
        run as $crate::machine::Exec
    }};
}
macro_rules! f2 {
    ($a:ty, $b:ty => $d:ty, |$x:ident, $y:ident| $e:expr) => {{
        unsafe fn run(cx: &mut $crate::machine::Cx, i: &$crate::machine::Inst, m: u32) {
            unsafe {
                $crate::machine::lanes::map2::<$a, $b, $d>(cx, i, m, |$x: $a, $y: $b| -> $d { $e })
            }
        }
        run as $crate::machine::Exec
    }};
}
macro_rules! f3 {
    ($a:ty, $b:ty, $c:ty => $d:ty, |$x:ident, $y:ident, $z:ident| $e:expr) => {{
        unsafe fn run(cx: &mut $crate::machine::Cx, i: &$crate::machine::Inst, m: u32) {
            unsafe {
                $crate::machine::lanes::map3::<$a, $b, $c, $d>(
                    cx,
                    i,
                    m,
                    |$x: $a, $y: $b, $z: $c| -> $d { $e },
                )
            }
        }
        run as $crate::machine::Exec
    }};
}
/// `f1`, lane by lane.
macro_rules! e1 {
    ($a:ty => $d:ty, |$x:ident| $e:expr) => {{
        unsafe fn run(cx: &mut $crate::machine::Cx, i: &$crate::machine::Inst, m: u32) {
            unsafe { $crate::machine::lanes::each1::<$a, $d>(cx, i, m, |$x: $a| -> $d { $e }) }
        }
        run as $crate::machine::Exec
    }};
}
macro_rules! e2 {
    ($a:ty, $b:ty => $d:ty, |$x:ident, $y:ident| $e:expr) => {{
        unsafe fn run(cx: &mut $crate::machine::Cx, i: &$crate::machine::Inst, m: u32) {
            unsafe {
                $crate::machine::lanes::each2::<$a, $b, $d>(cx, i, m, |$x: $a, $y: $b| -> $d { $e })
            }
        }
        run as $crate::machine::Exec
    }};
}
pub(crate) use {e1, e2, f1, f2, f3};

/// An instruction of the kernel and all that it calls, in one list.
pub struct Flat {
    name: Rc<Vec<String>>,
    pub args: Vec<Operand>,
    pub guard: Option<(u32, bool)>,
    pub line: u32,
    /// Positions in the list to which a branch goes.
    pub targets: Vec<u32>,
}

impl Flat {
    pub fn name(&self) -> &str {
        &self.name[0]
    }

    pub fn name_parts(&self) -> &[String] {
        &self.name
    }

    pub fn part(&self, at: usize) -> &str {
        self.name.get(at).map_or("", |part| part.as_str())
    }

    pub fn text(&self) -> String {
        self.name.join(".")
    }

    pub fn has(&self, modifier: &str) -> bool {
        self.name[1..].iter().any(|name| name == modifier)
    }

    pub fn types(&self) -> Vec<Ty> {
        self.name[1..].iter().filter_map(|name| Ty::named(name)).collect()
    }

    pub fn space(&self) -> Space {
        for part in &self.name[1..] {
            match part.as_str() {
                "global" => return Space::Global,
                "const" => return Space::Const,
                "local" => return Space::Local,
                part if part.starts_with("shared") => return Space::Shared,
                part if part.starts_with("param") => return Space::Param,
                _ => {}
            }
        }
        Space::Generic
    }
}

/// Where the variables of a module lie.
pub struct Symbols {
    pub addresses: HashMap<String, u64>,
}

struct Flattener<'a> {
    module: &'a Module,
    symbols: &'a Symbols,
    functions: HashMap<&'a str, usize>,
    code: Vec<Flat>,
    registers: Vec<Ty>,
    local: usize,
    shared: HashMap<String, u64>,
    shared_end: usize,
    dynamic_align: usize,
    parameters: Vec<(usize, usize)>,
    parameter_end: usize,
    depth: usize,
}

#[derive(Clone, Copy)]
enum Place {
    Parameter(u64),
    Local(u64),
    Shared(u64),
    Global(u64),
}

impl Place {
    fn address(self) -> u64 {
        match self {
            Place::Parameter(at) | Place::Local(at) | Place::Shared(at) | Place::Global(at) => at,
        }
    }
}

impl<'a> Flattener<'a> {
    fn lay_shared(&mut self, function: &Function) {
        let functions = self.module.functions.iter().filter(|one| !one.is_entry);
        let own = function.variables.iter().map(|variable| (function.name.as_str(), variable));
        let called = functions
            .flat_map(|one| one.variables.iter().map(|variable| (one.name.as_str(), variable)));
        let global = self.module.variables.iter().map(|variable| ("", variable));
        let mut dynamic = Vec::new();
        for (owner, variable) in own.chain(called).chain(global) {
            if variable.space != Space::Shared {
                continue;
            }
            let key = format!("{owner} {}", variable.name);
            if variable.is_extern {
                self.dynamic_align = self.dynamic_align.max(variable.align).max(16);
                dynamic.push(key);
                continue;
            }
            self.shared_end = self.shared_end.next_multiple_of(variable.align);
            self.shared.insert(key, SHARED_START + self.shared_end as u64);
            self.shared_end += variable.bytes;
        }
        if !dynamic.is_empty() {
            self.shared_end = self.shared_end.next_multiple_of(self.dynamic_align);
        }
        for key in dynamic {
            self.shared.insert(key, SHARED_START + self.shared_end as u64);
        }
    }

    fn take_local(&mut self, bytes: usize, align: usize) -> u64 {
        self.local = self.local.next_multiple_of(align.max(1));
        let at = self.local;
        self.local += bytes;
        at as u64
    }

    fn symbol(&self, name: &str) -> Option<u64> {
        if let Some(&address) = self.shared.get(&format!(" {name}")) {
            return Some(address);
        }
        if let Some(&address) = self.symbols.addresses.get(name) {
            return Some(address);
        }
        // Addresses of functions are only given to what is not called here.
        self.functions.contains_key(name).then_some(0)
    }

    fn operand(
        &self,
        operand: &Operand,
        first: u32,
        places: &[Place],
        line: u32,
    ) -> Result<Operand, String> {
        let wrong = |name: &str| format!("PTX line {line}: no symbol {name}");
        let again = |one: &Operand| self.operand(one, first, places, line);
        Ok(match operand {
            Operand::Register(register) => Operand::Register(register + first),
            Operand::Not(register) => Operand::Not(register + first),
            Operand::Both(one, other) => {
                Operand::Both(Box::new(again(one)?), Box::new(again(other)?))
            }
            Operand::Vector(all) => {
                Operand::Vector(all.iter().map(again).collect::<Result<_, _>>()?)
            }
            Operand::List(all) => Operand::List(all.iter().map(again).collect::<Result<_, _>>()?),
            Operand::Tensor(base, all) => Operand::Tensor(
                Box::new(again(base)?),
                all.iter().map(again).collect::<Result<_, _>>()?,
            ),
            Operand::Variable(at) => Operand::Integer(places[*at].address() as i128),
            Operand::Symbol(name) => {
                Operand::Integer(self.symbol(name).ok_or_else(|| wrong(name))? as i128)
            }
            Operand::Memory(base, offset) => match base {
                Base::Register(register) => {
                    Operand::Memory(Base::Register(register + first), *offset)
                }
                Base::Variable(at) => {
                    Operand::Memory(Base::None, places[*at].address() as i64 + offset)
                }
                Base::Symbol(name) => {
                    let address = self.symbol(name).ok_or_else(|| wrong(name))?;
                    Operand::Memory(Base::None, address as i64 + offset)
                }
                Base::None => operand.clone(),
            },
            other => other.clone(),
        })
    }

    fn variable_of<'b>(&self, operand: &'b Operand) -> Option<&'b usize> {
        match operand {
            Operand::Variable(at) => Some(at),
            Operand::Memory(Base::Variable(at), _) => Some(at),
            _ => None,
        }
    }

    fn push(
        &mut self,
        name: &[&str],
        args: Vec<Operand>,
        guard: Option<(u32, bool)>,
        line: u32,
        targets: Vec<u32>,
    ) {
        let name = Rc::new(name.iter().map(|part| part.to_string()).collect());
        self.code.push(Flat { name, args, guard, line, targets });
    }

    /// `given` are the places of results and parameters of a function that is called.
    fn function(&mut self, function: &'a Function, given: Option<&[Place]>) -> Result<(), String> {
        self.depth += 1;
        if self.depth > 40 {
            return Err(format!("function {} calls itself, which is not supported", function.name));
        }
        let first = self.registers.len() as u32;
        self.registers.extend(&function.registers);
        let mut places = Vec::new();
        let signature: Vec<usize> =
            function.results.iter().chain(&function.parameters).copied().collect();
        for (at, variable) in function.variables.iter().enumerate() {
            places.push(match variable.space {
                Space::Shared => {
                    let key = format!("{} {}", function.name, variable.name);
                    Place::Shared(
                        *self.shared.get(&key).ok_or("a shared variable without a place")?,
                    )
                }
                Space::Param => match (signature.iter().position(|&one| one == at), given) {
                    (Some(index), Some(given)) => given[index],
                    (Some(_), None) => {
                        self.parameter_end =
                            self.parameter_end.next_multiple_of(variable.align.max(1));
                        let start = self.parameter_end;
                        self.parameters.push((start, variable.bytes));
                        self.parameter_end += variable.bytes;
                        Place::Parameter(start as u64)
                    }
                    (None, _) => {
                        Place::Local(self.take_local(variable.bytes.max(1), variable.align.max(8)))
                    }
                },
                Space::Local => Place::Local(self.take_local(variable.bytes, variable.align)),
                _ => {
                    let key = format!("{} {}", function.name, variable.name);
                    Place::Global(
                        *self
                            .symbols
                            .addresses
                            .get(&key)
                            .ok_or("a variable of a function without a place")?,
                    )
                }
            });
        }
        let Some(body) = &function.body else {
            return Err(format!("function {} has no body", function.name));
        };
        let mut starts = vec![0u32; body.len() + 1];
        // Position in the list, label, scopes.
        let mut branches: Vec<(usize, Vec<&'a str>, &'a [u32])> = Vec::new();
        let mut ends = Vec::new();
        let mut tables: HashMap<&'a str, &'a Vec<String>> = HashMap::new();
        for statement in body {
            if let Statement::Targets(name, targets) = statement {
                tables.insert(name, targets);
            }
        }
        for (at, statement) in body.iter().enumerate() {
            starts[at] = self.code.len() as u32;
            let Statement::Instruction(instruction) = statement else { continue };
            let line = instruction.line;
            let guard = instruction.guard.map(|(register, negated)| (register + first, negated));
            match instruction.name[0].as_str() {
                "bra" => {
                    let Some(Operand::Label(label)) = instruction.operands.first() else {
                        return Err(format!("PTX line {line}: a branch without a label"));
                    };
                    branches.push((self.code.len(), vec![label], &instruction.scopes));
                    self.push(&["bra"], Vec::new(), guard, line, Vec::new());
                }
                "brx" => {
                    let (Some(index), Some(Operand::Label(table))) =
                        (instruction.operands.first(), instruction.operands.get(1))
                    else {
                        return Err(format!("PTX line {line}: a branch without a table"));
                    };
                    let targets = tables
                        .get(table.as_str())
                        .ok_or(format!("PTX line {line}: no table {table}"))?;
                    let labels = targets.iter().map(|label| label.as_str()).collect();
                    branches.push((self.code.len(), labels, &instruction.scopes));
                    let index = self.operand(index, first, &places, line)?;
                    self.push(&["brx"], vec![index], guard, line, Vec::new());
                }
                "ret" | "exit" if given.is_none() || instruction.name[0] == "exit" => {
                    self.push(&["exit"], Vec::new(), guard, line, Vec::new());
                }
                "ret" => {
                    ends.push(self.code.len());
                    self.push(&["bra"], Vec::new(), guard, line, Vec::new());
                }
                "call" => {
                    let mut operands = instruction.operands.iter().peekable();
                    let results: &[Operand] = match operands.peek() {
                        Some(Operand::List(results)) => {
                            operands.next();
                            results
                        }
                        _ => &[],
                    };
                    let Some(Operand::Symbol(name)) = operands.next() else {
                        return Err(format!(
                            "PTX line {line}: calls through pointers are not supported"
                        ));
                    };
                    let arguments: &[Operand] = match operands.next() {
                        Some(Operand::List(arguments)) => arguments,
                        _ => &[],
                    };
                    let callee =
                        self.functions.get(name.as_str()).map(|&at| &self.module.functions[at]);
                    let Some(callee) = callee else {
                        return Err(format!("PTX line {line}: no function {name}"));
                    };
                    if callee.body.is_none() {
                        match name.as_str() {
                            "__assertfail" => {
                                self.push(&["trap"], Vec::new(), guard, line, Vec::new())
                            }
                            "vprintf" => {}
                            _ => {
                                return Err(format!(
                                    "PTX line {line}: function {name} has no body"
                                ));
                            }
                        }
                        continue;
                    }
                    let skip = self.code.len();
                    if let Some((register, negated)) = guard {
                        self.push(
                            &["bra"],
                            Vec::new(),
                            Some((register, !negated)),
                            line,
                            Vec::new(),
                        );
                    }
                    let mut given = Vec::new();
                    for operand in results.iter().chain(arguments) {
                        let place = self.variable_of(operand).map(|&at| places[at]);
                        given.push(
                            place.ok_or(format!(
                                "PTX line {line}: an argument that is no variable"
                            ))?,
                        );
                    }
                    self.function(callee, Some(&given))?;
                    if guard.is_some() {
                        self.code[skip].targets = vec![self.code.len() as u32];
                    }
                }
                _ => {
                    let mut name = instruction.name.clone();
                    let memory = match name[0].as_str() {
                        "ld" => instruction.operands.get(1),
                        "st" => instruction.operands.first(),
                        _ => None,
                    };
                    if let Some(variable) = memory.and_then(|operand| self.variable_of(operand))
                        && let Place::Local(_) = places[*variable]
                    {
                        for part in &mut name {
                            if part.starts_with("param") {
                                *part = "local".to_string();
                            }
                        }
                    }
                    let args = instruction
                        .operands
                        .iter()
                        .map(|one| self.operand(one, first, &places, line));
                    let args = args.collect::<Result<_, _>>()?;
                    self.code.push(Flat {
                        name: Rc::new(name),
                        args,
                        guard,
                        line,
                        targets: Vec::new(),
                    });
                }
            }
        }
        starts[body.len()] = self.code.len() as u32;
        for (at, labels, scopes) in branches {
            for label in labels {
                let found = scopes
                    .iter()
                    .rev()
                    .find_map(|scope| function.labels.get(&(*scope, label.to_string())));
                let Some(&statement) = found else {
                    return Err(format!("PTX line {}: no label {label}", self.code[at].line));
                };
                self.code[at].targets.push(starts[statement]);
            }
        }
        let end = self.code.len() as u32;
        for at in ends {
            self.code[at].targets = vec![end];
        }
        self.depth -= 1;
        Ok(())
    }
}

/// The tables into which instructions are lowered.
pub struct Lowering {
    registers: Vec<Ty>,
    places: Vec<u32>,
    constants: Vec<u8>,
    constant_places: HashMap<(u64, bool), u32>,
    specials: Vec<(u32, Special)>,
    lists: Vec<Vec<u32>>,
    tiles: Vec<Tile>,
    /// Number of predicates; one more is never written.
    predicates: u32,
}

unsafe fn nothing(_: &mut Cx, _: &Inst, _: u32) {}

fn special(name: &str) -> Option<Special> {
    let axis = |name: &str| match name {
        "x" => 0,
        "y" => 1,
        _ => 2,
    };
    Some(match name.split_once('.') {
        Some(("%tid", at)) => Special::Tid(axis(at)),
        Some(("%ntid", at)) => Special::Ntid(axis(at)),
        Some(("%ctaid" | "%clusterid", at)) => Special::Ctaid(axis(at)),
        Some(("%nctaid" | "%nclusterid", at)) => Special::Nctaid(axis(at)),
        Some(("%cluster_ctaid", _)) => Special::Zero,
        Some(("%cluster_nctaid", _)) => Special::One,
        Some(_) => return None,
        None => match name {
            "%laneid" => Special::LaneId,
            "%warpid" => Special::WarpId,
            "%nwarpid" => Special::WarpCount,
            "%lanemask_eq" => Special::MaskEq,
            "%lanemask_lt" => Special::MaskLt,
            "%lanemask_le" => Special::MaskLe,
            "%lanemask_gt" => Special::MaskGt,
            "%lanemask_ge" => Special::MaskGe,
            "%smid" => Special::Multiprocessor,
            "%nsmid" => Special::Multiprocessors,
            "%dynamic_smem_size" => Special::DynamicShared,
            "%total_smem_size" | "%aggr_smem_size" => Special::TotalShared,
            "%cluster_ctarank" | "%gridid" | "%is_explicit_cluster" => Special::Zero,
            "%cluster_nctarank" => Special::One,
            _ => return None,
        },
    })
}

impl Lowering {
    pub fn inst(&self, op: &Flat, class: Class) -> Inst {
        let guard = match op.guard {
            Some((register, negated)) => self.places[register as usize] << 1 | negated as u32,
            None => NO_GUARD,
        };
        Inst {
            f: nothing,
            imm: 0,
            d: 0,
            a: 0,
            b: 0,
            c: 0,
            x: 0,
            y: 0,
            guard,
            line: op.line,
            kind: Kind::Plain,
            class,
        }
    }

    pub fn nothing(&self, op: &Flat, class: Class) -> Inst {
        self.inst(op, class)
    }

    pub fn integer(&mut self, value: u64, wide: bool) -> u32 {
        if let Some(&place) = self.constant_places.get(&(value, wide)) {
            return place;
        }
        let place = self.constants.len() as u32 | CONSTANT;
        for _ in 0..LANES {
            if wide {
                self.constants.extend(value.to_le_bytes());
            } else {
                self.constants.extend((value as u32).to_le_bytes());
            }
        }
        self.constant_places.insert((value, wide), place);
        place
    }

    pub fn is_constant(&self, place: u32) -> bool {
        place & CONSTANT != 0
    }

    /// The value of a wide constant.
    pub fn constant_value(&self, place: u32) -> u64 {
        let at = (place & (CONSTANT - 1)) as usize;
        u64::from_le_bytes(self.constants[at..at + 8].try_into().unwrap())
    }

    fn register_type(&self, register: u32) -> Ty {
        self.registers[register as usize]
    }

    pub fn is_wide(&self, operand: &Operand) -> bool {
        matches!(operand, Operand::Register(register) if self.register_type(*register).bytes() == 8)
    }

    pub fn is_wide_source(&self, operand: &Operand, ty: Ty) -> bool {
        match operand {
            Operand::Register(_) => self.is_wide(operand),
            _ => ty.bytes() == 8,
        }
    }

    /// A row to write to.
    pub fn destination(&self, operand: &Operand) -> Result<u32, String> {
        match operand {
            Operand::Register(register) if self.register_type(*register) != Ty::Pred => {
                Ok(self.places[*register as usize])
            }
            // The first rows are nobody's.
            Operand::Nothing => Ok(0),
            other => Err(format!("not a register to write to: {other:?}")),
        }
    }

    /// A row of the width of the type.
    pub fn source(&mut self, operand: &Operand, ty: Ty) -> Result<u32, String> {
        if let Operand::Register(register) = operand {
            let own = self.register_type(*register);
            if own == Ty::Pred || (own.bytes() == 8) != (ty.bytes() == 8) {
                return Err(format!("a register of type {own:?} as an operand of type {ty:?}"));
            }
        }
        self.source_any(operand, ty)
    }

    /// [`Lowering::source`], whose registers may have any width.
    pub fn source_any(&mut self, operand: &Operand, ty: Ty) -> Result<u32, String> {
        let wide = ty.bytes() == 8;
        Ok(match operand {
            Operand::Register(register) => self.places[*register as usize],
            Operand::Integer(value) => {
                let value = match ty {
                    Ty::F32 | Ty::Tf32 => (*value as f32).to_bits() as u64,
                    Ty::F64 => (*value as f64).to_bits(),
                    _ => *value as u64,
                };
                let bits = ty.bytes() as u32 * 8;
                self.integer(if bits >= 64 { value } else { value & ((1 << bits) - 1) }, wide)
            }
            Operand::Single(bits) if ty == Ty::F64 => {
                self.integer((f32::from_bits(*bits) as f64).to_bits(), true)
            }
            Operand::Single(bits) => self.integer(*bits as u64, wide),
            Operand::Double(bits) if matches!(ty, Ty::F32 | Ty::Tf32) => {
                self.integer((f64::from_bits(*bits) as f32).to_bits() as u64, false)
            }
            Operand::Double(bits) => self.integer(*bits, true),
            Operand::Special(name) => {
                let Some(special) = special(name) else {
                    return Err(format!("special register {name}"));
                };
                if wide {
                    return Err(format!("special register {name} with 64 bits"));
                }
                let found = self.specials.iter().find(|(_, one)| *one == special);
                match found {
                    Some((row, _)) => *row,
                    None => return Err(format!("special register {name} without a row")),
                }
            }
            Operand::Nothing => self.integer(0, wide),
            other => return Err(format!("not a value: {other:?}")),
        })
    }

    pub fn predicate(&self, operand: &Operand) -> Result<u32, String> {
        match operand {
            Operand::Register(register) if self.register_type(*register) == Ty::Pred => {
                Ok(self.places[*register as usize])
            }
            Operand::Nothing => Ok(super::SINK),
            other => Err(format!("not a predicate to write to: {other:?}")),
        }
    }

    /// A predicate to read: twice its number, plus one if negated. The sink is always false.
    pub fn condition(&self, operand: &Operand) -> Result<u32, String> {
        match operand {
            Operand::Register(_) => Ok(self.predicate(operand)? << 1),
            Operand::Not(register) => Ok(self.places[*register as usize] << 1 | 1),
            Operand::Integer(value) => Ok(2 * self.constant_predicate() | (*value != 0) as u32),
            other => Err(format!("not a predicate: {other:?}")),
        }
    }

    /// Never written.
    fn constant_predicate(&self) -> u32 {
        self.predicates
    }

    pub fn immediate(&self, operand: &Operand) -> Result<i64, String> {
        match operand {
            Operand::Integer(value) => Ok(*value as i64),
            other => Err(format!("not a constant: {other:?}")),
        }
    }

    pub fn address(&mut self, inst: &mut Inst, operand: &Operand) -> Result<(), String> {
        let Operand::Memory(base, offset) = operand else {
            return Err(format!("not an address: {operand:?}"));
        };
        match base {
            Base::Register(register) => {
                inst.a = self.places[*register as usize];
                inst.imm = *offset;
                if self.register_type(*register).bytes() == 8 {
                    inst.x |= super::memory::WIDE_ADDRESS;
                }
            }
            Base::None => {
                inst.a = self.integer(*offset as u64, true);
                inst.x |= super::memory::WIDE_ADDRESS;
            }
            _ => return Err(format!("not an address: {operand:?}")),
        }
        Ok(())
    }

    pub fn list(&mut self, rows: Vec<u32>) -> u32 {
        self.lists.push(rows);
        self.lists.len() as u32 - 1
    }

    pub fn tile(&mut self, tile: Tile) -> u32 {
        self.tiles.push(tile);
        self.tiles.len() as u32 - 1
    }

    fn lower(&mut self, op: &Flat) -> Result<Inst, String> {
        match op.name() {
            "bra" => {
                let mut inst = self.inst(op, Class::Branch);
                inst.kind = Kind::Branch;
                inst.imm = op.targets[0] as i64;
                return Ok(inst);
            }
            "brx" => {
                let mut inst = self.inst(op, Class::Branch);
                inst.kind = Kind::Table;
                inst.a = self.source(&op.args[0], Ty::U32)?;
                inst.y = self.list(op.targets.clone());
                return Ok(inst);
            }
            "exit" => {
                let mut inst = self.inst(op, Class::Branch);
                inst.kind = Kind::Exit;
                return Ok(inst);
            }
            _ => {}
        }
        for lower in [
            super::integer::lower,
            super::float::lower,
            super::halves::lower,
            super::predicate::lower,
            super::convert::lower,
            super::memory::lower,
            super::atomics::lower,
            super::warp::lower,
            super::tensor::lower,
            super::bulk::lower,
            super::asynchronous::lower,
        ] {
            if let Some(inst) = lower(self, op)? {
                return Ok(inst);
            }
        }
        Err("no such instruction is known".to_string())
    }
}

fn specials_in(operand: &Operand, found: &mut Vec<Special>) {
    match operand {
        Operand::Special(name) => {
            if let Some(special) = special(name)
                && !found.contains(&special)
            {
                found.push(special);
            }
        }
        Operand::Vector(all) | Operand::List(all) => {
            all.iter().for_each(|one| specials_in(one, found))
        }
        _ => {}
    }
}

pub fn kernel(
    module: &Module,
    symbols: &Symbols,
    function: &Function,
    text: &Arc<Vec<String>>,
) -> Result<Kernel, String> {
    let mut flattener = Flattener {
        module,
        symbols,
        functions: HashMap::new(),
        code: Vec::new(),
        registers: Vec::new(),
        local: 0,
        shared: HashMap::new(),
        shared_end: 0,
        dynamic_align: 16,
        parameters: Vec::new(),
        parameter_end: 0,
        depth: 0,
    };
    // A declaration may come before the body.
    for (at, one) in module.functions.iter().enumerate() {
        if one.body.is_some() || !flattener.functions.contains_key(one.name.as_str()) {
            flattener.functions.insert(&one.name, at);
        }
    }
    flattener.lay_shared(function);
    flattener.function(function, None)?;
    flattener.push(&["exit"], Vec::new(), None, 1, Vec::new());
    let Flattener { code: flat, registers, local, shared_end, parameters, parameter_end, .. } =
        flattener;

    // Two rows that are nobody's, then those of the special registers.
    let mut specials = Vec::new();
    flat.iter()
        .for_each(|op| op.args.iter().for_each(|operand| specials_in(operand, &mut specials)));
    let specials: Vec<(u32, Special)> = specials
        .into_iter()
        .enumerate()
        .map(|(at, special)| (((2 + at) * ROW) as u32, special))
        .collect();
    let allocation = super::registers::allocate(&flat, &registers, 2 + specials.len());
    let mut lowering = Lowering {
        predicates: allocation.predicates as u32,
        registers,
        places: allocation.places,
        constants: Vec::new(),
        constant_places: HashMap::new(),
        specials,
        lists: Vec::new(),
        tiles: Vec::new(),
    };
    let mut code = Vec::new();
    for op in &flat {
        let inst = lowering.lower(op).map_err(|error| {
            let line = text.get(op.line as usize - 1).map_or("", |line| line.trim());
            format!(
                "kernel {}: PTX line {}: {line}: {}: {error}",
                function.name,
                op.line,
                op.text()
            )
        })?;
        code.push(inst);
    }
    Ok(Kernel {
        name: function.name.clone(),
        code,
        rows: allocation.rows,
        predicates: allocation.predicates + 1,
        constants: lowering.constants,
        specials: lowering.specials,
        lists: lowering.lists,
        tiles: lowering.tiles,
        parameters,
        parameter_bytes: parameter_end,
        static_shared: shared_end,
        local_bytes: local.next_multiple_of(16),
        most_threads: function.most_threads,
        required_threads: function.required_threads,
        registers: allocation.pressure + 2,
        text: text.clone(),
    })
}
