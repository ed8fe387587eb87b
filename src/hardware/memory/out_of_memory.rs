use burn::tensor::backend::{Backend, DeviceOps};

use super::meter::Meter;
use crate::hardware::panics::{Caught, Cause, Expected, caught, find, first_line, report};
use crate::hardware::{Bytes, HardwareError};

/// The causes that are a device's.
const OF_DEVICE: Expected = Expected::Of(&[Cause::Memory, Cause::Device]);

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
/// - A failure of which a call within `work` made an error is not reported again, on the same thread.
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
    run::<B, _>(std::slice::from_ref(device), Expected::All, || {
        let value = work();
        (value, sync_failures::<B>(device))
    })
}

/// Messages of a device that fails to end its work.
fn sync_failures<B: Backend>(device: &B::Device) -> Vec<String> {
    let waited = caught(thread_names::<B>(device).into(), Expected::All, || B::sync(device));
    let mut messages = waited.device_messages;
    messages.extend(match waited.result {
        Ok(ended) => ended.err().map(|error| error.to_string()),
        Err(message) => Some(message),
    });
    messages
}

/// Runs `work`, which waits for the devices where it needs to. A panic in which no device had a part
/// stays one.
///
/// # Errors
/// The errors of [`guarded`], for the first of the devices.
pub(crate) fn devices_guarded<B: Backend, T>(
    devices: &[B::Device],
    work: impl FnOnce() -> T,
) -> Result<T, HardwareError> {
    run::<B, _>(devices, OF_DEVICE, || (work(), Vec::new()))
}

/// Runs `work`, which returns a value and messages of a device that failed.
fn run<B: Backend, T>(
    devices: &[B::Device],
    expected: Expected,
    work: impl FnOnce() -> (T, Vec<String>),
) -> Result<T, HardwareError> {
    let threads = || devices.iter().flat_map(thread_names::<B>).collect();
    let Caught { result, device_messages: mut messages, in_use, is_reported } =
        caught(threads(), expected, work);
    match result {
        Ok((value, _)) if is_reported => return Ok(value),
        Ok((value, failures)) if messages.is_empty() && failures.is_empty() => return Ok(value),
        Ok((value, failures)) => {
            messages.extend(failures);
            // Tensors of a device that failed may fail to be given back.
            messages.extend(caught(threads(), Expected::All, || drop(value)).device_messages);
        }
        Err(message) => messages.push(message),
    }
    // A device's thread may be behind: what it says only now is often the cause.
    for device in devices {
        messages.extend(caught(threads(), Expected::All, || B::sync(device)).device_messages);
    }
    let error = error::<B>(&devices[0], &messages, in_use);
    report(matches!(error, HardwareError::Failed { .. }));
    Err(error)
}

/// The error of messages of a device, the first ones first.
fn error<B: Backend>(
    device: &B::Device,
    messages: &[String],
    in_use: Option<u64>,
) -> HardwareError {
    let name = format!("{device:?}");
    let reason = |line: &str| {
        let line = without_opening(line.strip_prefix(UNWRAPPED).unwrap_or(line));
        match messages.iter().flat_map(|text| text.lines()).find(is_of_kernel) {
            Some(kernel) => format!("{line}, {kernel}"),
            None => line.to_owned(),
        }
    };
    let findings = messages.iter().filter_map(|message| find(message));
    let Some(refused) = findings.into_iter().find(|finding| finding.cause == Cause::Memory) else {
        let line = messages.iter().find_map(|message| first_line(message)).unwrap_or_default();
        return HardwareError::Failed { device: name, reason: reason(line) };
    };
    let counts = caught(thread_names::<B>(device).into(), Expected::All, || {
        let meter = Meter::of::<B>(device);
        let free = meter.surroundings().free;
        let in_use = match meter {
            // As it was when it panicked: what was given back since is not in it any more.
            Meter::Host => in_use.map(Bytes),
            meter => meter.counted().in_use,
        };
        (in_use, free)
    });
    let (in_use, free) = counts.result.unwrap_or((None, None));
    let (request, reason) = (refused.number().map(Bytes), reason(refused.line));
    HardwareError::OutOfMemory { device: name, request, in_use, free, reason }
}

/// Words of Rust before an error that is unwrapped.
const UNWRAPPED: &str = "called `Result::unwrap()` on an `Err` value: ";

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

/// `true` for the line that names the kernel that failed, where launches block.
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

    /// The messages of `fewshot-kernels` where launches block.
    #[test]
    fn the_kernel_that_failed_is_named() {
        let error = |text: &str| {
            super::error::<Flex>(
                &Default::default(),
                &[text.to_owned(), "CallError".to_owned()],
                None,
            )
        };
        let failed = "An error happened during execution\nCaused by:\n  x\nin the kernel adam";
        assert!(error(failed).to_string().ends_with("failed: x, in the kernel adam"));
        let listed = "[Launch(refused (719)\n)]\nin the kernel sgd";
        assert!(error(listed).to_string().ends_with("failed: refused (719), in the kernel sgd"));
        for whole in ["lost (see [", "a (b) [c", "Lost("] {
            assert!(error(whole).to_string().ends_with(&format!("failed: {whole}")));
        }
        let unwrapped = format!("{UNWRAPPED}DriverError(X, \"x\")\nin the kernel sgd");
        let named = "failed: DriverError(X, \"x\"), in the kernel sgd";
        assert!(error(&unwrapped).to_string().ends_with(named));
        let refused = "can't allocate buffer of size: 7\nin the kernel adam";
        assert!(error(refused).to_string().ends_with("of size: 7, in the kernel adam"));
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
        let is_refused = || Tensor::<B, 1>::zeros([floats], &device);
        let known = || guarded::<B, _>(&device, is_refused).is_err();
        assert_eq!(guarded::<B, _>(&device, known), Ok(true), "an error that the work knows of");
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
