//! Attempts with real processes: the chaos executor misbehaves in every way, and the host must distinguish the cases.

mod classes;
mod supervision;
mod support;
