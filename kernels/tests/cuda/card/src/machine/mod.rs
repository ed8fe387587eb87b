//! The machine: lowered kernels, and the state that their instructions work on.

pub mod asynchronous;
pub mod atomics;
pub mod bulk;
pub mod convert;
pub mod executor;
pub mod float;
pub mod half;
pub mod halves;
pub mod integer;
pub mod lanes;
pub mod lower;
pub mod memory;
pub mod predicate;
pub mod races;
pub mod registers;
pub mod tensor;
pub mod warp;

use std::sync::Arc;

use crate::errors::Fault;
use crate::memory::{Map, Memory};
use crate::stats::Counters;
use lanes::LANES;
use races::Races;

/// Runs an instruction for the lanes of a mask, which has at least one.
pub type Exec = unsafe fn(&mut Cx, &Inst, u32);

/// Treatment of an instruction by the executor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Only registers of the own lanes.
    Plain,
    /// May end the kernel.
    Faulty,
    /// For the lanes that an operand names, together.
    Together,
    Branch,
    /// By a table of targets.
    Table,
    Exit,
    Barrier,
    /// May have to be tried again after other warps ran.
    Waiting,
}

/// Classes of instructions that the statistics count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Class {
    Integer,
    Fp32,
    Fp64,
    Half,
    Special,
    Tensor,
    Global,
    Shared,
    Local,
    Parameter,
    Branch,
    Barrier,
    Shuffle,
    Convert,
    Move,
}

pub const CLASSES: usize = 15;
pub const CLASS_NAMES: [&str; CLASSES] = [
    "int", "fp32", "fp64", "half", "special", "tensor", "global", "shared", "local", "param",
    "branch", "barrier", "shuffle", "convert", "move",
];

#[derive(Clone, Copy)]
pub struct Inst {
    pub f: Exec,
    pub imm: i64,
    pub d: u32,
    pub a: u32,
    pub b: u32,
    pub c: u32,
    /// Flags of the operation.
    pub x: u32,
    /// One more operand, or which of the kernel's lists.
    pub y: u32,
    /// Twice the predicate, plus one if negated.
    pub guard: u32,
    pub line: u32,
    pub kind: Kind,
    pub class: Class,
}

pub const NO_GUARD: u32 = u32::MAX;

/// The predicate that nothing reads.
pub const SINK: u32 = 0;

/// Special registers that are rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    WarpCount,
    MaskEq,
    MaskLt,
    MaskLe,
    MaskGt,
    MaskGe,
    Multiprocessor,
    Multiprocessors,
    DynamicShared,
    TotalShared,
    Zero,
    One,
}

/// A kernel, ready to run.
pub struct Kernel {
    pub name: String,
    pub code: Vec<Inst>,
    pub rows: usize,
    pub predicates: usize,
    pub constants: Vec<u8>,
    pub specials: Vec<(u32, Special)>,
    /// Operands of instructions that have many.
    pub lists: Vec<Vec<u32>>,
    pub tiles: Vec<tensor::Tile>,
    pub parameters: Vec<(usize, usize)>,
    pub parameter_bytes: usize,
    pub static_shared: usize,
    pub local_bytes: usize,
    pub most_threads: Option<u32>,
    pub required_threads: Option<[u32; 3]>,
    pub registers: u32,
    /// Lines of the module, for reports.
    pub text: Arc<Vec<String>>,
}

/// Where shared memory begins within its space; what is below is the system's, as on a card.
pub const SHARED_START: u64 = 1024;
/// The uppermost byte of a generic address is its space; that of global memory is 0.
pub const SHARED_TAG: u64 = 1 << 56;
pub const LOCAL_TAG: u64 = 2 << 56;
pub const PARAM_TAG: u64 = 3 << 56;
pub const TAG_MASK: u64 = 0xff << 56;

pub struct Launch<'a> {
    pub kernel: &'a Kernel,
    pub grid: [u32; 3],
    pub threads: [u32; 3],
    pub dynamic_shared: usize,
    pub parameters: Vec<u8>,
    pub map: Arc<Map>,
    pub memory: &'a Memory,
    pub counts_traffic: bool,
    pub finds_races: bool,
    pub start: std::time::Instant,
}

impl Launch<'_> {
    pub fn shared_bytes(&self) -> usize {
        self.kernel.static_shared + self.dynamic_shared
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Runs,
    /// At the barrier of this number, that many threads of which are expected (all if zero).
    Waits(u32, u32),
    Done,
}

/// Lanes that are elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    pub pc: u32,
    pub mask: u32,
}

pub struct Warp {
    pub registers: *mut u8,
    pub predicates: Vec<u32>,
    pub local: *mut u8,
    pub index: u32,
    pub pc: u32,
    pub mask: u32,
    pub live: u32,
    /// Highest program counter first.
    pub others: Vec<Split>,
    /// Lanes that wait for others of their warp.
    pub parked: Vec<Split>,
    pub state: State,
    /// Lanes with a carry.
    pub carry: u32,
    /// Synchronisations among the lanes.
    pub epoch: u32,
    pub copies: Vec<asynchronous::Copy>,
    /// Groups of copies that were committed.
    pub group: u32,
    /// Result of a barrier with a reduction: predicates of its threads.
    pub vote: u32,
}

pub struct Block {
    pub index: [u32; 3],
    pub number: u64,
    pub shared: *mut u8,
    pub shared_bytes: usize,
    pub epoch: u32,
}

/// All that an instruction may look at.
pub struct Cx<'a> {
    pub bank: [*mut u8; 2],
    pub predicates: *mut u32,
    pub warp: *mut Warp,
    pub launch: &'a Launch<'a>,
    pub block: Block,
    pub counters: Counters,
    pub fault: Option<Box<Fault>>,
    /// The allocation that was used last.
    pub near: (u64, u64),
    pub races: Option<Box<Races>>,
    /// An instruction that waits sets it if it is to be tried again.
    pub again: bool,
    /// Line of the instruction that runs, if it touches memory.
    pub line: u32,
    pub warnings: Vec<(u32, String)>,
    /// The traffic of what comes is counted elsewhere.
    pub is_quiet: bool,
}

impl Cx<'_> {
    #[inline(always)]
    pub fn row(&self, operand: u32) -> *mut u8 {
        // SAFETY: lowering gives out only operands within the banks.
        unsafe {
            self.bank[(operand >> 31) as usize].add((operand & (lanes::CONSTANT - 1)) as usize)
        }
    }

    #[inline(always)]
    pub fn predicate(&self, index: u32) -> u32 {
        // SAFETY: lowering gives out only predicates that there are.
        unsafe { *self.predicates.add(index as usize) }
    }

    #[inline(always)]
    pub fn set_predicate(&mut self, index: u32, mask: u32, bits: u32) {
        // SAFETY: as in `predicate`.
        unsafe {
            let place = self.predicates.add(index as usize);
            *place = *place & !mask | bits & mask;
        }
    }

    /// A predicate as an operand: its number twice, plus one if negated.
    #[inline(always)]
    pub fn condition(&self, operand: u32) -> u32 {
        self.predicate(operand >> 1) ^ (operand & 1).wrapping_neg()
    }

    #[inline(always)]
    pub fn warp(&mut self) -> &mut Warp {
        // SAFETY: the executor sets it to the warp that runs, which nothing else borrows meanwhile.
        unsafe { &mut *self.warp }
    }

    pub fn list(&self, inst: &Inst) -> &[u32] {
        &self.launch.kernel.lists[inst.y as usize]
    }

    /// Something that is likely wrong, but does not end a kernel. Each line of PTX says it once.
    pub fn warn(&mut self, what: String) {
        if self.warnings.iter().all(|(line, _)| *line != self.line) {
            self.warnings.push((self.line, what));
        }
    }

    pub fn fail(&mut self, status: i32, lane: Option<usize>, what: String) {
        if self.fault.is_none() {
            self.fault = Some(Fault::new(status, lane, what));
        }
    }

    /// Number of a lane's thread in its block.
    pub fn thread(&self, lane: usize) -> u32 {
        // SAFETY: as in `warp`.
        unsafe { (*self.warp).index * LANES as u32 + lane as u32 }
    }
}
