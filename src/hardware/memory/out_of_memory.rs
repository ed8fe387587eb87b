use burn::tensor::backend::{Backend, DeviceOps};

use super::meter::Meter;
use crate::hardware::panics::{ANY, Caught, OfDevice, Threads, caught, first_line};
use crate::hardware::{Bytes, HardwareError};

/// Texts of memory that could not be had, before and after the number of bytes, if there is one.
const TEXTS: [(&str, &str); 8] = [
    // cubecl-runtime 0.10, server/base.rs, `IoError::BufferTooBig`: more than the largest page of
    // the pools, and what CUDA refused with CUDA_ERROR_OUT_OF_MEMORY (cubecl-cuda, gpu.rs).
    ("can't allocate buffer of size: ", ""),
    // cubecl-runtime 0.10, server/base.rs, `LaunchError::OutOfMemory`.
    ("An out-of-memory error happened during launch", ""),
    // cudarc 0.19, driver/result.rs, `DriverError`.
    ("CUDA_ERROR_OUT_OF_MEMORY", ""),
    // wgpu-core 29, resource.rs, `CreateBufferError::MaxBufferSize`.
    ("Buffer size ", " is greater than the maximum buffer size"),
    // wgpu 29, api/device.rs and backend/wgpu_core.rs, `default_error_handler`.
    ("wgpu error: Out of Memory", ""),
    // wgpu-core 29, device/mod.rs, `DeviceError::OutOfMemory`.
    ("Not enough memory left.", ""),
    // Rust, alloc/raw_vec and alloc/collections: more bytes than an address can count; `Vec` and
    // `TryReserveError`.
    ("capacity overflow", ""),
    ("memory allocation failed because", ""),
];

/// Texts of a device that failed otherwise, or of work that it does not take any more.
const FAILURES: [&str; 6] = [
    // burn-backend 0.21, backend/base.rs, `ExecutionError`.
    "An error happened during execution",
    // cubecl-runtime 0.10, server/base.rs, `ServerError::ServerUnhealthy`.
    "The server is in an invalid state",
    // cubecl-common 0.10, device/handle: the device's thread panicked.
    "CallError",
    // wgpu 29, backend/wgpu_core.rs, `default_error_handler`, and wgpu-core 29, device/mod.rs.
    "wgpu error",
    "Parent device is lost",
    // cudarc 0.19, driver/result.rs, `DriverError`.
    "CUDA_ERROR_",
];

/// What a message of Burn, CubeCL, wgpu, CUDA or Rust says of memory, if it does: what was asked for,
/// and the line that tells.
fn classify(text: &str) -> Option<(Option<Bytes>, &str)> {
    text.lines().find_map(|line| {
        TEXTS.iter().find_map(|(start, end)| {
            let (_, rest) = line.split_once(start)?;
            let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            let asked = rest[..rest.len() - after.len()].parse().ok().map(Bytes);
            after.starts_with(end).then(|| (asked, line.trim()))
        })
    })
}

/// Runs `work` to its end on the device; a device that fails is an error, not a panic.
///
/// Burn 0.21 has no error of its own for memory: an operation panics, or a thread of the device
/// does, or [`Backend::sync`] tells it later. This catches all three, without a word on stderr, and
/// reads from the text whether it was memory.
///
/// A second sync clears what the failed work left in the device's queue, so the device can be used
/// again.
///
/// # Errors
/// [`HardwareError::OutOfMemory`] if memory was refused, with the bytes asked for where the message
/// tells, the bytes in use (of the host when it panicked, of a device afterwards), and the bytes free; any other
/// panic or failure is [`HardwareError::Failed`].
///
/// # Conventions
/// - A failure on another thread's tensors on the same device, at the same time, is reported here as
///   well: CubeCL does not tell whose it was.
/// - What `work` changes through references stays as it was when it panicked.
/// - On the CPU, only an amount that no address can count is an error. When the system refuses less
///   than that, Rust prints `memory allocation of N bytes failed` and ends the process; where
///   memory is promised beyond what there is, as on Linux, the system may end it when the memory is
///   touched. Ask [`memory_stats`](crate::hardware::memory_stats) before.
/// - Install a panic hook of the program's own before the first call: one installed later replaces
///   the hook that listens here, and the devices' reasons are lost.
/// - With `panic = "abort"` nothing is caught.
pub fn guarded<B: Backend, T>(
    device: &B::Device,
    work: impl FnOnce() -> T,
) -> Result<T, HardwareError> {
    run::<B, _>(std::slice::from_ref(device), ANY, || {
        let value = work();
        (value, B::sync(device).err().map(|error| error.to_string()))
    })
}

/// Runs `work`, which waits for the devices where it needs to. A panic in which no device had a part
/// stays one.
///
/// # Errors
/// As [`guarded`], of the first of the devices.
pub(crate) fn devices_guarded<B: Backend, T>(
    devices: &[B::Device],
    work: impl FnOnce() -> T,
) -> Result<T, HardwareError> {
    run::<B, _>(devices, of_device, || (work(), None))
}

/// Runs `work`, which gives what a device failed with beside its value.
fn run<B: Backend, T>(
    devices: &[B::Device],
    of_device: OfDevice,
    work: impl FnOnce() -> (T, Option<String>),
) -> Result<T, HardwareError> {
    let threads = || Threads::Named(devices.iter().flat_map(thread_names::<B>).collect());
    let Caught { result, elsewhere: mut said, in_use } = caught(threads(), of_device, work);
    match result {
        Ok((value, None)) if said.is_empty() => return Ok(value),
        Ok((value, failure)) => {
            said.extend(failure);
            // Tensors of a device that failed may fail to be given back.
            said.extend(caught(threads(), ANY, || drop(value)).elsewhere);
        }
        Err(text) => said.push(text),
    }
    // A device's thread may be behind: what it says only now is often the cause.
    for device in devices {
        said.extend(caught(threads(), ANY, || B::sync(device)).elsewhere);
    }
    Err(error::<B>(&devices[0], &said, in_use))
}

/// Whether a panic with this text is one of a device.
fn of_device(text: &str) -> bool {
    classify(text).is_some() || FAILURES.iter().any(|failure| text.contains(failure))
}

fn error<B: Backend>(device: &B::Device, said: &[String], in_use: Option<u64>) -> HardwareError {
    let name = format!("{device:?}");
    let reason = |line: &str| {
        let line = without_opening(line);
        match said.iter().flat_map(|text| text.lines()).find(is_of_kernel) {
            Some(kernel) => format!("{line}, {kernel}"),
            None => line.to_owned(),
        }
    };
    let Some((asked, line)) = said.iter().find_map(|text| classify(text)) else {
        let line = said.iter().find_map(|text| first_line(text)).unwrap_or_default();
        return HardwareError::Failed { device: name, reason: reason(line) };
    };
    let threads = Threads::Named(thread_names::<B>(device).into());
    let told = caught(threads, ANY, || {
        let meter = Meter::of::<B>(device);
        let free = meter.surroundings().free;
        let in_use = match meter {
            // As it was when it panicked: what was given back since is not in it any more.
            Meter::Host => in_use.map(Bytes),
            meter => meter.counted().in_use,
        };
        (in_use, free)
    });
    let (in_use, free) = told.result.unwrap_or((None, None));
    HardwareError::OutOfMemory { device: name, asked, in_use, free, reason: reason(line) }
}

/// The line without `[` and `Variant(` at its beginning that close in a later one: CubeCL prints a list of errors over
/// several lines.
fn without_opening(line: &str) -> &str {
    let opens = line.matches(['[', '(']).count() > line.matches([']', ')']).count();
    match line.split_once(['[', '(']) {
        Some((name, rest))
            if opens && !rest.is_empty() && name.chars().all(char::is_alphanumeric) =>
        {
            without_opening(rest)
        }
        _ => line,
    }
}

/// Whether a line names the kernel that failed, as it does where launches block.
fn is_of_kernel(line: &&str) -> bool {
    line.starts_with("in the kernel ")
}

/// The names of the threads in which CubeCL 0.10 runs a device (cubecl-common,
/// device/handle/channel.rs): fused streams upstream, kernels downstream. Their panics reach the
/// caller without their text.
fn thread_names<B: Backend>(device: &B::Device) -> [String; 2] {
    let id = device.id();
    ["U", "D"].map(|stage| format!("DS{stage}-{}-{}", id.type_id, id.index_id))
}

#[cfg(test)]
mod tests {
    use burn::backend::Flex;
    use burn::tensor::{ElementConversion, Tensor};

    use super::*;

    #[test]
    fn messages_of_memory_are_known() {
        let refused = [
            // A panic in a device's thread: cubecl-wgpu 0.10, compute/server.rs,
            // `initialize_memory` unwraps what reserving gave.
            (
                "called `Result::unwrap()` on an `Err` value: can't allocate buffer of size: \
                 4398046511104\nNo backtrace available",
                Some(4398046511104),
            ),
            // Burn's `ExecutionError` around CubeCL's `ServerUnhealthy`.
            (
                "An error happened during execution\nCaused by:\n  The server is in an invalid \
                 state\nCaused by:\n  [can't allocate buffer of size: 8192\n   0: main]",
                Some(8192),
            ),
            ("An out-of-memory error happened during launch\nCaused by:\n  hipModuleLaunch", None),
            ("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")", None),
            (
                "wgpu error: Validation Error\n\nCaused by:\n  In Device::create_buffer\n    \
                 Buffer size 2147483652 is greater than the maximum buffer size (2147483648)\n",
                Some(2147483652),
            ),
            ("wgpu error: Out of Memory\n", None),
            ("  In Queue::submit\n    Not enough memory left.", None),
            ("capacity overflow", None),
            (
                "memory allocation failed because the computed capacity exceeded the collection's \
                 maximum",
                None,
            ),
        ];
        for (text, asked) in refused {
            let found = classify(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(found.0, asked.map(Bytes), "{text}");
            assert!(text.lines().any(|line| line.trim() == found.1), "{text}: {found:?}");
        }
    }

    #[test]
    fn other_messages_are_not_of_memory() {
        let others = [
            "",
            "index out of bounds: the len is 3 but the index is 5",
            "Buffer size 12 is not a multiple of 4",
            "couldn't find resource for that handle: no memory page\nNo backtrace available",
            "wgpu error: Validation Error",
            "called `Result::unwrap()` on an `Err` value: CallError",
            "Parent device is lost",
        ];
        for text in others {
            assert_eq!(classify(text), None, "{text}");
        }
    }

    #[test]
    fn a_device_is_told_from_a_mistake_of_the_program() {
        let devices = [
            "called `Result::unwrap()` on an `Err` value: CallError",
            "the device answers: An error happened during execution\nCaused by:\n  x",
            "wgpu error: Validation Error",
            "DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, \"an illegal memory access\")",
            "capacity overflow",
        ];
        assert!(devices.into_iter().all(of_device));
        let mistakes = ["index out of bounds: the len is 3 but the index is 5", "", "no episodes"];
        assert!(!mistakes.into_iter().any(of_device));
    }

    /// As `fewshot-kernels` has it where launches block.
    #[test]
    fn the_kernel_that_failed_is_named() {
        let said = |text: &str| {
            error::<Flex>(&Default::default(), &[text.to_owned(), "CallError".to_owned()], None)
        };
        let failed = "An error happened during execution\nCaused by:\n  x\nin the kernel adam";
        assert!(said(failed).to_string().ends_with("failed: x, in the kernel adam"));
        let listed = "[Launch(refused (719)\n)]\nin the kernel sgd";
        assert!(said(listed).to_string().ends_with("failed: refused (719), in the kernel sgd"));
        for whole in ["lost (see [", "a (b) [c", "Lost("] {
            assert!(said(whole).to_string().ends_with(&format!("failed: {whole}")));
        }
        let refused = "can't allocate buffer of size: 7\nin the kernel adam";
        assert!(said(refused).to_string().ends_with("of size: 7, in the kernel adam"));
    }

    #[test]
    fn the_reason_is_the_first_line_that_tells_something() {
        let text =
            "An error happened during execution\nCaused by:\n  Parent device is lost\n  0: x";
        assert_eq!(first_line(text), Some("Parent device is lost"));
        assert_eq!(first_line("Caused by:\n"), None);
    }

    /// Refused is what no device has; then a sum works.
    fn refuses_what_is_beyond_all_memory<B: Backend>(floats: usize) {
        let device = B::Device::default();
        let wrong = guarded::<B, _>(&device, || Tensor::<B, 1>::zeros([floats], &device));
        match wrong.unwrap_err() {
            HardwareError::OutOfMemory { device: name, .. } => {
                assert_eq!(name, format!("{device:?}"));
            }
            other => panic!("{other}"),
        }
        let works = || Tensor::<B, 1>::ones([64], &device).sum().into_scalar();
        assert_eq!(guarded::<B, _>(&device, works).unwrap().elem::<f32>(), 64.0);
    }

    fn fails_where_shapes_do_not_fit<B: Backend>() {
        let device = B::Device::default();
        let wrong = guarded::<B, _>(&device, || {
            Tensor::<B, 1>::ones([3], &device) + Tensor::<B, 1>::ones([5], &device)
        });
        match wrong.unwrap_err() {
            HardwareError::Failed { device: name, reason } => {
                assert_eq!(name, format!("{device:?}"));
                assert!(!reason.is_empty());
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn flex_refuses_what_no_address_can_count() {
        refuses_what_is_beyond_all_memory::<Flex>(1 << 61);
        fails_where_shapes_do_not_fit::<Flex>();
    }

    #[cfg(feature = "wgpu")]
    #[test]
    fn wgpu_refuses_four_tebibytes_and_goes_on() {
        refuses_what_is_beyond_all_memory::<burn::backend::Wgpu>(1 << 40);
        fails_where_shapes_do_not_fit::<burn::backend::Wgpu>();
    }

    #[cfg(feature = "cuda")]
    #[test]
    #[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
    fn cuda_refuses_four_tebibytes_and_goes_on() {
        refuses_what_is_beyond_all_memory::<burn::backend::Cuda>(1 << 40);
        fails_where_shapes_do_not_fit::<burn::backend::Cuda>();
    }
}
