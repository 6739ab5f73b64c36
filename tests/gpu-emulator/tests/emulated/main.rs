//! The emulator finds what it is there to find, and the drivers of both vendors work on it. Each test runs in a process of its
//! own, in which the vendors' libraries are the emulator.

mod checks;
mod driver;
mod injected;
mod matrices;
mod products;
mod rocm;
mod support;
