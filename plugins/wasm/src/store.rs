//! The host's data of an instance: its use of memory and tables, its log, and the functions that it may call.

use assay_protocol::{PluginLimit, PluginLimits};
use wasmtime::component::Linker;
use wasmtime::{Engine, ResourceLimiter, StoreContextMut};

use crate::artifacts::{StepPorts, add_artifact_functions, report_progress};
use crate::interface::PACKAGE;

/// Units of fuel of a host call, in addition to one for each byte of its texts.
const HOST_CALL_FUEL: u64 = 1000;

/// The maximum number of linear memories and of tables of a component.
const MOST_PARTS: usize = 20;

/// The maximum number of core instances of a component. One of componentize-py 0.25.1 has 38.
const MOST_CORE_INSTANCES: usize = 100;

/// The limit that an instance reached; the error of the call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct LimitReached {
    pub limit: PluginLimit,
    pub message: String,
}

/// Why a call of the host failed for a reason that the plugin did not cause; the error of the call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct HostFailure(pub String);

/// The data of a store.
pub(crate) struct InstanceState {
    pub limits: PluginLimits,
    /// The files and metrics of the running step.
    pub ports: Option<StepPorts>,
    /// Bytes of all linear memories.
    memory: u64,
    /// Level and text of the lines since the last call.
    pub log: Vec<(String, String)>,
    lines: u32,
    bytes: u32,
    dropped: u64,
}

impl InstanceState {
    pub fn new(limits: PluginLimits) -> Self {
        InstanceState { limits, ports: None, memory: 0, log: Vec::new(), lines: 0, bytes: 0, dropped: 0 }
    }

    /// Stores a line of the log, truncated to the limit. Lines beyond the limit are only counted.
    fn keep_line(&mut self, level: String, mut text: String) {
        let left = self.limits.log_bytes.saturating_sub(self.bytes) as usize;
        if self.lines >= self.limits.log_lines || left == 0 {
            self.dropped += 1;
            return;
        }
        text.truncate(text.floor_char_boundary(left));
        self.lines += 1;
        self.bytes += u32::try_from(text.len()).unwrap_or(u32::MAX).max(1);
        let level = if matches!(level.as_str(), "debug" | "info" | "warn" | "error") { level } else { "info".into() };
        self.log.push((level, text));
    }

    /// The log lines since the last call. If lines were dropped, the last line gives their number.
    pub fn drain_log(&mut self) -> Vec<(String, String)> {
        let mut log = std::mem::take(&mut self.log);
        if self.dropped > 0 {
            let (lines, bytes) = (self.limits.log_lines, self.limits.log_bytes);
            let dropped = std::mem::take(&mut self.dropped);
            log.push((
                "warn".into(),
                format!("{dropped} lines were dropped: at most {lines} lines and {bytes} bytes are kept"),
            ));
        }
        log
    }
}

impl ResourceLimiter for InstanceState {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let total = self.memory.saturating_add(desired.saturating_sub(current) as u64);
        if total > self.limits.memory {
            let message = format!("needs {total} bytes of memory; the limit is {}", self.limits.memory);
            return Err(LimitReached { limit: PluginLimit::Memory, message }.into());
        }
        self.memory = total;
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        if desired as u64 > self.limits.table {
            let message = format!("needs a table of {desired} elements; the limit is {}", self.limits.table);
            return Err(LimitReached { limit: PluginLimit::Table, message }.into());
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        MOST_CORE_INSTANCES
    }

    fn tables(&self) -> usize {
        MOST_PARTS
    }

    fn memories(&self) -> usize {
        MOST_PARTS
    }
}

/// Subtracts the cost of a host call from the fuel, which limits the number of host calls.
pub(crate) fn charge_fuel(store: &mut StoreContextMut<'_, InstanceState>, bytes: usize) -> wasmtime::Result<()> {
    let price = HOST_CALL_FUEL + bytes as u64;
    let left = store.get_fuel()?;
    if left < price {
        store.set_fuel(0)?;
        return Err(wasmtime::Trap::OutOfFuel.into());
    }
    store.set_fuel(left - price)
}

/// The functions of `assay:plugin/host` and `assay:plugin/artifacts`.
pub(crate) fn host_functions(engine: &Engine) -> wasmtime::Result<Linker<InstanceState>> {
    let mut linker = Linker::new(engine);
    let mut host = linker.instance(&format!("{PACKAGE}/host@0.1.0"))?;
    host.func_wrap("log", |mut store: StoreContextMut<'_, InstanceState>, (level, text): (String, String)| {
        charge_fuel(&mut store, level.len() + text.len())?;
        store.data_mut().keep_line(level, text);
        Ok(())
    })?;
    // Only the progress of a step is shown. The host itself counts sequences and batches.
    host.func_wrap(
        "progress",
        |mut store: StoreContextMut<'_, InstanceState>, (done, total, unit): (u64, Option<u64>, String)| {
            charge_fuel(&mut store, unit.len())?;
            report_progress(&mut store, done, total, unit)
        },
    )?;
    add_artifact_functions(&mut linker)?;
    Ok(linker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_cut_at_its_limits_and_says_so() {
        let limits = PluginLimits { log_lines: 2, log_bytes: 5, ..PluginLimits::default() };
        let mut state = InstanceState::new(limits.clone());
        ["abc", "über", "c", "d"].iter().for_each(|text| state.keep_line("shout".into(), (*text).into()));
        let note = "2 lines were dropped: at most 2 lines and 5 bytes are kept".to_owned();
        let line = |level: &str, text: &str| (level.to_owned(), text.to_owned());
        assert_eq!(state.drain_log(), [line("info", "abc"), line("info", "ü"), ("warn".into(), note)]);
        assert_eq!(state.drain_log(), []);
    }

    #[test]
    fn all_memories_count_together() {
        let limits = PluginLimits { memory: 100, table: 10, ..PluginLimits::default() };
        let mut state = InstanceState::new(limits);
        assert!(state.memory_growing(0, 60, None).unwrap());
        assert!(!state.memory_growing(60, 61, Some(60)).unwrap(), "a memory does not grow beyond its own maximum");
        let error = state.memory_growing(0, 41, None).unwrap_err();
        assert_eq!(error.downcast_ref::<LimitReached>().unwrap().limit, PluginLimit::Memory);
        assert!(state.memory_growing(0, 40, None).unwrap());
        assert!(state.table_growing(0, 10, None).unwrap());
        let error = state.table_growing(0, 11, None).unwrap_err();
        assert_eq!(error.to_string(), "needs a table of 11 elements; the limit is 10");
    }
}
