//! The `fewshot` command.
#![forbid(unsafe_code)]
#![recursion_limit = "256"]

mod cli;

use fewshot::hardware::CountingAllocator;
use mimalloc::MiMalloc;

/// What the hardware commands and `peak_memory` tell of the processor's memory is counted here. On an
/// accelerator one thread frees what another allocated, hundreds of times a step, which mimalloc does without
/// locks.
#[global_allocator]
static ALLOCATOR: CountingAllocator<MiMalloc> = CountingAllocator::over(MiMalloc);

fn main() -> std::process::ExitCode {
    cli::main()
}
