//! Times that are passed to the core. It never reads a clock.

use serde::{Deserialize, Serialize};

/// A time: milliseconds since 1970, or since any other origin that the driver uses consistently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// The time `ms` milliseconds later, saturating.
    #[must_use]
    pub fn plus(self, ms: u64) -> Self {
        Millis(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this time; 0 if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Millis) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::fmt::Display for Millis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
