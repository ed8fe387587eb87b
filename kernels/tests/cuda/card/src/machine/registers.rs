//! Gives the registers of PTX, of which there are thousands, rows that several share one after the other.

use super::lanes::ROW;
use super::lower::Flat;
use crate::ptx::{Base, Operand, Ty};

pub struct Allocation {
    /// Offset of a register's row, or number of a predicate.
    pub places: Vec<u32>,
    pub rows: usize,
    pub predicates: usize,
    /// 32-bit registers that are in use at once, at most.
    pub pressure: u32,
}

#[derive(Clone, Copy)]
struct Interval {
    first: u32,
    last: u32,
    /// True if the first mention only defines the register.
    is_defined: bool,
}

fn mention(operand: &Operand, f: &mut impl FnMut(u32)) {
    match operand {
        Operand::Register(register) | Operand::Not(register) => f(*register),
        Operand::Both(first, second) => {
            mention(first, f);
            mention(second, f);
        }
        Operand::Vector(all) | Operand::List(all) => all.iter().for_each(|one| mention(one, f)),
        Operand::Memory(Base::Register(register), _) => f(*register),
        Operand::Tensor(base, all) => {
            mention(base, f);
            all.iter().for_each(|one| mention(one, f));
        }
        _ => {}
    }
}

fn defines(op: &Flat) -> bool {
    op.guard.is_none()
        && !matches!(
            op.name(),
            "st" | "red" | "bra" | "brx" | "bar" | "barrier" | "stmatrix" | "cp"
        )
        && !(op.name() == "wmma" && op.part(1) == "store")
}

/// `start` is the first row that is free.
pub fn allocate(code: &[Flat], registers: &[Ty], start: usize) -> Allocation {
    let none = Interval { first: u32::MAX, last: 0, is_defined: false };
    let mut intervals = vec![none; registers.len()];
    for (at, op) in code.iter().enumerate() {
        let at = at as u32;
        let mut see = |register: u32, is_defined: bool| {
            let interval = &mut intervals[register as usize];
            if interval.first == u32::MAX {
                *interval = Interval { first: at, last: at, is_defined };
            } else if interval.first == at && !is_defined {
                interval.is_defined = false;
            }
            interval.last = at;
        };
        let pure = defines(op);
        for (index, operand) in op.args.iter().enumerate() {
            mention(operand, &mut |register| see(register, index == 0 && pure));
        }
        if let Some((register, _)) = op.guard {
            see(register, false);
        }
    }
    let mut loops: Vec<(u32, u32)> = Vec::new();
    for (at, op) in code.iter().enumerate() {
        for &target in &op.targets {
            if target as usize <= at {
                loops.push((target, at as u32));
            }
        }
    }
    loops.sort_unstable();
    loops.dedup();
    let mut changed = true;
    while changed {
        changed = false;
        for interval in &mut intervals {
            if interval.first == u32::MAX {
                continue;
            }
            for &(from, to) in &loops {
                let Interval { first, last, is_defined } = *interval;
                if last < from || first > to {
                    continue;
                }
                let inside = first >= from && last <= to;
                if inside && is_defined {
                    continue;
                }
                if first > from || last < to {
                    interval.first = first.min(from);
                    interval.last = last.max(to);
                    changed = true;
                }
            }
        }
    }
    let mut order: Vec<usize> =
        (0..registers.len()).filter(|&at| intervals[at].first != u32::MAX).collect();
    order.sort_by_key(|&at| intervals[at].first);
    let mut places = vec![0; registers.len()];
    let mut rows = start;
    let mut predicates = 1;
    let mut free: [Vec<usize>; 2] = Default::default();
    // End, row, which pool.
    let mut active: std::collections::BinaryHeap<std::cmp::Reverse<(u32, usize, usize)>> =
        Default::default();
    let (mut used, mut pressure) = (0u32, 0u32);
    // To tell faults of this sharing from others.
    let own = crate::is_set("SOFTWARE_CUDA_OWN_ROWS");
    for at in order {
        if registers[at] == Ty::Pred {
            places[at] = predicates as u32;
            predicates += 1;
            continue;
        }
        let interval = intervals[at];
        while let Some(&std::cmp::Reverse((end, row, pool))) = active.peek() {
            if end >= interval.first || own {
                break;
            }
            active.pop();
            free[pool].push(row);
            used -= 1 + pool as u32;
        }
        let pool = usize::from(registers[at].bytes() == 8);
        let row = free[pool].pop().unwrap_or_else(|| {
            rows += 1 + pool;
            rows - 1 - pool
        });
        places[at] = (row * ROW) as u32;
        active.push(std::cmp::Reverse((interval.last, row, pool)));
        used += 1 + pool as u32;
        pressure = pressure.max(used);
    }
    Allocation { places, rows, predicates, pressure }
}
