use std::env;
use std::thread;

use fewshot_kernels::limit_malloc_arenas;

/// Large enough for what a step of a small network frees, small enough not to matter.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const BLOCK: usize = 4 << 20;

/// Lets the allocator of glibc keep 8 MiB of freed memory for the next step, where it keeps 128 KiB,
/// and have one heap more than there are processors, where it has eight for each.
///
/// A step of a small network frees all that it allocates, and giving that back to the system and
/// asking for it again takes up to a fifth of its time. For the start of a program, as in the
/// `fewshot` command; a library should leave it to its program. It holds for the process.
///
/// Does nothing where the C library is another or where the program has another allocator. What the
/// environment says holds: `MALLOC_ARENA_MAX` or `GLIBC_TUNABLES` of heaps, and of freed memory one of
/// `MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`, `MALLOC_TOP_PAD_` and `MALLOC_MMAP_MAX_`.
///
/// # Source
/// `mallopt(3)`, "dynamic mmap threshold": once a block that had pages of its own is freed, blocks
/// up to its size come from the heap, and twice its size is kept at the heap's end.
pub fn keep_freed_memory() {
    if ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"].iter().all(|name| env::var_os(name).is_none()) {
        limit_malloc_arenas(1 + thread::available_parallelism().map_or(1, usize::from));
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    drop(std::hint::black_box(Vec::<u8>::with_capacity(BLOCK)));
}
