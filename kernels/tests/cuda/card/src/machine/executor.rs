//! Runs a launch: blocks on threads of the host, warps of a block in turns, lanes of a warp in lockstep.
//!
//! Lanes that branched apart run one part after the other, that with the lowest program counter first, so that
//! they meet again where the parts do. A part that reaches an instruction for more lanes than it has waits until
//! the others come there.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::lanes::{LANES, ROW};
use super::races::Races;
use super::{
    Block, Cx, Inst, Kernel, Kind, Launch, NO_GUARD, SHARED_START, Special, Split, State, Warp,
};
use crate::errors::{Fault, LAUNCH_FAILED, Status};
use crate::stats::Counters;

/// Instructions of a warp before another warp of its block has a turn.
const TURN: u64 = 1 << 22;
/// Seconds of work for which threads are started.
const WORTH_THREADS: f64 = 200e-6;

/// The result of a launch.
pub struct Outcome {
    pub counters: Counters,
    pub fault: Option<(Status, String)>,
    pub warnings: Vec<String>,
}

pub fn run(launch: &Launch, workers: usize) -> Outcome {
    let blocks = launch.grid.iter().map(|&count| count as u64).product::<u64>();
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let result =
        Mutex::new(Outcome { counters: Counters::default(), fault: None, warnings: Vec::new() });
    let take = |worker: &mut Worker| {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= blocks || failed.load(Ordering::Relaxed) {
            return false;
        }
        if let Err(found) = worker.block(number) {
            failed.store(true, Ordering::Relaxed);
            result.lock().unwrap().fault.get_or_insert(found);
        }
        true
    };
    let finish = |worker: &mut Worker| {
        let mut result = result.lock().unwrap();
        result.counters.add(&worker.cx.counters);
        if let Some(races) = &mut worker.cx.races {
            result.warnings.append(&mut races.reports);
        }
        for (line, what) in std::mem::take(&mut worker.cx.warnings) {
            let text = launch.kernel.text.get(line as usize - 1).map_or("", |line| line.trim());
            let name = &launch.kernel.name;
            result.warnings.push(format!(
                "software CUDA card: kernel {name}: {what}, at PTX line {line}: {text}"
            ));
        }
    };
    let work = || {
        let mut worker = Worker::new(launch);
        while take(&mut worker) {}
        finish(&mut worker);
    };
    let mut worker = Worker::new(launch);
    let start = std::time::Instant::now();
    take(&mut worker);
    // Work that is done sooner than threads start is done here.
    let rest = start.elapsed().as_secs_f64() * (blocks - 1) as f64;
    let workers =
        if launch.finds_races || rest < WORTH_THREADS { 1 } else { workers.min(blocks as usize) };
    std::thread::scope(|scope| {
        for _ in 1..workers {
            scope.spawn(work);
        }
        while take(&mut worker) {}
    });
    finish(&mut worker);
    result.into_inner().unwrap()
}

struct Worker<'a> {
    cx: Cx<'a>,
    warps: Vec<Warp>,
    fill: u8,
    // Kept for the pointers into them.
    _registers: Vec<Aligned>,
    _shared: Vec<Aligned>,
    local: Vec<Aligned>,
    _constants: Vec<Aligned>,
}

#[derive(Clone, Copy)]
#[repr(align(128))]
struct Aligned(#[allow(dead_code)] [u8; ROW]);

const EMPTY: Aligned = Aligned([0; ROW]);

impl<'a> Worker<'a> {
    fn new(launch: &'a Launch<'a>) -> Self {
        let kernel = launch.kernel;
        let threads = launch.threads.iter().product::<u32>() as usize;
        let count = threads.div_ceil(LANES);
        let mut registers = vec![EMPTY; (kernel.rows + 2) * count];
        let mut constants = vec![EMPTY; kernel.constants.len().div_ceil(ROW) + 2];
        // SAFETY: as many bytes as the constants have, into a vector of at least as many.
        unsafe {
            let to = constants.as_mut_ptr() as *mut u8;
            std::ptr::copy_nonoverlapping(kernel.constants.as_ptr(), to, kernel.constants.len());
        }
        let shared_bytes = launch.shared_bytes();
        let mut shared = vec![EMPTY; shared_bytes.div_ceil(ROW) + 1];
        let local_rows = kernel.local_bytes.div_ceil(4);
        let mut local = vec![EMPTY; local_rows * count];
        let mut warps = Vec::new();
        for index in 0..count {
            // SAFETY: each warp has its own part of the vectors.
            unsafe {
                warps.push(Warp {
                    registers: registers.as_mut_ptr().add((kernel.rows + 2) * index) as *mut u8,
                    predicates: vec![0; kernel.predicates],
                    local: local.as_mut_ptr().add(local_rows * index) as *mut u8,
                    index: index as u32,
                    pc: 0,
                    mask: 0,
                    live: 0,
                    others: Vec::new(),
                    parked: Vec::new(),
                    state: State::Done,
                    carry: 0,
                    epoch: 0,
                    copies: Vec::new(),
                    group: 0,
                    vote: 0,
                });
            }
        }
        let block = Block {
            index: [0; 3],
            number: 0,
            shared: shared.as_mut_ptr() as *mut u8,
            shared_bytes,
            epoch: 0,
        };
        let cx = Cx {
            bank: [std::ptr::null_mut(), constants.as_mut_ptr() as *mut u8],
            predicates: std::ptr::null_mut(),
            warp: std::ptr::null_mut(),
            launch,
            block,
            counters: Counters::default(),
            fault: None,
            near: (1, 0),
            races: launch.finds_races.then(|| Box::new(Races::new(shared_bytes))),
            again: false,
            line: 0,
            warnings: Vec::new(),
            is_quiet: false,
        };
        // Their rows are nobody else's, so most are the same for every block.
        for warp in &warps {
            for &(row, special) in &kernel.specials {
                for lane in 0..LANES {
                    let value = value_of(special, launch, &cx.block, warp.index, lane as u32);
                    // SAFETY: the row is one of the warp's.
                    unsafe { *(warp.registers.add(row as usize) as *mut u32).add(lane) = value };
                }
            }
        }
        let fill = if crate::is_set("SOFTWARE_CUDA_POISON") { 0xff } else { 0 };
        Self {
            cx,
            warps,
            fill,
            _registers: registers,
            _shared: shared,
            local,
            _constants: constants,
        }
    }

    fn block(&mut self, number: u64) -> Result<(), (Status, String)> {
        let launch = self.cx.launch;
        let grid = launch.grid.map(u64::from);
        let block = &mut self.cx.block;
        block.index = [number % grid[0], number / grid[0] % grid[1], number / grid[0] / grid[1]]
            .map(|at| at as u32);
        block.number = number;
        block.epoch = 0;
        // The former contents are not known: all ones, which are no numbers, under poison.
        let fill = self.fill;
        // SAFETY: the vector has as many bytes.
        unsafe { std::ptr::write_bytes(block.shared, fill, block.shared_bytes) };
        if !self.local.is_empty() {
            self.local.fill(Aligned([fill; ROW]));
        }
        if let Some(races) = &mut self.cx.races {
            races.begin_block();
        }
        let threads = launch.threads.iter().product::<u32>();
        for warp in &mut self.warps {
            let here = (threads - warp.index * 32).min(32);
            warp.live = if here == 32 { !0 } else { (1 << here) - 1 };
            warp.mask = warp.live;
            warp.pc = 0;
            warp.others.clear();
            warp.parked.clear();
            warp.state = State::Runs;
            warp.carry = 0;
            warp.epoch = 0;
            warp.copies.clear();
            warp.group = 0;
            for &(row, special) in &launch.kernel.specials {
                if matches!(special, Special::Ctaid(_) | Special::Multiprocessor) {
                    let value = value_of(special, launch, &self.cx.block, warp.index, 0);
                    // SAFETY: the row is one of the warp's.
                    unsafe {
                        *(warp.registers.add(row as usize) as *mut [u32; LANES]) = [value; LANES]
                    };
                }
            }
        }
        self.cx.counters.blocks += 1;
        loop {
            let mut ran = false;
            for index in 0..self.warps.len() {
                if self.warps[index].state == State::Runs {
                    ran |= self.warp(index)?;
                }
            }
            if self.warps.iter().all(|warp| warp.state == State::Done) {
                return Ok(());
            }
            if self.release()? {
                continue;
            }
            if !ran {
                return Err(self.stuck());
            }
        }
    }

    /// Lets go the warps of every barrier that all have reached.
    fn release(&mut self) -> Result<bool, (Status, String)> {
        let mut released = false;
        let waiting: Vec<(u32, u32)> = self
            .warps
            .iter()
            .filter_map(|warp| match warp.state {
                State::Waits(barrier, count) => Some((barrier, count)),
                _ => None,
            })
            .collect();
        for &(barrier, count) in &waiting {
            let here =
                |warp: &&Warp| matches!(warp.state, State::Waits(found, _) if found == barrier);
            let arrived = self.warps.iter().filter(here).count();
            if arrived == 0 {
                continue;
            }
            let expected = if count == 0 {
                self.warps.iter().filter(|warp| warp.state != State::Done).count()
            } else {
                count.div_ceil(32) as usize
            };
            if arrived < expected {
                continue;
            }
            if self.cx.launch.finds_races && count == 0 {
                self.check_barrier()?;
            }
            let waiting: Vec<usize> =
                (0..self.warps.len()).filter(|&index| here(&&self.warps[index])).collect();
            let votes: Vec<(u32, u32)> =
                waiting.iter().map(|&at| (self.warps[at].vote, self.warps[at].live)).collect();
            for index in waiting {
                self.enter(index);
                let warp = &mut self.warps[index];
                warp.state = State::Runs;
                let inst = self.cx.launch.kernel.code[warp.pc as usize];
                warp.pc += 1;
                let mask = warp.mask;
                if inst.x != 0 {
                    super::warp::finish_barrier(&mut self.cx, &inst, mask, &votes);
                }
            }
            self.cx.block.epoch += 1;
            released = true;
        }
        Ok(released)
    }

    /// All threads of the block wait at the same instruction, and none has left.
    fn check_barrier(&self) -> Result<(), (Status, String)> {
        let first = &self.warps[0];
        let threads = self.cx.launch.threads.iter().product::<u32>();
        for warp in &self.warps {
            let here = (threads - warp.index * 32).min(32);
            let all = if here == 32 { !0 } else { (1 << here) - 1 };
            if warp.state == State::Done || warp.live != all {
                let left = lanes_text(all & !warp.live);
                let what = format!(
                    "barrier divergence: lanes {left} of warp {} ended before a barrier that others wait at",
                    warp.index
                );
                let inst =
                    self.warps.iter().find(|warp| warp.state != State::Done).map(|warp| warp.pc);
                return Err(self.report(LAUNCH_FAILED, what, inst, warp.index, None));
            }
            if warp.pc != first.pc {
                let line = self.cx.launch.kernel.code[first.pc as usize].line;
                let what = format!(
                    "barrier divergence: warp {} waits at another barrier than warp 0, which is at line {line}",
                    warp.index
                );
                return Err(self.report(LAUNCH_FAILED, what, Some(warp.pc), warp.index, None));
            }
        }
        Ok(())
    }

    fn stuck(&self) -> (Status, String) {
        let mut what = "deadlock: no warp of the block can go on;".to_string();
        let mut place = None;
        for warp in &self.warps {
            if let State::Waits(barrier, _) = warp.state {
                let line = self.cx.launch.kernel.code[warp.pc as usize].line;
                place.get_or_insert((warp.pc, warp.index));
                what += &format!(" warp {} waits at barrier {barrier} of line {line};", warp.index);
            } else if warp.state == State::Runs {
                let line = self.cx.launch.kernel.code[warp.pc as usize].line;
                what += &format!(" warp {} waits at line {line};", warp.index);
            }
        }
        let (pc, warp) = place.map_or((None, 0), |(pc, warp)| (Some(pc), warp));
        self.report(LAUNCH_FAILED, what, pc, warp, None)
    }

    fn enter(&mut self, index: usize) {
        let warp = &mut self.warps[index];
        self.cx.bank[0] = warp.registers;
        self.cx.predicates = warp.predicates.as_mut_ptr();
        self.cx.warp = warp;
    }

    fn report(
        &self,
        status: Status,
        what: String,
        pc: Option<u32>,
        warp: u32,
        lane: Option<usize>,
    ) -> (Status, String) {
        let launch = self.cx.launch;
        let kernel = launch.kernel;
        let mut text = format!("software CUDA card: kernel {}: {what}\n", kernel.name);
        if let Some(inst) = pc.and_then(|pc| kernel.code.get(pc as usize)) {
            let line = kernel.text.get(inst.line as usize - 1).map_or("", |line| line.trim());
            text += &format!("  at PTX line {}: {line}\n", inst.line);
            let source = (0..inst.line as usize).rev().find_map(|at| {
                kernel.text[at]
                    .trim()
                    .strip_prefix(".loc")
                    .map(|rest| rest.split_whitespace().nth(1).unwrap_or("").to_string())
            });
            if let Some(source) = source {
                text += &format!("  which comes from line {source} of the source\n");
            }
        }
        let thread = lane.map(|lane| warp * 32 + lane as u32);
        let place = |thread: u32| {
            let [x, y, _] = launch.threads;
            format!("({}, {}, {})", thread % x, thread / x % y, thread / x / y)
        };
        let thread =
            thread.map_or(format!("warp {warp}"), |thread| format!("thread {}", place(thread)));
        text += &format!(
            "  {thread} of block {:?}, grid {:?} of blocks of {:?} threads",
            self.cx.block.index, launch.grid, launch.threads
        );
        (status, text)
    }

    fn fault(&self, fault: Fault, pc: u32, warp: u32) -> (Status, String) {
        self.report(fault.status, fault.what, Some(pc), warp, fault.lane)
    }

    /// Runs a warp until it waits or is done; true if it ran an instruction.
    fn warp(&mut self, index: usize) -> Result<bool, (Status, String)> {
        self.enter(index);
        let cx = &mut self.cx;
        let kernel: &Kernel = cx.launch.kernel;
        let code: &[Inst] = &kernel.code;
        let warp: *mut Warp = cx.warp;
        // SAFETY: instructions reach the warp through the same pointer; no reference is kept across their calls.
        let state = unsafe { &mut *warp };
        let mut pc = state.pc;
        let mut mask = state.mask;
        let mut next = state.others.last().map_or(u32::MAX, |split| split.pc);
        let mut left = TURN;
        let mut done = 0u64;
        // Instructions since parked lanes were last let go.
        let mut since = u64::MAX;

        macro_rules! switch {
            // The own lanes are elsewhere or gone: others take over.
            () => {{
                loop {
                    if let Some(split) = state.others.pop() {
                        pc = split.pc;
                        mask = split.mask & state.live;
                        next = state.others.last().map_or(u32::MAX, |split| split.pc);
                        if mask == 0 {
                            continue;
                        }
                        break;
                    }
                    if state.parked.is_empty() {
                        state.state = State::Done;
                        return Ok(true);
                    }
                    if since == done && state.parked.iter().any(|split| code[split.pc as usize].kind == Kind::Waiting) {
                        // Another warp may let them go.
                        state.others = std::mem::take(&mut state.parked);
                        state.others.sort_by_key(|split| std::cmp::Reverse(split.pc));
                        let split = state.others.pop().unwrap();
                        state.pc = split.pc;
                        state.mask = split.mask & state.live;
                        return Ok(done > 0);
                    }
                    if since == done {
                        let what = "divergence: lanes of a warp wait for others at different instructions:".to_string();
                        let what = state.parked.iter().fold(what, |what, split| {
                            what + &format!(" lanes {} at line {};", lanes_text(split.mask), code[split.pc as usize].line)
                        });
                        let (pc, index) = (state.parked[0].pc, state.index);
                        return Err(self.report(LAUNCH_FAILED, what, Some(pc), index, None));
                    }
                    since = done;
                    let mut parked = std::mem::take(&mut state.parked);
                    parked.sort_by_key(|split| std::cmp::Reverse(split.pc));
                    state.others = parked;
                }
            }};
        }
        macro_rules! leave {
            () => {{
                state.pc = pc;
                state.mask = mask;
            }};
        }

        loop {
            if pc >= next {
                // The lowest of the others are here, or behind.
                let split = state.others.pop().unwrap();
                if split.pc == pc {
                    mask |= split.mask;
                } else {
                    insert(&mut state.others, Split { pc, mask });
                    pc = split.pc;
                    mask = split.mask;
                }
                next = state.others.last().map_or(u32::MAX, |split| split.pc);
                continue;
            }
            // SAFETY: branches go to labels, and the last instruction is an exit.
            let inst = unsafe { code.get_unchecked(pc as usize) };
            let mut here = mask;
            if inst.guard != NO_GUARD {
                here &= cx.condition(inst.guard);
            }
            cx.counters.classes[inst.class as usize] += 1;
            cx.counters.lanes += here.count_ones() as u64;
            done += 1;
            match inst.kind {
                Kind::Plain => {
                    if here != 0 {
                        // SAFETY: lowering chose the function for these operands.
                        unsafe { (inst.f)(cx, inst, here) };
                    }
                    pc += 1;
                }
                Kind::Faulty => {
                    if here != 0 {
                        cx.line = inst.line;
                        // SAFETY: as above.
                        unsafe { (inst.f)(cx, inst, here) };
                        if let Some(fault) = cx.fault.take() {
                            let index = state.index;
                            return Err(self.fault(*fault, pc, index));
                        }
                    }
                    pc += 1;
                }
                Kind::Branch => {
                    let target = inst.imm as u32;
                    if here == mask {
                        pc = target;
                    } else if here == 0 {
                        pc += 1;
                    } else {
                        cx.counters.divergent += 1;
                        insert(&mut state.others, Split { pc: target, mask: here });
                        mask &= !here;
                        pc += 1;
                        next = state.others.last().map_or(u32::MAX, |split| split.pc);
                    }
                    left -= 1;
                    if left == 0 {
                        // Others may wait for these, or these for them.
                        if !state.others.is_empty() {
                            state.others.insert(0, Split { pc, mask });
                            let split = state.others.pop().unwrap();
                            pc = split.pc;
                            mask = split.mask;
                            state.others.sort_by_key(|split| std::cmp::Reverse(split.pc));
                        }
                        leave!();
                        return Ok(true);
                    }
                }
                Kind::Table => {
                    let mut rest = here;
                    for lane in super::lanes::lanes(here) {
                        if rest >> lane & 1 == 0 {
                            continue;
                        }
                        // SAFETY: the operand is a row of 32 bits.
                        let (index, same) = unsafe {
                            let row = &*(cx.row(inst.a) as *const [u32; LANES]);
                            let same =
                                super::lanes::lanes(rest).filter(|&other| row[other] == row[lane]);
                            (row[lane], same.fold(0, |mask, other| mask | 1 << other))
                        };
                        let Some(&target) = cx.list(inst).get(index as usize) else {
                            let what = format!("brx.idx: index {index} is beyond its table");
                            let warp = state.index;
                            return Err(self.report(
                                LAUNCH_FAILED,
                                what,
                                Some(pc),
                                warp,
                                Some(lane),
                            ));
                        };
                        rest &= !same;
                        insert(&mut state.others, Split { pc: target, mask: same });
                    }
                    mask &= !here;
                    if mask == 0 {
                        switch!();
                    } else {
                        pc += 1;
                        next = state.others.last().map_or(u32::MAX, |split| split.pc);
                    }
                }
                Kind::Exit => {
                    state.live &= !here;
                    mask &= !here;
                    if mask == 0 {
                        switch!();
                    } else {
                        pc += 1;
                    }
                }
                Kind::Together | Kind::Barrier => {
                    if here == 0 {
                        pc += 1;
                        continue;
                    }
                    if here != mask {
                        insert(&mut state.others, Split { pc: pc + 1, mask: mask & !here });
                        mask = here;
                        next = state.others.last().map_or(u32::MAX, |split| split.pc);
                    }
                    // Lanes of the warp that came here earlier.
                    state.parked.retain(|split| {
                        let same = split.pc == pc;
                        if same {
                            mask |= split.mask;
                        }
                        !same
                    });
                    let wanted = if inst.kind == Kind::Barrier {
                        !0
                    } else {
                        super::warp::members(cx, inst, mask)
                    };
                    if wanted & state.live & !mask != 0 {
                        state.parked.push(Split { pc, mask });
                        done -= 1;
                        switch!();
                        continue;
                    }
                    state.epoch += 1;
                    cx.line = inst.line;
                    if inst.kind == Kind::Barrier {
                        let barrier = super::warp::barrier(cx, inst, mask);
                        state.state = State::Waits(barrier.0, barrier.1);
                        leave!();
                        return Ok(true);
                    }
                    // SAFETY: as above.
                    unsafe { (inst.f)(cx, inst, mask) };
                    if let Some(fault) = cx.fault.take() {
                        let index = state.index;
                        return Err(self.fault(*fault, pc, index));
                    }
                    pc += 1;
                }
                Kind::Waiting => {
                    cx.again = false;
                    cx.line = inst.line;
                    if here != 0 {
                        // SAFETY: as above.
                        unsafe { (inst.f)(cx, inst, here) };
                        if let Some(fault) = cx.fault.take() {
                            let index = state.index;
                            return Err(self.fault(*fault, pc, index));
                        }
                    }
                    if !cx.again {
                        pc += 1;
                        continue;
                    }
                    if !state.others.is_empty() || !state.parked.is_empty() {
                        state.parked.push(Split { pc, mask });
                        done -= 1;
                        switch!();
                        continue;
                    }
                    leave!();
                    return Ok(done > 1);
                }
            }
        }
    }
}

/// Keeps the highest program counter first, and one entry for each.
fn insert(others: &mut Vec<Split>, split: Split) {
    for at in (0..others.len()).rev() {
        if others[at].pc == split.pc {
            others[at].mask |= split.mask;
            return;
        }
        if others[at].pc > split.pc {
            others.insert(at + 1, split);
            return;
        }
    }
    others.insert(0, split);
}

pub fn lanes_text(mask: u32) -> String {
    if mask == !0 {
        return "0 to 31".to_string();
    }
    let found: Vec<String> = super::lanes::lanes(mask).map(|lane| lane.to_string()).collect();
    found.join(", ")
}

fn value_of(special: Special, launch: &Launch, block: &Block, warp: u32, lane: u32) -> u32 {
    let [x, y, _] = launch.threads;
    let thread = warp * 32 + lane;
    match special {
        Special::Tid(0) => thread % x,
        Special::Tid(1) => thread / x % y,
        Special::Tid(_) => thread / x / y,
        Special::Ntid(axis) => launch.threads[axis as usize],
        Special::Ctaid(axis) => block.index[axis as usize],
        Special::Nctaid(axis) => launch.grid[axis as usize],
        Special::LaneId => lane,
        Special::WarpId => warp,
        Special::WarpCount => launch.threads.iter().product::<u32>().div_ceil(32),
        Special::MaskEq => 1 << lane,
        Special::MaskLt => (1u32 << lane) - 1,
        Special::MaskLe => !0 >> (31 - lane),
        Special::MaskGt => !(!0 >> (31 - lane)),
        Special::MaskGe => !((1u32 << lane) - 1),
        Special::Multiprocessor => (block.number % 132) as u32,
        Special::Multiprocessors => 132,
        Special::DynamicShared => launch.dynamic_shared as u32,
        Special::TotalShared => launch.shared_bytes() as u32 + SHARED_START as u32,
        Special::Zero => 0,
        Special::One => 1,
    }
}
