//! Catches panics, with their message and position.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Mutex, Once, PoisonError};

/// A panic that was caught.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Panic {
    pub(crate) message: String,
    /// File, line and column, where known.
    pub(crate) place: Option<String>,
}

/// The maximum number of panics that are stored.
const REMEMBERED: usize = 16;

/// The most recent panics of all threads, the newest last. A panic on a compute thread is propagated to the step's
/// thread without running the hook again, so it is found by its message, even if other threads panicked meanwhile.
static LAST: Mutex<Vec<Panic>> = Mutex::new(Vec::new());

/// Runs `f`, and catches a panic. The panic is still printed to standard error first, as usual.
///
/// State that `f` left inconsistent must not be used afterwards; here the process only reports the failure and ends.
pub(crate) fn catch_panic<T>(f: impl FnOnce() -> T) -> Result<T, Panic> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |info| {
            let place = info.location().map(|at| format!("{}:{}:{}", at.file(), at.line(), at.column()));
            let panic = Panic { message: panic_message(info.payload()), place };
            let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
            if last.len() == REMEMBERED {
                last.remove(0);
            }
            last.push(panic);
            drop(last);
            print(info);
        }));
    });
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| {
        let message = panic_message(&*payload);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let found = last.iter().rposition(|last| last.message == message);
        let place = found.and_then(|index| last.remove(index).place);
        Panic { message, place }
    })
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "(no message)".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_with_its_message_and_place() {
        let states = std::hint::black_box(3);
        let panic = catch_panic(|| assert!(states > 4, "{states} states")).unwrap_err();
        assert_eq!(panic.message, "3 states");
        assert!(panic.place.is_some_and(|place| place.contains("panics.rs:")));
        assert_eq!(catch_panic(|| 5), Ok(5));
    }

    #[test]
    fn a_payload_without_text_is_no_obstacle() {
        let panic = catch_panic(|| std::panic::panic_any(17_u8)).unwrap_err();
        assert_eq!(panic.message, "(no message)");
    }
}
