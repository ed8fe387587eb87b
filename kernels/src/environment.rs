//! What the user of this process asks for.

use std::sync::LazyLock;

/// The value of `FEWSHOT_KERNELS` when it is first wanted, if there is one.
pub fn wanted() -> Option<&'static str> {
    static WANTED: LazyLock<Option<String>> = LazyLock::new(|| {
        let value = std::env::var_os("FEWSHOT_KERNELS")?.to_string_lossy().trim().to_lowercase();
        (!value.is_empty()).then_some(value)
    });
    WANTED.as_deref()
}

/// Whether every operation is to run as plain Burn operations.
pub fn wants_reference() -> bool {
    wanted() == Some("reference")
}
