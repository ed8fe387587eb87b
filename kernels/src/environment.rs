//! The wishes of the user of this process.

use std::cell::Cell;
use std::sync::LazyLock;

use fewshot_simd::instruction_set::{InstructionSet, bodies};

/// `FEWSHOT_KERNELS` has a value that means nothing here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("FEWSHOT_KERNELS is {value}, but may be here: reference, {}", .instructions.join(", "))]
pub struct UnknownKernels {
    /// The value.
    pub value: String,
    /// Names of the sets of instructions that this processor has.
    pub instructions: Vec<String>,
}

/// The value of `FEWSHOT_KERNELS` when it is first wanted, if there is one.
pub fn requested() -> Option<&'static str> {
    static WANTED: LazyLock<Option<String>> = LazyLock::new(|| {
        let value = std::env::var_os("FEWSHOT_KERNELS")?.to_string_lossy().trim().to_lowercase();
        (!value.is_empty()).then_some(value)
    });
    WANTED.as_deref()
}

/// The body that operations run on: the one that `FEWSHOT_KERNELS` names, or the fastest.
///
/// # Panics
/// If `FEWSHOT_KERNELS` names something this processor does not have.
pub fn chosen() -> &'static dyn InstructionSet {
    static CHOSEN: LazyLock<Result<&'static dyn InstructionSet, UnknownKernels>> =
        LazyLock::new(|| named(requested()));
    match &*CHOSEN {
        Ok(body) => *body,
        Err(error) => panic!("{error}"),
    }
}

/// The body that a value of `FEWSHOT_KERNELS` means; the fastest where it names none.
pub fn named(value: Option<&str>) -> Result<&'static dyn InstructionSet, UnknownKernels> {
    let bodies = bodies();
    let Some(value) = value.filter(|value| *value != "reference") else {
        return Ok(bodies[0]);
    };
    let simple = |name: &str| name.replace('-', "").to_lowercase();
    let body = bodies.iter().find(|body| simple(body.name()) == simple(value));
    body.copied().ok_or_else(|| UnknownKernels {
        value: value.to_owned(),
        instructions: bodies.iter().map(|body| simple(body.name())).collect(),
    })
}

/// True if `FEWSHOT_LAUNCH_BLOCKING` asks to wait for each kernel, so that a device's error names the one that
/// failed; as `CUDA_LAUNCH_BLOCKING` does for PyTorch.
#[cfg(feature = "cube")]
pub fn blocks_launches() -> bool {
    static WANTED: LazyLock<bool> = LazyLock::new(|| {
        std::env::var_os("FEWSHOT_LAUNCH_BLOCKING").is_some_and(|it| !it.is_empty() && it != "0")
    });
    *WANTED
}

thread_local! {
    static REFERENCE: Cell<bool> = const { Cell::new(false) };
}

/// True if operations that this thread starts now run as plain Burn operations.
pub fn wants_reference() -> bool {
    requested() == Some("reference") || REFERENCE.get()
}

/// Does `work` with the reference in place of every fused operation that this thread starts.
///
/// Two answers and two times of the same work then stand side by side in one process. The choice is
/// made as operations run forward: a backward pass belongs to the operations it goes back through,
/// wherever it is called.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use fewshot_kernels::{Route, route, with_reference};
///
/// assert_eq!(with_reference(route::<Flex>), Route::Forced);
/// ```
pub fn with_reference<T>(work: impl FnOnce() -> T) -> T {
    /// Puts the former choice back, after a panic too.
    struct Restore(bool);

    impl Drop for Restore {
        fn drop(&mut self) {
            REFERENCE.set(self.0);
        }
    }

    let _restore = Restore(REFERENCE.replace(true));
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_found_by_its_name() {
        for body in bodies() {
            assert_eq!(named(Some(body.name())).ok().unwrap().name(), body.name());
        }
        for wanted in [None, Some("reference")] {
            assert_eq!(named(wanted).ok().unwrap().name(), bodies()[0].name());
        }
    }

    #[test]
    fn a_name_that_no_body_has_is_told_with_those_there_are() {
        let error = named(Some("mmx")).err().unwrap();
        assert_eq!(error.value, "mmx");
        let text = error.to_string();
        assert!(text.starts_with("FEWSHOT_KERNELS is mmx, but may be here: reference, "), "{text}");
        assert!(text.ends_with("portable"), "{text}");
    }

    #[test]
    fn the_reference_is_asked_for_inside_alone() {
        with_reference(|| {
            assert!(wants_reference());
            with_reference(|| assert!(wants_reference()));
            assert!(wants_reference(), "still, after the inner one");
            let in_thread = std::thread::spawn(wants_reference).join().unwrap();
            assert_eq!(in_thread, requested() == Some("reference"));
        });
        assert_eq!(wants_reference(), requested() == Some("reference"));
    }

    #[test]
    fn a_panic_inside_puts_the_choice_back() {
        let caught = std::panic::catch_unwind(|| with_reference(|| panic!("as meant")));
        assert!(caught.is_err());
        assert_eq!(wants_reference(), requested() == Some("reference"));
    }
}
