//! The emulator finds what it is there to find, and the CUDA driver works on it. Each test runs in a process of its
//! own, in which the vendors' libraries are the emulator.

mod checks;
mod driver;
mod injected;
mod support;
