//! JSON representations of views that differ from serde's default.

use std::collections::BTreeMap;

use assay_server::{RunStateName, TaskStateName};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

/// A float; it is a string if JSON cannot represent it.
struct Float(f64);

impl Serialize for Float {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() { serializer.serialize_f64(self.0) } else { serializer.collect_str(&self.0) }
    }
}

pub(crate) fn serialize_floats<S: Serializer>(
    values: &BTreeMap<String, f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(values.len()))?;
    for (name, value) in values {
        map.serialize_entry(name, &Float(*value))?;
    }
    map.end()
}

pub(crate) fn float_list<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(Some(values.len()))?;
    for value in values {
        list.serialize_element(&Float(*value))?;
    }
    list.end()
}

pub(crate) fn run_state<S: Serializer>(state: &RunStateName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.name())
}

pub(crate) fn task_state<S: Serializer>(state: &TaskStateName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.name())
}

pub(crate) fn state_counts<S: Serializer>(
    counts: &BTreeMap<TaskStateName, u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(counts.len()))?;
    for (state, count) in counts {
        map.serialize_entry(state.name(), count)?;
    }
    map.end()
}
