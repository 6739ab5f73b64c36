//! Plugins that mean harm, one for each limit. Each costs an error that names plugin, call and limit.
//!
//! They are written as WebAssembly text: core modules that are made components of a world, or whole components.

mod calls;
mod files;
mod guests;
mod laws;
mod process;
mod shipped;
