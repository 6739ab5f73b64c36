//! The emulator finds the intended problems, and the drivers of both vendors work on it. Each test runs in a separate process,
//! with the emulator instead of the vendors' libraries.

mod checks;
mod driver;
mod injected;
mod matrices;
mod products;
mod rocm;
mod support;
