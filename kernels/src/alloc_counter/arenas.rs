/// `M_ARENA_MAX` of glibc's `malloc.h`.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ARENA_MAX: i32 = -8;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
unsafe extern "C" {
    fn mallopt(parameter: i32, value: i32) -> i32;
}

/// Lets the allocator of glibc have so many arenas at most, of which each thread takes one; what was
/// freed serves the threads of the same arena alone. It has eight for each processor otherwise.
///
/// For the start of a program: arenas that are there stay. Does nothing where the C library is another.
///
/// # Source
/// `mallopt(3)`, `M_ARENA_MAX`.
pub fn limit_malloc_arenas(count: usize) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: glibc writes one number, under the lock of its first heap; a thread that asks for a heap
    // meanwhile goes by the old number or the new one.
    unsafe {
        mallopt(ARENA_MAX, i32::try_from(count).unwrap_or(i32::MAX));
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = count;
}
