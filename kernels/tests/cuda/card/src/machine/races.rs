//! Conflicts of threads over memory between two barriers.
//!
//! For every word of four bytes: who wrote it last, who read it since, and when. Two threads of a block conflict
//! if no barrier lies between their accesses, one of which writes; two of one warp, if the warp was not
//! synchronised either; two of different blocks, always. Atomic accesses do not conflict with each other.

use std::collections::HashMap;

use super::lanes::{LANES, lanes};
use super::memory::SPACE_SHARED;
use super::{Cx, SHARED_START};

#[derive(Clone, Copy)]
pub struct Access {
    pub reads: bool,
    pub writes: bool,
    /// Atomic or volatile.
    pub strong: bool,
}

#[derive(Clone, Copy, Default)]
struct Stamp {
    /// Plus one; zero if there was none.
    block: u32,
    /// Plus one; that and more if several threads did.
    thread: u16,
    strong: bool,
    epoch: u32,
    warp_epoch: u32,
    line: u32,
}

const SEVERAL: u16 = u16::MAX;

#[derive(Clone, Copy, Default)]
struct Word {
    write: Stamp,
    read: Stamp,
    /// Another thread that read in the same epoch.
    other_read: Stamp,
}

const PAGE_WORDS: usize = 1024;

pub struct Races {
    shared: Vec<Word>,
    global: HashMap<u64, Box<[Word; PAGE_WORDS]>>,
    pub reports: Vec<String>,
    seen: std::collections::HashSet<(u32, u32)>,
}

impl Races {
    pub fn new(shared_bytes: usize) -> Self {
        Self {
            shared: vec![Word::default(); shared_bytes.div_ceil(4) + 1],
            global: HashMap::new(),
            reports: Vec::new(),
            seen: Default::default(),
        }
    }

    pub fn begin_block(&mut self) {
        self.shared.fill(Word::default());
    }
}

/// True if the two may happen at the same time.
fn conflict(before: &Stamp, now: &Stamp) -> bool {
    if before.block == 0 || before.strong && now.strong {
        return false;
    }
    if before.block != now.block {
        return true;
    }
    if before.epoch != now.epoch || before.thread == now.thread && before.thread != SEVERAL {
        return false;
    }
    let same_warp = before.thread != SEVERAL
        && now.thread != SEVERAL
        && (before.thread - 1) / 32 == (now.thread - 1) / 32;
    !same_warp || before.warp_epoch == now.warp_epoch
}

#[inline(never)]
pub fn record(
    cx: &mut Cx,
    space: u32,
    addresses: &[u64; LANES],
    mask: u32,
    bytes: u64,
    access: Access,
) {
    let Some(mut races) = cx.races.take() else { return };
    let (epoch, block) = (cx.block.epoch, cx.block.number as u32 + 1);
    let warp_epoch = cx.warp().epoch;
    for lane in lanes(mask) {
        let address = addresses[lane];
        let start = if space == SPACE_SHARED { address - SHARED_START } else { address };
        for word in start / 4..=(start + bytes - 1) / 4 {
            let now = Stamp {
                block,
                thread: cx.thread(lane) as u16 + 1,
                strong: access.strong,
                epoch,
                warp_epoch,
                line: cx.line,
            };
            let place = if space == SPACE_SHARED {
                &mut races.shared[word as usize]
            } else {
                let page = races
                    .global
                    .entry(word / PAGE_WORDS as u64)
                    .or_insert_with(|| Box::new([Word::default(); PAGE_WORDS]));
                &mut page[word as usize % PAGE_WORDS]
            };
            // Parts of a word that two threads have are no conflict.
            let narrow = bytes < 4;
            let mut against = None;
            if !narrow && conflict(&place.write, &now) {
                against = Some(("written", place.write));
            }
            if !narrow && access.writes {
                for read in [place.read, place.other_read] {
                    if conflict(&read, &now) {
                        against = against.or(Some(("read", read)));
                    }
                }
            }
            if narrow {
                // Only whole words are followed.
            } else if access.writes {
                place.write = now;
            } else if place.read.block == block
                && place.read.epoch == epoch
                && place.read.thread != now.thread
            {
                place.other_read = place.read;
                place.read = now;
            } else {
                place.read = now;
            }
            if let Some((how, before)) = against
                && races.seen.insert((before.line, now.line))
            {
                let what = if access.writes { "writes" } else { "reads" };
                let memory = if space == SPACE_SHARED {
                    format!("byte {} of shared memory", word * 4)
                } else {
                    cx.launch.memory.describe(word * 4)
                };
                let text = |line: u32| {
                    cx.launch
                        .kernel
                        .text
                        .get((line as usize).wrapping_sub(1))
                        .map_or("", |text| text.trim())
                        .to_string()
                };
                races.reports.push(format!(
                    "software CUDA card: race in kernel {}: thread {} of block {} {what} {memory} (PTX line {}: {}), \
                     which thread {} of block {} has {how} (PTX line {}: {}) with no barrier between",
                    cx.launch.kernel.name,
                    now.thread - 1,
                    now.block - 1,
                    now.line,
                    text(now.line),
                    before.thread - 1,
                    before.block - 1,
                    before.line,
                    text(before.line)
                ));
            }
        }
    }
    cx.races = Some(races);
}
