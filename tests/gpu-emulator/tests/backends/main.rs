//! Results, resource use and device failures of both GPU backends on the emulator. Each test runs in a separate process,
//! with the emulator instead of the vendors' libraries.

mod conformance;
mod counting;
mod families;
mod gelu;
mod graph_cache;
mod memory;
mod optimizer;
