//! The `fewshot` command.
#![forbid(unsafe_code)]
#![recursion_limit = "256"]

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
