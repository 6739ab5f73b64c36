//! Malicious plugins, one for each limit. Each fails with an error that names plugin, call and limit.
//!
//! They are written as WebAssembly text: core modules that are converted into components of a world, or whole components.

mod calls;
mod files;
mod guests;
mod laws;
mod process;
mod shipped;
mod steps;
