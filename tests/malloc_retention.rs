//! What `keep_freed_memory` changes. A program of its own: it holds for the process.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::fs;
use std::hint::black_box;

use fewshot::hardware::keep_freed_memory;

/// Pages that the system had to give so far.
fn faults() -> u64 {
    let line = fs::read_to_string("/proc/self/stat").unwrap();
    // The name of the program, in parentheses, may have spaces.
    let after_name = line.rsplit_once(") ").unwrap().1;
    after_name.split(' ').nth(7).unwrap().parse().unwrap()
}

/// What a step does: it writes blocks that add up to 3 MiB, and frees them all.
fn step() {
    let blocks: Vec<Vec<u8>> = (0..48).map(|_| vec![1; 64 << 10]).collect();
    black_box(blocks);
}

fn faults_of_steps() -> u64 {
    step();
    let before = faults();
    (0..20).for_each(|_| step());
    faults() - before
}

#[test]
fn memory_that_a_step_frees_is_there_for_the_next() {
    let pages_of_a_step = 3 * 256;
    let given_back = faults_of_steps();
    assert!(given_back > 10 * pages_of_a_step, "kept already: {given_back} pages in 20 steps");
    keep_freed_memory();
    let kept = faults_of_steps();
    assert!(kept < pages_of_a_step, "{kept} pages in 20 steps");
}
