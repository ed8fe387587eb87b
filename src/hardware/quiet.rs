use std::any::Any;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::{Mutex, MutexGuard};

/// Runs `work` and gives the first line of its panic, if it does, with nothing on stderr.
pub(super) fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let _silence = Silence::begin();
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|panic| first_line(&*panic))
}

/// While one of these lives, panics print nothing. A backend panics in threads of its own, so this
/// is about the whole process.
pub(super) struct Silence(());

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send>;

/// How many silences there are, and the hook that was there before the first.
static SILENCES: Mutex<(usize, Option<Hook>)> = Mutex::new((0, None));

fn silences() -> MutexGuard<'static, (usize, Option<Hook>)> {
    SILENCES.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Silence {
    pub(super) fn begin() -> Self {
        let mut silences = silences();
        if silences.0 == 0 && silences.1.is_none() {
            silences.1 = Some(panic::take_hook());
            panic::set_hook(Box::new(|_| {}));
        }
        silences.0 += 1;
        Self(())
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let mut silences = silences();
        silences.0 -= 1;
        // A thread that panics must not touch the hook; the next silence gives it back.
        if silences.0 == 0
            && !std::thread::panicking()
            && let Some(hook) = silences.1.take()
        {
            panic::set_hook(hook);
        }
    }
}

/// The first line of a panic's message.
pub(super) fn first_line(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.and_then(|text| text.lines().find(|line| !line.trim().is_empty()))
        .map_or_else(|| "it panicked without a message".to_owned(), |line| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_first_line() {
        assert_eq!(quietly(|| 3), Ok(3));
        let line = quietly(|| -> () { panic!("\nno adapter {}\nbacktrace", 7) });
        assert_eq!(line, Err("no adapter 7".to_owned()));
        let line = quietly(|| std::panic::panic_any(5_u8));
        assert_eq!(line, Err("it panicked without a message".to_owned()));
    }

    #[test]
    fn one_silence_within_another_ends_with_the_outer_one() {
        let inner = quietly(|| quietly(|| -> () { panic!("inner") }));
        assert_eq!(inner, Ok(Err("inner".to_owned())));
        assert_eq!(silences().0, 0);
        assert!(silences().1.is_none());
    }
}
