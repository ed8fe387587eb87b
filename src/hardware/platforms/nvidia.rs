//! The version of Nvidia's driver.

#[cfg(feature = "cuda")]
use std::fs;

/// As NVML tells it, where it is compiled in, and else the kernel module, on Linux.
#[cfg(feature = "cuda")]
pub(super) fn driver_version() -> Option<String> {
    told().or_else(|| parse(&fs::read_to_string("/proc/driver/nvidia/version").ok()?))
}

#[cfg(all(feature = "cuda", feature = "nvml"))]
fn told() -> Option<String> {
    crate::hardware::memory::driver_version()
}

#[cfg(all(feature = "cuda", not(feature = "nvml")))]
fn told() -> Option<String> {
    None
}

/// The first number with dots in the line of the kernel module.
fn parse(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let number = |word: &&str| {
        let mut parts = word.split('.');
        word.contains('.') && parts.all(|part| !part.is_empty() && part.parse::<u32>().is_ok())
    };
    line.split_whitespace().find(number).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_kernel_modules_tell_their_version() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 \
                      18:56:32 UTC 2023\nGCC version:  gcc version 11.4.0";
        assert_eq!(parse(closed).as_deref(), Some("535.129.03"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release \
                    Build  (dvs-builder@U16)";
        assert_eq!(parse(open).as_deref(), Some("570.86.15"));
        for nothing in ["", "GCC version:  gcc version 11.4.0", "NVRM version: NVIDIA . 1..2 7"] {
            assert_eq!(parse(nothing), None);
        }
    }
}
