//! Offline runs of W&B: `offline-run-TIME-ID/run-ID.wandb`.
//!
//! The file is a log as LevelDB writes it: a header of 7 bytes, then blocks of 32 KiB with records of a CRC-32 of type and content, the
//! length and the type (whole, first, middle, last). The content is a `Record` of protocol buffers. Sources of the format: W&B,
//! `core/internal/transactionlog` and `wandb/proto/wandb_internal.proto`.

use std::fs;
use std::path::Path;

use assay_steps::event_file::{MessageReader, Wire};
use assay_store::{TrackedMetric, TrackedStatus};
use serde_json::Value;

use crate::{ForeignRun, ImportError, key_of};

/// `:W&B`, the magic number 0xBEE1 and the version 0.
const HEADER: &[u8; 7] = b":W&B\xe1\xbe\x00";
/// Bytes of a block; the first one contains the header.
const BLOCK: usize = 32 * 1024;
/// Bytes of the head of a record.
const HEAD: usize = 7;

/// Whether a file has the name of an offline run.
pub(crate) fn is_run_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "wandb")
}

/// Reads a run.
pub(crate) fn read_run(path: &Path) -> Result<ForeignRun, ImportError> {
    let content = fs::read(path).map_err(|error| ImportError::read(path, error))?;
    let (records, cut) = read_records(&content).map_err(|why| ImportError::read(path, why))?;
    let mut run = Recorded::default();
    for (index, record) in records.iter().enumerate() {
        run.read_record(record).ok_or_else(|| ImportError::read(path, format!("record {} is damaged", index + 1)))?;
    }
    let mut omissions = Vec::new();
    if cut {
        omissions.push("the end of the file is missing; the run was imported up to there".to_owned());
    }
    if run.others > 0 {
        omissions.push(format!("{} logged values are not numbers and were left out", run.others));
    }
    let id = if run.id.is_empty() { path.display().to_string() } else { run.id.clone() };
    let (start, end) = (run.start_time.unwrap_or(0), run.metrics.iter().map(|point| point.at).max());
    let mut tags: Vec<(String, String)> =
        run.tags.iter().map(|tag| (format!("wandb.tag.{tag}"), "true".to_owned())).collect();
    tags.push(("wandb.run_id".to_owned(), id.clone()));
    if !run.notes.is_empty() {
        tags.push(("mlflow.note.content".to_owned(), run.notes));
    }
    Ok(ForeignRun {
        key: key_of(&[run.project.as_bytes(), id.as_bytes(), &start.to_le_bytes()]),
        experiment: if run.project.is_empty() { "wandb".to_owned() } else { run.project },
        name: if run.name.is_empty() { id } else { run.name },
        user: run.entity,
        status: if run.exit_code == Some(0) { TrackedStatus::Finished } else { TrackedStatus::Failed },
        start_time: start,
        end_time: end,
        params: run.params,
        tags,
        metrics: run.metrics,
        files: Vec::new(),
        omissions,
    })
}

/// The contents of the records, and whether the last one is incomplete: a run that was killed ends so.
fn read_records(content: &[u8]) -> Result<(Vec<Vec<u8>>, bool), String> {
    if !content.starts_with(HEADER) {
        return Err("it does not begin like a run of W&B".to_owned());
    }
    let (mut records, mut part) = (Vec::new(), None::<Vec<u8>>);
    let mut at = HEADER.len();
    loop {
        let left = BLOCK - at % BLOCK;
        if left < HEAD {
            at += left;
            continue;
        }
        let Some(head) = content.get(at..at + HEAD) else { return Ok((records, at < content.len() || part.is_some())) };
        let sum = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let (length, kind) = (usize::from(u16::from_le_bytes([head[4], head[5]])), head[6]);
        if sum == 0 && length == 0 && kind == 0 {
            // The rest of the block was reserved and never written.
            at += left;
            continue;
        }
        let Some(body) = content.get(at + HEAD..at + HEAD + length) else { return Ok((records, true)) };
        let mut crc = flate2::Crc::new();
        crc.update(&[kind]);
        crc.update(body);
        if crc.sum() != sum || length > left - HEAD {
            return Err(format!("the checksum of the record at byte {at} is wrong"));
        }
        at += HEAD + length;
        match (kind, part.as_mut()) {
            (1, None) => records.push(body.to_vec()),
            (2, None) => part = Some(body.to_vec()),
            (3, Some(part)) => part.extend(body),
            (4, Some(part)) => {
                part.extend(body);
                records.push(std::mem::take(part));
            }
            _ => return Err(format!("the record at byte {at} is out of order")),
        }
        if kind == 4 {
            part = None;
        }
    }
}

/// What the records say so far.
#[derive(Default)]
struct Recorded {
    id: String,
    entity: String,
    project: String,
    name: String,
    notes: String,
    tags: Vec<String>,
    /// Milliseconds since 1970.
    start_time: Option<i64>,
    params: Vec<(String, String)>,
    metrics: Vec<TrackedMetric>,
    exit_code: Option<u64>,
    /// How many logged values are not numbers.
    others: usize,
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

impl Recorded {
    /// `None` if the bytes are not a record.
    fn read_record(&mut self, bytes: &[u8]) -> Option<()> {
        let mut reader = MessageReader::new(bytes);
        while let Some((field, value)) = reader.next_field()? {
            match (field, value) {
                (2, Wire::Bytes(history)) => self.read_history(history)?,
                (5, Wire::Bytes(config)) => self.read_config(config)?,
                (17, Wire::Bytes(run)) => self.read_head(run)?,
                (18, Wire::Bytes(exit)) => self.exit_code = Some(read_exit_code(exit)?),
                _ => {}
            }
        }
        Some(())
    }

    fn read_head(&mut self, bytes: &[u8]) -> Option<()> {
        let mut reader = MessageReader::new(bytes);
        while let Some((field, value)) = reader.next_field()? {
            match (field, value) {
                (1, Wire::Bytes(id)) => self.id = text(id)?,
                (2, Wire::Bytes(entity)) => self.entity = text(entity)?,
                (3, Wire::Bytes(project)) => self.project = text(project)?,
                (4, Wire::Bytes(config)) => self.read_config(config)?,
                (8, Wire::Bytes(name)) => self.name = text(name)?,
                (9, Wire::Bytes(notes)) => self.notes = text(notes)?,
                (10, Wire::Bytes(tag)) => self.tags.push(text(tag)?),
                (17, Wire::Bytes(time)) => self.start_time = Some(read_timestamp(time)?),
                _ => {}
            }
        }
        Some(())
    }

    fn read_config(&mut self, bytes: &[u8]) -> Option<()> {
        for (path, value) in read_items(bytes)?.0 {
            // W&B's own data about the program.
            if path.first().is_some_and(|key| key == "_wandb") {
                continue;
            }
            flatten(&path.join("."), &value, &mut self.params);
        }
        Some(())
    }

    fn read_history(&mut self, bytes: &[u8]) -> Option<()> {
        let (items, step) = read_items(bytes)?;
        let own = |name: &str| items.iter().find(|(path, _)| path == &[name]).map(|(_, value)| value);
        let step = step.or_else(|| own("_step")?.as_i64()).unwrap_or(0);
        let at = own("_timestamp")
            .and_then(Value::as_f64)
            .map_or(self.start_time.unwrap_or(0), |time| (time * 1000.0) as i64);
        for (path, value) in &items {
            if path.first().is_some_and(|key| matches!(key.as_str(), "_step" | "_timestamp" | "_runtime")) {
                continue;
            }
            match number(value) {
                Some(value) => self.metrics.push(TrackedMetric { name: metric_name(path), value, at, step }),
                None => self.others += 1,
            }
        }
        Some(())
    }
}

/// A number, or what W&B writes for values that JSON lacks.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Bool(truth) => Some(f64::from(u8::from(*truth))),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn metric_name(path: &[String]) -> String {
    path.join("/")
}

/// Nested parameters get dotted names.
fn flatten(name: &str, value: &Value, params: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| flatten(&format!("{name}.{key}"), value, params))
        }
        Value::String(text) => params.push((name.to_owned(), text.clone())),
        other => params.push((name.to_owned(), other.to_string())),
    }
}

/// The keys and values of a history or a config, and the step of a history.
type Items = (Vec<(Vec<String>, Value)>, Option<i64>);

fn read_items(bytes: &[u8]) -> Option<Items> {
    let (mut items, mut step) = (Vec::new(), None);
    let mut reader = MessageReader::new(bytes);
    while let Some((field, value)) = reader.next_field()? {
        match (field, value) {
            (1, Wire::Bytes(item)) => items.push(read_item(item)?),
            (2, Wire::Bytes(number)) => {
                let mut reader = MessageReader::new(number);
                while let Some((field, value)) = reader.next_field()? {
                    if let (1, Wire::Number(number)) = (field, value) {
                        step = Some(number.cast_signed());
                    }
                }
            }
            _ => {}
        }
    }
    Some((items, step))
}

fn read_item(bytes: &[u8]) -> Option<(Vec<String>, Value)> {
    let (mut path, mut value) = (Vec::new(), Value::Null);
    let mut reader = MessageReader::new(bytes);
    while let Some((field, wire)) = reader.next_field()? {
        match (field, wire) {
            (1 | 2, Wire::Bytes(key)) => path.push(text(key)?),
            // `NaN` and `Infinity` are written bare, which is not JSON.
            (16, Wire::Bytes(json)) => {
                value = serde_json::from_slice(json).ok().or_else(|| text(json).map(Value::String))?;
            }
            _ => {}
        }
    }
    Some((path, value))
}

fn read_exit_code(bytes: &[u8]) -> Option<u64> {
    let mut reader = MessageReader::new(bytes);
    let mut code = 0;
    while let Some((field, value)) = reader.next_field()? {
        if let (1, Wire::Number(number)) = (field, value) {
            code = number;
        }
    }
    Some(code)
}

/// Milliseconds since 1970 of a `Timestamp`: seconds, and nanoseconds.
fn read_timestamp(bytes: &[u8]) -> Option<i64> {
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    let mut reader = MessageReader::new(bytes);
    while let Some((field, value)) = reader.next_field()? {
        match (field, value) {
            (1, Wire::Number(number)) => seconds = number.cast_signed(),
            (2, Wire::Number(number)) => nanos = number.cast_signed(),
            _ => {}
        }
    }
    seconds.checked_mul(1000)?.checked_add(nanos / 1_000_000)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// An offline run of wandb 0.31.0: `loss` = 1 / (step + 1) and `val: {acc: step / 10}` for the steps 0 to 4, `text: "hello"`, and `loss` =
    /// NaN at step 7, with the config `{lr: 0.1, model: {dim: 32, kind: ten}, tags: [1, 2]}`.
    fn fixture() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/run-k1vren9s.wandb")
    }

    fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Result<ForeignRun, ImportError> {
        let folder = tempfile::tempdir().unwrap();
        let mut content = fs::read(fixture()).unwrap();
        change(&mut content);
        let file = folder.path().join("run-k1vren9s.wandb");
        fs::write(&file, content).unwrap();
        read_run(&file)
    }

    #[test]
    fn a_run_of_the_real_client_is_read() {
        let run = read_run(&fixture()).unwrap();
        assert_eq!((run.name.as_str(), run.experiment.as_str()), ("first try", "thing"));
        assert_eq!(run.status, TrackedStatus::Finished);
        let points = |name: &str| -> Vec<(i64, f64)> {
            let points = run.metrics.iter().filter(|point| point.name == name);
            points.map(|point| (point.step, point.value)).collect()
        };
        let loss = points("loss");
        assert_eq!(loss[..5], [(0, 1.0), (1, 0.5), (2, 1.0 / 3.0), (3, 0.25), (4, 0.2)]);
        assert!(loss[5].0 == 7 && loss[5].1.is_nan() && loss.len() == 6);
        assert_eq!(points("val/acc"), [(0, 0.0), (1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]);
        let params: Vec<(&str, &str)> =
            run.params.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        for param in [("lr", "0.1"), ("model.dim", "32"), ("model.kind", "ten"), ("tags", "[1,2]")] {
            assert!(params.contains(&param), "{params:?}");
        }
        let tags: Vec<&str> = run.tags.iter().map(|(name, _)| name.as_str()).collect();
        assert!(tags.contains(&"wandb.tag.a") && tags.contains(&"wandb.tag.b"), "{tags:?}");
        assert!(run.tags.contains(&("mlflow.note.content".to_owned(), "a note".to_owned())));
        assert_eq!(run.omissions, ["5 logged values are not numbers and were left out"]);
        assert!(run.metrics.iter().all(|point| point.at >= run.start_time));
        assert_eq!(read_run(&fixture()).unwrap().key, run.key);
    }

    #[test]
    fn a_file_that_ends_early_is_imported_as_far_as_it_goes() {
        for missing in [3, 40, 1000] {
            let run = changed(|content| content.truncate(content.len() - missing)).unwrap();
            assert_eq!(run.status, TrackedStatus::Failed, "nobody knows how it ended");
            assert!(run.omissions.iter().any(|omission| omission.contains("the end of the file is missing")));
        }
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let error = changed(|content| content[1000] ^= 1).unwrap_err().to_string();
        assert!(error.contains("checksum"), "{error}");
        let error = changed(|content| content[1] = b'X').unwrap_err().to_string();
        assert!(error.contains("does not begin like a run of W&B"), "{error}");
    }
}
