//! Version and failures of Nvidia's driver.

/// Version of the driver, from its kernel module, on Linux.
#[cfg(feature = "cuda")]
pub(super) fn driver_version() -> Option<String> {
    parse(&std::fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

/// Meaning of a panic of cudarc 0.19: without the driver's library its first call panics
/// (lib.rs, `panic_no_lib_found`).
pub(super) fn panic_reason(text: String) -> String {
    match text.starts_with("Unable to dynamically load") {
        true => "the driver's library libcuda was not found".to_owned(),
        false => text,
    }
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
    fn a_library_that_is_not_there_is_told_apart_from_one_that_fails() {
        let absent = "Unable to dynamically load the \"cuda\" shared library - searched for \
                      library names: [\"libcuda.so\"].";
        let reason = |text: &str| panic_reason(text.to_owned());
        assert_eq!(reason(absent), "the driver's library libcuda was not found");
        assert_eq!(reason("Missing symbol cuInit: old"), "Missing symbol cuInit: old");
    }

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
