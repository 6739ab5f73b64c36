//! Spawns, greets, supervises, times out and kills executors.
