//! What both GPU backends compute, and how they use and lose their devices, on the emulator. Each test runs in a process of
//! its own, in which the vendors' libraries are the emulator.

mod conformance;
mod counting;
mod families;
mod gelu;
mod graph_cache;
mod memory;
mod optimizer;
