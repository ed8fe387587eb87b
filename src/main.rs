//! The `fewshot` command.
#![forbid(unsafe_code)]
#![recursion_limit = "256"]

mod cli;

/// What the hardware commands and `peak_memory` tell of the processor's memory is counted here.
#[global_allocator]
static ALLOCATOR: fewshot::hardware::CountingAllocator =
    fewshot::hardware::CountingAllocator::new();

fn main() -> std::process::ExitCode {
    cli::main()
}
