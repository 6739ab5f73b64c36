//! Converts rows to values and back. A value that cannot be decoded is an error, never a default.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use assay_core::{Epoch, RunId, TaskIx};
use assay_schema::{attempt, log, task};
use assay_server::{RunStateName, TaskStateName};
use assay_spec::{Output, Outputs};
use serde_json::Value;

use crate::{AttemptRef, AttemptView, FailureView, LogView, OutputView, StoreError, TaskView};

/// Milliseconds since 1970.
pub(crate) fn now_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Converts a time or a count for SQLite.
pub(crate) fn to_signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The reverse of [`to_signed`].
pub(crate) fn to_unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub(crate) fn task_ix(number: i64) -> Result<TaskIx, StoreError> {
    let small =
        u32::try_from(number).map_err(|_| StoreError::damaged(format!("the store has a task number {number}")))?;
    Ok(TaskIx(small))
}

pub(crate) fn to_epoch(number: i64) -> Result<Epoch, StoreError> {
    let small =
        u32::try_from(number).map_err(|_| StoreError::damaged(format!("the store has an attempt number {number}")))?;
    Ok(Epoch(small))
}

pub(crate) fn attempt_ref(run: i64, ix: i64, number: i64) -> Result<AttemptRef, StoreError> {
    Ok(AttemptRef { run: RunId(run), ix: task_ix(ix)?, epoch: to_epoch(number)? })
}

pub(crate) fn run_state(name: &str) -> Result<RunStateName, StoreError> {
    RunStateName::from_name(name)
        .ok_or_else(|| StoreError::damaged(format!("the store has a run in the state `{name}`")))
}

pub(crate) fn task_state(name: &str) -> Result<TaskStateName, StoreError> {
    TaskStateName::from_name(name)
        .ok_or_else(|| StoreError::damaged(format!("the store has a task in the state `{name}`")))
}

/// Converts a float to JSON; a float that JSON cannot represent becomes a string.
pub(crate) fn float_to_json(value: f64) -> Value {
    serde_json::Number::from_f64(value).map_or_else(|| Value::String(value.to_string()), Value::Number)
}

pub(crate) fn float_of_json(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

pub(crate) fn floats_to_json(values: &BTreeMap<String, f64>) -> Value {
    Value::Object(values.iter().map(|(name, value)| (name.clone(), float_to_json(*value))).collect())
}

pub(crate) fn floats_of_json(value: Option<&Value>) -> Result<BTreeMap<String, f64>, StoreError> {
    let Some(value) = value else { return Ok(BTreeMap::new()) };
    let object =
        value.as_object().ok_or_else(|| StoreError::damaged("the store has metrics that are not an object"))?;
    let one = |(name, value): (&String, &Value)| {
        let value = float_of_json(value).ok_or_else(|| {
            StoreError::damaged(format!("the store has `{value}` as the value of the metric `{name}`"))
        })?;
        Ok((name.clone(), value))
    };
    object.iter().map(one).collect()
}

/// Decodes JSON that this program wrote.
pub(crate) fn from_json<T: serde::de::DeserializeOwned>(what: &str, value: &Value) -> Result<T, StoreError> {
    T::deserialize(value)
        .map_err(|error| StoreError::damaged(format!("the store has {what} that cannot be read: {error}")))
}

pub(crate) fn to_json<T: serde::Serialize>(what: &str, value: &T) -> Result<Value, StoreError> {
    serde_json::to_value(value).map_err(|error| StoreError::damaged(format!("cannot write {what} as JSON: {error}")))
}

pub(crate) fn parse_outputs(value: Option<&Value>) -> Result<Outputs, StoreError> {
    value.map_or_else(|| Ok(Outputs::new()), |value| from_json("outputs", value))
}

fn output_view(output: Output) -> OutputView {
    match output {
        Output::Artifact(artifact) => {
            OutputView::Artifact { hash: artifact.hash, name: artifact.name, bytes: artifact.bytes }
        }
        Output::Value(value) => OutputView::Value { value },
    }
}

pub(crate) fn source_attempt(row: &task::Model) -> Result<Option<AttemptRef>, StoreError> {
    match (row.source_run, row.source_ix, row.source_epoch) {
        (Some(run), Some(ix), Some(epoch)) => attempt_ref(run, ix, epoch).map(Some),
        _ => Ok(None),
    }
}

pub(crate) fn task_view(row: task::Model) -> Result<TaskView, StoreError> {
    let source = source_attempt(&row)?;
    let needs: Vec<u32> = from_json("needs", &row.needs)?;
    Ok(TaskView {
        run: RunId(row.run),
        ix: task_ix(row.ix)?,
        address: row.address,
        cell: row.cell,
        job: row.job,
        kind: row.kind,
        matrix: from_json("a matrix", &row.matrix)?,
        replicate: row.replicate.and_then(|n| u32::try_from(n).ok()),
        needs: needs.into_iter().map(TaskIx).collect(),
        each: row.each_of.map(task_ix).transpose()?,
        state: task_state(&row.state)?,
        detail: row.detail,
        config: row.config,
        cache_key: row.cache_key,
        outputs: parse_outputs(row.outputs.as_ref())?
            .into_iter()
            .map(|(name, output)| (name, output_view(output)))
            .collect(),
        metrics: floats_of_json(row.metrics.as_ref())?,
        source,
        attempts: u32::try_from(row.attempts).unwrap_or(0),
        started_at: row.started_at.map(to_unsigned),
        ended_at: row.ended_at.map(to_unsigned),
    })
}

pub(crate) fn attempt_view(row: attempt::Model) -> Result<AttemptView, StoreError> {
    let failure = row.failure_class.map(|class| FailureView {
        class,
        message: row.failure_message.unwrap_or_default(),
        hint: row.failure_hint,
    });
    Ok(AttemptView {
        epoch: to_epoch(row.epoch)?,
        worker: row.worker,
        backend: row.backend,
        executor: row.executor,
        failure,
        began_at: to_unsigned(row.began_at),
        ended_at: row.ended_at.map(to_unsigned),
    })
}

pub(crate) fn log_view(row: log::Model) -> Result<LogView, StoreError> {
    Ok(LogView {
        seq: to_unsigned(row.seq),
        epoch: to_epoch(row.epoch)?,
        at: to_unsigned(row.at),
        level: row.level,
        text: row.text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_float_survives_the_json_of_the_store() {
        let odd = [0.1, -0.0, 5.0, 1e300, f64::MIN_POSITIVE / 3.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        let values: BTreeMap<String, f64> = odd.iter().enumerate().map(|(i, v)| (i.to_string(), *v)).collect();
        let text = floats_to_json(&values).to_string();
        let back = floats_of_json(Some(&serde_json::from_str(&text).unwrap())).unwrap();
        for (name, value) in &values {
            assert!(back[name].to_bits() == value.to_bits() || back[name].is_nan() && value.is_nan(), "{text}");
        }
    }

    #[test]
    fn nonsense_is_an_error_that_quotes_it() {
        let message = |error: StoreError| error.message().to_owned();
        assert_eq!(message(run_state("dancing").unwrap_err()), "the store has a run in the state `dancing`");
        assert_eq!(message(task_ix(-1).unwrap_err()), "the store has a task number -1");
        let metrics = serde_json::json!({"loss": []});
        let error = floats_of_json(Some(&metrics)).unwrap_err();
        assert_eq!(message(error), "the store has `[]` as the value of the metric `loss`");
    }
}
