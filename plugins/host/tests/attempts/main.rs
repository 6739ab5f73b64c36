//! Attempts at real processes: the chaos executor misbehaves in every way, and the host has to tell each from the others.

mod classes;
mod supervision;
mod support;
