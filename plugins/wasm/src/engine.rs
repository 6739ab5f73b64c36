//! The engine's settings: every source of differences between runs is disabled.

use std::time::Duration;

use assay_protocol::PluginLimits;
use wasmtime::{Config, Engine};

/// The interval at which the engine's epoch is incremented.
pub(crate) const EPOCH: Duration = Duration::from_millis(50);

/// The maximum number of frames of a traceback.
const FRAMES: usize = 20;

/// Creates the engine, and a thread that increments its epoch until the engine is dropped.
pub(crate) fn start_engine(limits: &PluginLimits) -> wasmtime::Result<Engine> {
    let mut config = Config::new();
    config.consume_fuel(true).epoch_interruption(true);
    config.cranelift_nan_canonicalization(true).relaxed_simd_deterministic(true);
    config.wasm_memory64(false);
    config.max_wasm_stack(usize::try_from(limits.stack).unwrap_or(usize::MAX));
    config.wasm_backtrace_max_frames(std::num::NonZeroUsize::new(FRAMES));
    let engine = Engine::new(&config)?;
    let weak = engine.weak();
    std::thread::spawn(move || {
        while let Some(engine) = weak.upgrade() {
            engine.increment_epoch();
            drop(engine);
            std::thread::sleep(EPOCH);
        }
    });
    Ok(engine)
}
