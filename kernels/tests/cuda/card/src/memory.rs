//! Memory of the card: pages of the host that nothing but their own addresses reaches.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, OnceLock};

use crate::errors::{INVALID_VALUE, OUT_OF_MEMORY, Status};

unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        bytes: usize,
        access: i32,
        flags: i32,
        file: i32,
        offset: i64,
    ) -> *mut c_void;
    fn munmap(at: *mut c_void, bytes: usize) -> i32;
    fn mprotect(at: *mut c_void, bytes: usize, access: i32) -> i32;
    fn memfd_create(name: *const i8, flags: u32) -> i32;
    fn ftruncate(file: i32, bytes: i64) -> i32;
}

const NO_ACCESS: i32 = 0;
const READ_WRITE: i32 = 3;
const PRIVATE: i32 = 2;
const SHARED: i32 = 1;
const FIXED: i32 = 0x10;
const ANONYMOUS: i32 = 0x20;
const NO_RESERVE: i32 = 0x4000;

const PAGE: usize = 4096;
/// Bytes before and after each allocation that nothing may touch.
const GUARD: usize = 1 << 20;
/// Bytes of one mapping of the poison.
const POISON: usize = 16 << 20;

#[derive(Clone, Debug)]
pub struct Allocation {
    pub start: u64,
    pub bytes: u64,
    /// Counts all that were made.
    pub number: u64,
    pub is_freed: bool,
    /// Name of the variable of a module that lies here.
    pub name: Option<String>,
    /// True for memory of the host, which kernels reach as well.
    pub is_host: bool,
    mapped: usize,
}

/// Live allocations, by address.
#[derive(Default)]
pub struct Map {
    pub live: Vec<(u64, u64)>,
}

impl Map {
    /// The allocation that has the address: start and end.
    #[inline]
    pub fn find(&self, address: u64) -> Option<(u64, u64)> {
        let after = self.live.partition_point(|range| range.0 <= address);
        let range = *self.live.get(after.checked_sub(1)?)?;
        (address < range.1).then_some(range)
    }
}

#[derive(Default)]
struct State {
    /// Freed ones too, until their addresses are used again.
    all: BTreeMap<u64, Allocation>,
    used: u64,
    made: u64,
    /// Those of the card's own memory alone.
    made_on_card: u64,
    map: Option<Arc<Map>>,
}

#[derive(Default)]
pub struct Memory {
    state: Mutex<State>,
}

/// Bytes that the card says it has.
pub fn total() -> u64 {
    static TOTAL: OnceLock<u64> = OnceLock::new();
    *TOTAL.get_or_init(|| crate::number("SOFTWARE_CUDA_MEMORY").unwrap_or(80 << 30))
}

/// Allocations that succeed on the card before memory runs out.
fn most_allocations() -> u64 {
    static MOST: OnceLock<u64> = OnceLock::new();
    *MOST.get_or_init(|| crate::number("SOFTWARE_CUDA_ALLOCATIONS").unwrap_or(u64::MAX))
}

fn poison() -> Option<i32> {
    static FILE: OnceLock<Option<i32>> = OnceLock::new();
    *FILE.get_or_init(|| {
        if !crate::is_set("SOFTWARE_CUDA_POISON") {
            return None;
        }
        // SAFETY: a new file in memory, which is mapped, filled and unmapped here.
        unsafe {
            let file = memfd_create(c"poison".as_ptr(), 0);
            if file < 0 || ftruncate(file, POISON as i64) != 0 {
                return None;
            }
            let at = mmap(std::ptr::null_mut(), POISON, READ_WRITE, SHARED, file, 0);
            if at as isize == -1 {
                return None;
            }
            std::ptr::write_bytes(at as *mut u8, 0xff, POISON);
            munmap(at, POISON);
            Some(file)
        }
    })
}

impl Memory {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    pub fn allocate(&self, bytes: u64, name: Option<String>, is_host: bool) -> Result<u64, Status> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let mut state = self.lock();
        let is_full = state.used.checked_add(bytes).is_none_or(|sum| sum > total());
        if !is_host && (is_full || state.made_on_card >= most_allocations()) {
            return Err(OUT_OF_MEMORY);
        }
        let pages = (bytes as usize).next_multiple_of(PAGE);
        let mapped = pages + 2 * GUARD;
        // SAFETY: new pages, of which those between the guards become accessible.
        let start = unsafe {
            let flags = PRIVATE | ANONYMOUS | NO_RESERVE;
            let at = mmap(std::ptr::null_mut(), mapped, NO_ACCESS, flags, -1, 0);
            if at as isize == -1 {
                return Err(OUT_OF_MEMORY);
            }
            // At the lower end of the pages, so that addresses are multiples of their size.
            let start = at.add(GUARD);
            if mprotect(start, pages, READ_WRITE) != 0 {
                munmap(at, mapped);
                return Err(OUT_OF_MEMORY);
            }
            if let (Some(file), false) = (poison(), is_host || name.is_some()) {
                let mut done = 0;
                while done < pages {
                    let part = POISON.min(pages - done);
                    mmap(start.add(done), part, READ_WRITE, PRIVATE | FIXED | NO_RESERVE, file, 0);
                    done += part;
                }
            }
            start as u64
        };
        state.made += 1;
        let number = state.made;
        if !is_host {
            state.used += bytes;
            state.made_on_card += 1;
        }
        let (low, high) = (start - GUARD as u64, start + (pages + GUARD) as u64);
        let stale: Vec<u64> = state.all.range(low..high).map(|(start, _)| *start).collect();
        for start in stale {
            state.all.remove(&start);
        }
        state.all.insert(
            start,
            Allocation { start, bytes, number, is_freed: false, name, is_host, mapped },
        );
        state.map = None;
        Ok(start)
    }

    pub fn free(&self, start: u64) -> Result<(), Status> {
        let mut state = self.lock();
        let Some(one) = state.all.get_mut(&start).filter(|one| !one.is_freed) else {
            return Err(INVALID_VALUE);
        };
        one.is_freed = true;
        let (mapped, bytes, is_host) = (one.mapped, one.bytes, one.is_host);
        if !is_host {
            state.used -= bytes;
        }
        state.map = None;
        // SAFETY: the pages are those that `allocate` mapped, and no one may use them any more.
        unsafe { munmap((start as usize - GUARD) as *mut c_void, mapped) };
        Ok(())
    }

    pub fn used(&self) -> u64 {
        self.lock().used
    }

    pub fn map(&self) -> Arc<Map> {
        let mut state = self.lock();
        if state.map.is_none() {
            let live = state
                .all
                .values()
                .filter(|one| !one.is_freed)
                .map(|one| (one.start, one.start + one.bytes));
            state.map = Some(Arc::new(Map { live: live.collect() }));
        }
        state.map.clone().unwrap()
    }

    /// True if all bytes from `start` are of one allocation.
    pub fn has(&self, start: u64, bytes: u64) -> bool {
        self.map().find(start).is_some_and(|(_, end)| bytes <= end - start)
    }

    /// Where an address lies, in words.
    pub fn describe(&self, address: u64) -> String {
        let state = self.lock();
        let before = state.all.range(..=address).next_back().map(|(_, one)| one);
        let after = state.all.range(address..).next().map(|(_, one)| one);
        let name = |one: &Allocation| match &one.name {
            Some(name) => format!("variable {name} of {} bytes", one.bytes),
            None => format!("allocation {} of {} bytes at {:#x}", one.number, one.bytes, one.start),
        };
        let inside = before.filter(|one| address < one.start + one.bytes);
        if let Some(one) = inside {
            let freed = if one.is_freed { "freed " } else { "" };
            return format!("byte {} of {freed}{}", address - one.start, name(one));
        }
        let past = before.map(|one| (address - (one.start + one.bytes), one, "past the end of"));
        let short = after.map(|one| (one.start - address, one, "before"));
        match [past, short].into_iter().flatten().min_by_key(|place| place.0) {
            Some((distance, one, side)) if distance < 1 << 40 => {
                let freed = if one.is_freed { "freed " } else { "" };
                format!("{distance} bytes {side} {freed}{}", name(one))
            }
            _ => "no allocation is near".to_string(),
        }
    }
}
