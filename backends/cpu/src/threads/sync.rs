//! The atomics, locks and threads that `pool.rs` and `work_stealing.rs` are built on. `tests/loom` compiles these two files a
//! second time with the types of loom, which have the same names.

use std::cell;

pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
pub(crate) use std::thread::{Builder, JoinHandle};

/// How often a thread of the pool looks for the next job before it sleeps: some 100 microseconds.
pub(crate) const LOOKS_AWAKE: usize = 4_000;
/// How often a thread looks for something that will happen soon before it lets other threads of the machine go first.
const LOOKS_BEFORE_YIELD: usize = 20_000;

/// Lets some time pass between two looks, of which there were `looks` so far.
pub(crate) fn spin_or_yield(looks: &mut usize) {
    *looks += 1;
    match *looks < LOOKS_BEFORE_YIELD {
        true => std::hint::spin_loop(),
        false => std::thread::yield_now(),
    }
}

/// Declares a thread-local cell.
macro_rules! thread_cell {
    ($(#[$doc:meta])* $name:ident: $type:ty = $value:expr) => {
        thread_local! {
            $(#[$doc])*
            static $name: std::cell::Cell<$type> = const { std::cell::Cell::new($value) };
        }
    };
}
pub(crate) use thread_cell;

/// Shared memory without a lock, whose accesses loom can observe.
pub(crate) struct UnsafeCell<T>(cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(cell::UnsafeCell::new(value))
    }

    /// Calls `read` with a pointer to the value. Nobody may write meanwhile.
    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Calls `write` with a pointer to the value. Nobody else may use it meanwhile.
    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
