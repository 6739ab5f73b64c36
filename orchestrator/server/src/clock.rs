//! Time for the core: milliseconds since 1970 that never go backwards within a process.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The wall clock at the start, and the monotonic clock from there on: a clock set back during a run moves nothing.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    offset: u64,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        let offset = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        Clock { start: Instant::now(), offset }
    }

    /// Milliseconds since 1970.
    pub fn now(&self) -> u64 {
        self.offset + self.start.elapsed().as_millis() as u64
    }

    /// The instant at which [`Clock::now`] will answer `millis`; now, if that is past.
    pub fn instant(&self, millis: u64) -> Instant {
        self.start + std::time::Duration::from_millis(millis.saturating_sub(self.offset))
    }
}
