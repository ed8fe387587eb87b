use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;

use fewshot_kernels::CountingAllocator;

/// What threads said when they panicked.
struct Listener {
    number: u64,
    threads: Threads,
    heard: Vec<String>,
}

/// Which threads, beside the one that calls.
pub(crate) enum Threads {
    /// All of the process, for work whose threads have no names that are known.
    All,
    /// Those with one of these names.
    Named(Vec<String>),
}

impl Threads {
    /// None but the one that calls.
    pub(crate) fn none() -> Self {
        Self::Named(Vec::new())
    }

    fn include(&self, thread: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|name| Some(name.as_str()) == thread),
        }
    }
}

/// Who waits for panics. Rust has one hook for the whole process: ours goes before the program's,
/// which hears everything else.
static LISTENERS: Mutex<Vec<Listener>> = Mutex::new(Vec::new());

/// The number of the next listener.
static NEXT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The calls of `caught` on this thread, the outermost first: how each tells a device's panics from
    /// the program's own, and the number of its listener.
    static CALLS: RefCell<Vec<(OfDevice, u64)>> = const { RefCell::new(Vec::new()) };
    /// Bytes that the program had in use when this thread last panicked within such a call.
    static IN_USE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Whether the text of a panic is that of a device.
pub(crate) type OfDevice = fn(&str) -> bool;

/// Takes every panic for a device's.
pub(super) const ANY: OfDevice = |_| true;

/// How a piece of work ended.
pub(crate) struct Caught<T> {
    /// What it returned, or what it said when it panicked.
    pub result: Result<T, String>,
    /// What threads of the given names said when they panicked meanwhile.
    pub elsewhere: Vec<String>,
    /// Bytes in use when it panicked, if the program's allocator counts.
    pub in_use: Option<u64>,
}

/// Runs `work` and gives the first line of its panic, or of what it says went wrong; meanwhile no
/// thread's panic prints anything.
pub(super) fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let result = caught(Threads::All, ANY, work).result;
    result.map_err(|text| first_line(&text).unwrap_or(&text).to_owned())
}

/// While one of these lives, no thread's panic prints anything.
pub(super) struct Silence(u64);

impl Silence {
    pub(super) fn begin() -> Self {
        Self(start(Threads::All))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        stop(self.0);
    }
}

/// The first line that says more than that there was an error.
pub(super) fn first_line(text: &str) -> Option<&str> {
    let headings = [
        "",
        "Caused by:",
        "An error happened during execution",
        "The server is in an invalid state",
    ];
    text.lines().map(str::trim).find(|line| !headings.contains(line))
}

/// Runs `work` and catches its panic without a word on stderr. Panics in these threads are kept
/// likewise; those of any other thread go to the program's hook. So does one of `work` that neither
/// says what a device says nor follows one in these threads: it is the program's own, and goes on.
pub(crate) fn caught<T>(
    threads: Threads,
    of_device: OfDevice,
    work: impl FnOnce() -> T,
) -> Caught<T> {
    let number = start(threads);
    CALLS.with_borrow_mut(|calls| calls.push((of_device, number)));
    IN_USE.set(None);
    // What `work` borrows is not looked at again by us; its owner gets an error, not a value.
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    CALLS.with_borrow_mut(Vec::pop);
    let elsewhere = stop(number);
    let result = result.map_err(|payload| {
        let text = text(&*payload);
        if elsewhere.is_empty() && !of_device(&text) {
            panic::resume_unwind(payload);
        }
        text
    });
    // A panic that went on is still to be caught, by a call around this one.
    let in_use = IN_USE.take().filter(|_| result.is_err());
    Caught { result, elsewhere, in_use }
}

/// Whether a thread of a device has panicked since this thread began the work that [`caught`] runs: it
/// need not be heard of where its results are read.
pub(crate) fn device_has_failed() -> bool {
    let innermost = CALLS.with_borrow(|calls| calls.last().map(|(_, number)| *number));
    innermost.is_some_and(|number| {
        lock().iter().any(|own| own.number == number && !own.heard.is_empty())
    })
}

fn start(threads: Threads) -> u64 {
    install();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    lock().push(Listener { number, threads, heard: Vec::new() });
    number
}

fn stop(number: u64) -> Vec<String> {
    let mut listeners = lock();
    let place = listeners.iter().position(|listener| listener.number == number);
    place.map(|place| listeners.swap_remove(place).heard).unwrap_or_default()
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

fn lock() -> MutexGuard<'static, Vec<Listener>> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether somebody waits for this panic.
fn keeps(info: &PanicHookInfo<'_>) -> bool {
    let words = text(info.payload());
    let within = CALLS.with_borrow(|calls| {
        (!calls.is_empty()).then(|| calls.iter().any(|(of_device, _)| of_device(&words)))
    });
    if let Some(of_device) = within {
        let heard = || lock().iter().any(|listener| !listener.heard.is_empty());
        if !of_device && !heard() {
            return false;
        }
        IN_USE.set(CountingAllocator::in_use());
        return true;
    }
    let thread = thread::current();
    let mut listeners = lock();
    let named = |listener: &&mut Listener| listener.threads.include(thread.name());
    let waiting = listeners.iter_mut().filter(named);
    waiting.map(|listener| listener.heard.push(words.clone())).count() > 0
}

fn text(payload: &(dyn Any + Send)) -> String {
    let owned = payload.downcast_ref::<String>().cloned();
    let text = owned.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    static TOLD: AtomicUsize = AtomicUsize::new(0);

    fn panics_in_thread(name: &str, message: &'static str) {
        let thread = thread::Builder::new().name(name.to_owned());
        thread.spawn(move || panic!("{message}")).unwrap().join().unwrap_err();
    }

    /// Runs `test` behind a hook that counts. It stays below ours, as a program's would.
    fn counting(test: impl FnOnce()) {
        static COUNTS: Once = Once::new();
        COUNTS.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                if !keeps(info) {
                    TOLD.fetch_add(1, SeqCst);
                    before(info);
                }
            }));
        });
        TOLD.store(0, SeqCst);
        test();
    }

    #[test]
    fn a_panic_is_returned_and_the_programs_hook_hears_only_the_others() {
        counting(|| {
            let caught = caught(Threads::Named(vec!["device".to_owned()]), ANY, || {
                panics_in_thread("device", "no room");
                panics_in_thread("stranger", "something else");
                panic!("{} was wrong", "this");
            });
            assert_eq!(caught.result, Err::<(), _>("this was wrong".to_owned()));
            assert_eq!(caught.elsewhere, ["no room"]);
            assert_eq!(TOLD.load(SeqCst), 1);
            panics_in_thread("device", "after the end");
            assert_eq!(TOLD.load(SeqCst), 2, "the program hears it");
        });
    }

    #[test]
    fn work_may_wait_within_work_and_in_several_threads() {
        counting(|| {
            let outer = caught(Threads::none(), ANY, || {
                let inner = caught(Threads::none(), ANY, || -> u8 { panic!("inner") });
                let beside = thread::scope(|scope| {
                    let thread =
                        || caught(Threads::none(), ANY, || -> u8 { panic!("beside") }).result;
                    scope.spawn(thread).join().unwrap()
                });
                (inner.result, beside)
            });
            let said = outer.result.unwrap();
            assert_eq!(said, (Err("inner".to_owned()), Err("beside".to_owned())));
            assert_eq!(caught(Threads::none(), ANY, || 7).result, Ok(7));
            // What the inner call is not about is the outer's.
            let alone = caught(Threads::none(), ANY, || -> u8 { panic!("no memory") });
            let through = caught(Threads::none(), ANY, || {
                caught(Threads::none(), |_| false, || -> u8 { panic!("no memory") }).result
            });
            assert_eq!(through.result, Err("no memory".to_owned()));
            assert_eq!(through.in_use.is_some(), alone.in_use.is_some());
            assert_eq!(TOLD.load(SeqCst), 0);
        });
    }

    #[test]
    fn a_panic_that_no_device_had_a_part_in_stays_one() {
        let of_device: OfDevice = |text| text == "device lost";
        let threads = || Threads::Named(vec!["device".to_owned()]);
        let mistake = |message: &'static str| {
            panic::catch_unwind(AssertUnwindSafe(|| {
                caught(threads(), of_device, || -> u8 { panic!("{message}") }).result
            }))
        };
        counting(|| {
            assert_eq!(mistake("device lost").unwrap(), Err("device lost".to_owned()));
            assert_eq!(TOLD.load(SeqCst), 0);
            assert_eq!(text(&*mistake("index out of bounds").unwrap_err()), "index out of bounds");
            assert_eq!(TOLD.load(SeqCst), 1, "the program hears its own mistake");
            let followed = caught(threads(), of_device, || -> u8 {
                panics_in_thread("device", "no kernel");
                panic!("nobody answers")
            });
            assert_eq!(followed.result, Err("nobody answers".to_owned()));
            assert_eq!((followed.elsewhere, TOLD.load(SeqCst)), (vec!["no kernel".to_owned()], 1));
        });
    }

    #[test]
    fn in_a_silence_no_thread_is_heard() {
        counting(|| {
            let silence = Silence::begin();
            panics_in_thread("stranger", "something");
            let line = quietly(|| -> () { panic!("\nno adapter {}\nbacktrace", 7) });
            assert_eq!(line, Err("no adapter 7".to_owned()));
            assert_eq!(TOLD.load(SeqCst), 0);
            drop(silence);
            panics_in_thread("stranger", "something");
            assert_eq!(TOLD.load(SeqCst), 1);
        });
    }
}
