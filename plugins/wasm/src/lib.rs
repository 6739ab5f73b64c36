//! Runs plugins: WebAssembly components in wasmtime, with limits on all resources.
//!
//! `wit/plugin.wit` is the interface. `assay plugin-host` is [`serve_plugin`] on standard input and output: a process that loads one
//! component and answers the calls of `assay-protocol`. The caller starts such a process
//! (`assay_host::PluginProcess`), so that a component that crashes the compiler or the runtime does not harm the caller.
//!
//! Invariants:
//!
//! - A plugin has no clock, no randomness, no files and no network: it imports `assay:plugin/host` or nothing. A step also imports
//!   `assay:plugin/artifacts`, through which it reads the inputs and writes the outputs that its job names.
//! - The same calls to a new instance give the same answers: fuel stops a call, NaNs are canonical, threads are not available.
//! - An answer is checked before it is forwarded: tokens are below the vocabulary, offsets span the tokens, stages end after the current
//!   step.
//! - Only WebAssembly is accepted. Compiled code is never read from a file.
//! - After a trap, an instance answers no further calls.

mod answers;
mod artifacts;
mod build;
mod component;
mod encode;
mod engine;
mod failure;
mod inspect;
mod instance;
mod interface;
mod serve;
mod store;
mod template;

pub use build::{BuildError, Built, SOURCES_SECTION, build_plugin, hash_sources, read_sources_hash};
pub use encode::{EncodeError, encode_component};
pub use inspect::{InspectError, InspectedComponent, inspect_component};
pub use interface::{C_HEADER, PluginWorld, WIT};
pub use serve::{limit_own_memory, serve_plugin};
pub use template::{PluginLanguage, write_template};
