//! The other end: turns requests into steps and steps into reports.
