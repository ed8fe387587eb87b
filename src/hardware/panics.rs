//! Panics that are errors of a device or of Burn: the table of their texts, and calls that catch them.
//!
//! A panic in a device's own thread reaches the caller without its text, and any panic prints. So the
//! program's hook is asked only for the panics that no call here expects.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;

use fewshot_kernels::CountingAllocator;

/// Meaning of a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Memory that could not be had.
    Memory,
    /// A device that failed otherwise, or takes no more work.
    Device,
    /// An operation without a derivative.
    NoDerivative,
    /// A tensor that cannot become a leaf of a graph.
    NoLeaf,
}

/// Texts by their causes, the first of those in a message counts: the beginning, and the end after a number
/// or none.
const TABLE: [(Cause, &str, &str); 16] = [
    // cubecl-runtime 0.10, server/base.rs, `IoError::BufferTooBig`: more than the largest page of
    // the pools, and what CUDA refused with CUDA_ERROR_OUT_OF_MEMORY (cubecl-cuda, gpu.rs).
    (Cause::Memory, "can't allocate buffer of size: ", ""),
    // cubecl-runtime 0.10, server/base.rs, `LaunchError::OutOfMemory`.
    (Cause::Memory, "An out-of-memory error happened during launch", ""),
    // cudarc 0.19, driver/result.rs, `DriverError`.
    (Cause::Memory, "CUDA_ERROR_OUT_OF_MEMORY", ""),
    // wgpu-core 29, resource.rs, `CreateBufferError::MaxBufferSize`.
    (Cause::Memory, "Buffer size ", " is greater than the maximum buffer size"),
    // wgpu 29, api/device.rs and backend/wgpu_core.rs, `default_error_handler`.
    (Cause::Memory, "wgpu error: Out of Memory", ""),
    // wgpu-core 29, device/mod.rs, `DeviceError::OutOfMemory`.
    (Cause::Memory, "Not enough memory left.", ""),
    // Rust, alloc/raw_vec and alloc/collections: more bytes than an address can count; `Vec` and
    // `TryReserveError`.
    (Cause::Memory, "capacity overflow", ""),
    (Cause::Memory, "memory allocation failed because", ""),
    // burn-backend 0.21, backend/base.rs, `ExecutionError`.
    (Cause::Device, "An error happened during execution", ""),
    // cubecl-runtime 0.10, server/base.rs, `ServerError::ServerUnhealthy`.
    (Cause::Device, "The server is in an invalid state", ""),
    // cubecl-common 0.10, device/handle: the device's thread panicked.
    (Cause::Device, "CallError", ""),
    // wgpu 29, backend/wgpu_core.rs, `default_error_handler`, and wgpu-core 29, device/mod.rs.
    (Cause::Device, "wgpu error", ""),
    (Cause::Device, "Parent device is lost", ""),
    // cudarc 0.19, driver/result.rs, `DriverError`.
    (Cause::Device, "CUDA_ERROR_", ""),
    // burn-autodiff 0.21, ops, and tensor.rs.
    (Cause::NoDerivative, "Can't differentiate ", ""),
    (Cause::NoLeaf, "Can't convert a non leaf tensor", ""),
];

/// A text of the table in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finding<'t> {
    pub(crate) cause: Cause,
    /// The line that has the text.
    pub(crate) line: &'t str,
    /// The line after the beginning of the text.
    pub(crate) rest: &'t str,
}

impl Finding<'_> {
    /// The number after the beginning of the text.
    pub(crate) fn number(&self) -> Option<u64> {
        digits(self.rest).0.parse().ok()
    }
}

/// The digits that a line begins with, and the rest.
fn digits(line: &str) -> (&str, &str) {
    line.split_at(line.find(|c: char| !c.is_ascii_digit()).unwrap_or(line.len()))
}

/// The first text of the table that a message of Burn, CubeCL, wgpu, CUDA or Rust has.
pub(crate) fn find(message: &str) -> Option<Finding<'_>> {
    TABLE.iter().find_map(|&(cause, beginning, end)| {
        message.lines().find_map(|line| {
            let (_, rest) = line.split_once(beginning)?;
            digits(rest).1.starts_with(end).then(|| Finding { cause, line: line.trim(), rest })
        })
    })
}

/// Panics that a call takes for errors. Every other one is a mistake of the program, and goes on.
#[derive(Clone, Copy)]
pub(crate) enum Expected {
    All,
    Of(&'static [Cause]),
}

impl Expected {
    fn includes(self, message: &str) -> bool {
        match self {
            Self::All => true,
            Self::Of(causes) => {
                find(message).is_some_and(|finding| causes.contains(&finding.cause))
            }
        }
    }
}

/// End of a piece of work.
pub(crate) struct Caught<T> {
    /// Its value, or the message of its panic.
    pub result: Result<T, String>,
    /// Messages of panics in the threads of devices meanwhile.
    pub device_messages: Vec<String>,
    /// Bytes in use when it panicked, if the program's allocator counts.
    pub in_use: Option<u64>,
    /// `true` if a call within it has [reported](report) that a device failed for good.
    pub is_reported: bool,
}

/// A call of [`caught`] under way.
struct Call {
    expected: Expected,
    /// The number of its listener.
    listener: u64,
    is_reported: bool,
}

/// A call that hears the panics of other threads.
struct Listener {
    number: u64,
    /// Names of the threads.
    threads: Vec<String>,
    messages: Vec<String>,
}

static LISTENERS: Mutex<Vec<Listener>> = Mutex::new(Vec::new());

/// The number of the next listener.
static NEXT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The calls of `caught` on this thread, the outermost first.
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
    /// Bytes that the program had in use when this thread last panicked within such a call.
    static IN_USE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Runs `work` and catches its panic without a word on stderr, if it is expected or follows one in these
/// threads. Panics of these threads are kept; those of any other thread go to the program's hook.
pub(crate) fn caught<T>(
    threads: Vec<String>,
    expected: Expected,
    work: impl FnOnce() -> T,
) -> Caught<T> {
    install();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    listeners().push(Listener { number, threads, messages: Vec::new() });
    let call = Call { expected, listener: number, is_reported: false };
    CALLS.with_borrow_mut(|calls| calls.push(call));
    IN_USE.set(None);
    // What `work` borrows is not looked at again by us; its owner gets an error, not a value.
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    let call = CALLS.with_borrow_mut(Vec::pop);
    let device_messages = {
        let mut listeners = listeners();
        let place = listeners.iter().position(|listener| listener.number == number);
        place.map(|place| listeners.swap_remove(place).messages).unwrap_or_default()
    };
    let result = result.map_err(|payload| {
        let message = message(&*payload);
        if device_messages.is_empty() && !expected.includes(&message) {
            panic::resume_unwind(payload);
        }
        message
    });
    // A panic that went on is still to be caught, by a call around this one.
    let in_use = IN_USE.take().filter(|_| result.is_err());
    let is_reported = call.is_some_and(|call| call.is_reported);
    Caught { result, device_messages, in_use, is_reported }
}

/// Tells the calls of [`caught`] on this thread that what their devices said so far has become an error, which `work`
/// knows of; and that the devices stay unusable, if the failure is `for_good`.
pub(crate) fn report(for_good: bool) {
    CALLS.with_borrow_mut(|calls| {
        for call in calls.iter_mut() {
            call.is_reported |= for_good;
        }
        let own = |listener: &&mut Listener| calls.iter().any(|of| of.listener == listener.number);
        listeners().iter_mut().filter(own).for_each(|listener| listener.messages.clear());
    });
}

/// `true` once a thread of a device has panicked since this thread began the work that [`caught`] runs. The
/// place that reads the device's results need not hear of it.
pub(crate) fn device_has_failed() -> bool {
    let innermost = CALLS.with_borrow(|calls| calls.last().map(|call| call.listener));
    let failed = |own: &Listener| innermost == Some(own.number) && !own.messages.is_empty();
    listeners().iter().any(failed)
}

/// Runs `work`, and gives the first line of its panic.
pub(super) fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let result = caught(Vec::new(), Expected::All, work).result;
    result.map_err(|message| first_line(&message).unwrap_or(&message).to_owned())
}

/// Ends of lines that say no more than that there was an error.
const HEADINGS: [&str; 6] = [
    "Caused by:",
    "An error happened during execution",
    "The server is in an invalid state",
    "A compilation error happened during launch",
    "An error caused the compilation to fail",
    "[Compilation Error]",
];

/// The first line that says more than that there was an error.
pub(super) fn first_line(message: &str) -> Option<&str> {
    let is_heading =
        |line: &&str| line.is_empty() || HEADINGS.iter().any(|heading| line.ends_with(heading));
    message.lines().map(str::trim).find(|line| !is_heading(line))
}

/// Puts our hook before the program's, once and for good: to take it out again, a thread would
/// have to wait for all that panic, and these wait for the list of listeners.
fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !keeps(info) {
                previous(info);
            }
        }));
    });
}

fn listeners() -> MutexGuard<'static, Vec<Listener>> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the message of an expected panic, whose hook need not be asked.
fn keeps(info: &PanicHookInfo<'_>) -> bool {
    let message = message(info.payload());
    let expected = CALLS.with_borrow(|calls| {
        let expected = calls.iter().any(|call| call.expected.includes(&message));
        (!calls.is_empty()).then_some(expected)
    });
    if let Some(expected) = expected {
        let is_ours = expected || listeners().iter().any(|listener| !listener.messages.is_empty());
        if is_ours {
            IN_USE.set(CountingAllocator::in_use());
        }
        return is_ours;
    }
    let thread = thread::current();
    let is_own = |name: &String| Some(name.as_str()) == thread.name();
    let mut is_heard = false;
    for listener in listeners().iter_mut().filter(|of| of.threads.iter().any(is_own)) {
        listener.messages.push(message.clone());
        is_heard = true;
    }
    is_heard
}

/// The text of a panic.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    let owned = payload.downcast_ref::<String>().cloned();
    let text = owned.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    static PRINTED: AtomicUsize = AtomicUsize::new(0);

    fn panics_in_thread(name: &str, message: &'static str) {
        let thread = thread::Builder::new().name(name.to_owned());
        thread.spawn(move || panic!("{message}")).unwrap().join().unwrap_err();
    }

    fn device() -> Vec<String> {
        vec!["device".to_owned()]
    }

    /// Runs `test` behind a hook that counts. It stays below ours, as a program's would.
    fn counting(test: impl FnOnce()) {
        static COUNTS: Once = Once::new();
        COUNTS.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                if !keeps(info) {
                    PRINTED.fetch_add(1, SeqCst);
                    before(info);
                }
            }));
        });
        PRINTED.store(0, SeqCst);
        test();
    }

    #[test]
    fn a_panic_is_returned_and_the_programs_hook_hears_only_the_others() {
        counting(|| {
            let caught = caught(device(), Expected::All, || {
                panics_in_thread("device", "no room");
                panics_in_thread("stranger", "something else");
                panic!("{} was wrong", "this");
            });
            assert_eq!(caught.result, Err::<(), _>("this was wrong".to_owned()));
            assert_eq!(caught.device_messages, ["no room"]);
            assert_eq!(PRINTED.load(SeqCst), 1);
            panics_in_thread("device", "after the end");
            assert_eq!(PRINTED.load(SeqCst), 2, "the program hears it");
        });
    }

    #[test]
    fn work_may_wait_within_work_and_in_several_threads() {
        let all = |message: &'static str| {
            caught(Vec::new(), Expected::All, || -> u8 { panic!("{message}") })
        };
        counting(|| {
            let outer = caught(Vec::new(), Expected::All, || {
                let inner = all("inner").result;
                let other =
                    thread::scope(|scope| scope.spawn(|| all("other").result).join().unwrap());
                (inner, other)
            });
            let messages = outer.result.unwrap();
            assert_eq!(messages, (Err("inner".to_owned()), Err("other".to_owned())));
            assert_eq!(caught(Vec::new(), Expected::All, || 7).result, Ok(7));
            // What the inner call does not expect is the outer's.
            let alone = all("no memory");
            let through = caught(Vec::new(), Expected::All, || {
                caught(Vec::new(), Expected::Of(&[]), || -> u8 { panic!("no memory") }).result
            });
            assert_eq!(through.result, Err("no memory".to_owned()));
            assert_eq!(through.in_use.is_some(), alone.in_use.is_some());
            assert_eq!(PRINTED.load(SeqCst), 0);
        });
    }

    #[test]
    fn a_panic_that_no_device_had_a_part_in_stays_one() {
        let expected = Expected::Of(&[Cause::Device]);
        let mistake = |message: &'static str| {
            panic::catch_unwind(AssertUnwindSafe(|| {
                caught(device(), expected, || -> u8 { panic!("{message}") }).result
            }))
        };
        counting(|| {
            let message_of_loss = "Parent device is lost";
            assert_eq!(mistake(message_of_loss).unwrap(), Err(message_of_loss.to_owned()));
            assert_eq!(PRINTED.load(SeqCst), 0);
            let payload = mistake("index out of bounds").unwrap_err();
            assert_eq!(message(&*payload), "index out of bounds");
            assert_eq!(PRINTED.load(SeqCst), 1, "the program hears its own mistake");
            let followed = caught(device(), expected, || -> u8 {
                panics_in_thread("device", "no kernel");
                assert!(device_has_failed());
                panic!("nobody answers")
            });
            assert_eq!(followed.result, Err("nobody answers".to_owned()));
            let end = (followed.device_messages, PRINTED.load(SeqCst), device_has_failed());
            assert_eq!(end, (vec!["no kernel".to_owned()], 1, false));
        });
    }

    #[test]
    fn failures_that_became_errors_within_are_not_heard_again() {
        let messages = |message: &'static str| {
            caught(device(), Expected::All, || panics_in_thread("device", message)).device_messages
        };
        counting(|| {
            let outer = caught(device(), Expected::All, || {
                let inner = messages("no room");
                report(false);
                panics_in_thread("device", "no kernel");
                inner
            });
            assert_eq!(outer.device_messages, ["no kernel"]);
            assert_eq!((outer.result, outer.is_reported), (Ok(vec!["no room".to_owned()]), false));
            let outer = caught(device(), Expected::All, || {
                report(true);
                messages("lost").len()
            });
            assert_eq!((outer.result, outer.is_reported), (Ok(1), true));
            assert!(!caught(device(), Expected::All, || messages("again")).is_reported);
        });
    }

    #[test]
    fn messages_have_their_causes() {
        use Cause::{Device, Memory, NoDerivative};
        let unwrapped = "called `Result::unwrap()` on an `Err` value: ";
        let refused =
            format!("{unwrapped}can't allocate buffer of size: 4398046511104\nNo backtrace");
        let closed = format!("{unwrapped}CallError");
        let messages = [
            (refused.as_str(), Some(Memory), Some(4398046511104)),
            // Burn's `ExecutionError` around CubeCL's `ServerUnhealthy`.
            (
                "An error happened during execution\nCaused by:\n  The server is in an invalid \
                 state\nCaused by:\n  [can't allocate buffer of size: 8192\n   0: main]",
                Some(Memory),
                Some(8192),
            ),
            ("An out-of-memory error happened during launch\nCaused by:\n  x", Some(Memory), None),
            ("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")", Some(Memory), None),
            (
                "wgpu error: Validation Error\n\nCaused by:\n  In Device::create_buffer\n    \
                 Buffer size 2147483652 is greater than the maximum buffer size (2147483648)\n",
                Some(Memory),
                Some(2147483652),
            ),
            ("wgpu error: Out of Memory\n", Some(Memory), None),
            ("  In Queue::submit\n    Not enough memory left.", Some(Memory), None),
            ("capacity overflow", Some(Memory), None),
            ("memory allocation failed because the capacity is too large", Some(Memory), None),
            (closed.as_str(), Some(Device), None),
            ("the device answers: An error happened during execution\n  x", Some(Device), None),
            ("wgpu error: Validation Error", Some(Device), None),
            ("Parent device is lost", Some(Device), None),
            ("DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, \"an address\")", Some(Device), None),
            ("Can't differentiate max pool2d backward.", Some(NoDerivative), None),
            ("", None, None),
            ("no episodes", None, None),
            ("index out of bounds: the len is 3 but the index is 5", None, None),
            ("Buffer size 12 is not a multiple of 4", None, None),
            ("couldn't find resource for that handle: no memory page\nNo backtrace", None, None),
        ];
        for (message, cause, number) in messages {
            let finding = find(message);
            assert_eq!(finding.map(|finding| finding.cause), cause, "{message}");
            assert_eq!(finding.and_then(|finding| finding.number()), number, "{message}");
            let is_line =
                |finding: Finding| message.lines().any(|line| line.trim() == finding.line);
            assert!(finding.is_none_or(is_line), "{message}: {finding:?}");
        }
    }

    #[test]
    fn the_reason_is_the_first_line_that_tells_something() {
        let text =
            "An error happened during execution\nCaused by:\n  Parent device is lost\n  0: x";
        assert_eq!(first_line(text), Some("Parent device is lost"));
        let text = "Error while reading data: An error happened during execution\nCaused by:\n  A compilation \
                    error happened during launch\nCaused by:\n  An error caused the compilation to fail\n\
                    Caused by:\n  [Compilation Error] \n    program(1): error: x";
        assert_eq!(first_line(text), Some("program(1): error: x"));
        assert_eq!(first_line("Caused by:\n"), None);
        let line = quietly(|| -> () { panic!("\nno adapter {}\nbacktrace", 7) });
        assert_eq!(line, Err("no adapter 7".to_owned()));
    }
}
