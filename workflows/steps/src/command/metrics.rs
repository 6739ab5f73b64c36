//! The metrics of a program: JSON lines in the file `$ASSAY_METRICS`, and `NAME=VALUE` on standard output.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use serde_json::Value;

use super::config::is_metric_name;
use crate::context::StepError;

/// The longest line of the metrics file, in bytes.
const LONGEST_LINE: usize = 1 << 20;
/// The maximum number of bytes that are read at once, so that a program that writes fast does not delay other checks.
const READ_AT_ONCE: u64 = 1 << 20;

/// One value of one metric.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Point {
    pub name: String,
    /// The x axis; `None` for a final value.
    pub step: Option<u64>,
    pub value: f64,
}

/// Reads the metrics file while the program appends to it.
pub(super) struct MetricsFile {
    file: File,
    /// The bytes of an incomplete line.
    rest: Vec<u8>,
    /// The number of lines read.
    lines: u64,
}

impl MetricsFile {
    pub fn new(file: File) -> Self {
        MetricsFile { file, rest: Vec::new(), lines: 0 }
    }

    /// Appends the points of the lines that were completed since the last call. `ended`: the program has ended, so the last line
    /// needs no line break, and everything is read.
    ///
    /// # Errors
    /// [`StepError::Failed`] with the number of an invalid line. The points of earlier lines were appended.
    pub fn read_points(&mut self, ended: bool, points: &mut Vec<Point>) -> Result<(), StepError> {
        loop {
            let cannot = |error| StepError::failed(format!("cannot read the file of metrics: {error}"));
            let read = Read::by_ref(&mut self.file).take(READ_AT_ONCE).read_to_end(&mut self.rest).map_err(cannot)?;
            self.read_lines(ended && read == 0, points)?;
            if read == 0 || !ended {
                return Ok(());
            }
        }
    }

    fn read_lines(&mut self, last: bool, points: &mut Vec<Point>) -> Result<(), StepError> {
        let mut from = 0;
        loop {
            let rest = &self.rest[from..];
            let end = match rest.iter().position(|&byte| byte == b'\n') {
                Some(end) => end,
                None if last && !rest.is_empty() => rest.len(),
                None => break,
            };
            self.lines += 1;
            points.extend(parse_line(&rest[..end]).map_err(|why| refuse_line(self.lines, &why))?);
            from = (from + end + 1).min(self.rest.len());
        }
        self.rest.drain(..from);
        match self.rest.len() {
            ..=LONGEST_LINE => Ok(()),
            _ => Err(refuse_line(self.lines + 1, "it is longer than 1 MiB")),
        }
    }
}

fn refuse_line(number: u64, why: &str) -> StepError {
    StepError::Failed {
        message: format!("line {number} of `$ASSAY_METRICS` is not a metric: {why}"),
        hint: Some(r#"write one JSON object per line: `{"step": 10, "loss": 0.5}`"#.into()),
    }
}

/// Parses `{"step": 10, "loss": 0.5}`. An empty line has no points.
fn parse_line(line: &[u8]) -> Result<Vec<Point>, String> {
    let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let parsed: Result<Value, _> = serde_json::from_str(text).or_else(|error| {
        // Python's `json` writes `NaN` and `Infinity`, which JSON does not allow.
        serde_json::from_str(&quote_non_finite(text)).map_err(|_| error)
    });
    let Value::Object(fields) = parsed.map_err(|error| format!("it is not JSON ({error})"))? else {
        return Err("it is not a JSON object".to_owned());
    };
    let step = match fields.get("step") {
        None | Some(Value::Null) => None,
        Some(step) => Some(whole_number(step).ok_or_else(|| format!("`step` is {step}, not a whole number from 0"))?),
    };
    let values = fields.iter().filter(|(name, _)| *name != "step");
    let points = values.map(|(name, value)| {
        let value = number(value)
            .ok_or_else(|| format!("`{}` is {}, not a number", shorten(name), shorten(&value.to_string())))?;
        if !is_metric_name(name) {
            return Err(format!("`{}` cannot be the name of a metric", shorten(name)));
        }
        Ok(Point { name: name.clone(), step, value })
    });
    points.collect()
}

/// A step number; programs that compute with floats write `10.0`.
fn whole_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let value = value.as_f64().filter(|value| value.fract() == 0.0 && (0.0..9e15).contains(value))?;
        Some(value as u64)
    })
}

/// The value of a metric: booleans count as 0 and 1, and texts represent values that JSON lacks.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Bool(truth) => Some(f64::from(u8::from(*truth))),
        Value::String(text) => non_finite(text),
        _ => None,
    }
}

fn non_finite(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// Quotes `NaN`, `Infinity` and `-Infinity` outside of texts.
fn quote_non_finite(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 8);
    let (mut rest, mut inside) = (text, false);
    while let Some(first) = rest.chars().next() {
        let word = ["NaN", "-Infinity", "Infinity"].into_iter().find(|word| !inside && rest.starts_with(word));
        let length = match (word, first) {
            (Some(word), _) => {
                quoted.extend(["\"", word, "\""]);
                word.len()
            }
            (None, '\\') if inside => {
                let length = rest.chars().take(2).map(char::len_utf8).sum();
                quoted.push_str(&rest[..length]);
                length
            }
            (None, _) => {
                inside ^= first == '"';
                quoted.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    quoted
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The points in a line of standard output: `loss=0.5` for each metric in `declared`, at the step from `step=10` in the same
/// line. Punctuation around a word is ignored.
pub(super) fn points_in_output<T>(line: &str, declared: &BTreeMap<String, T>) -> Vec<Point> {
    let words = line.split([' ', '\t', ',', ';', '|']);
    let pairs: Vec<(&str, &str)> =
        words.filter_map(|word| word.trim_matches(['[', ']', '(', ')', '{', '}']).split_once('=')).collect();
    let step = pairs.iter().find(|(name, _)| *name == "step").and_then(|(_, value)| value.parse().ok());
    let points = pairs.iter().filter(|(name, _)| declared.contains_key(*name)).filter_map(|(name, value)| {
        let value = value.trim_end_matches(['%', '.']).parse().ok()?;
        Some(Point { name: (*name).to_owned(), step, value })
    });
    points.collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    fn point(name: &str, step: impl Into<Option<u64>>, value: f64) -> Point {
        Point { name: name.into(), step: step.into(), value }
    }

    #[test]
    fn a_line_holds_the_metrics_of_one_step_or_final_ones() {
        let check = |line: &str, points: &[Point]| assert_eq!(parse_line(line.as_bytes()).unwrap(), points, "{line}");
        check(r#"{"step": 10, "loss": 0.5, "lr": 1e-3}"#, &[point("loss", 10, 0.5), point("lr", 10, 1e-3)]);
        check(r#"{"accuracy": 1}"#, &[point("accuracy", None, 1.0)]);
        check(r#"{"step": 10.0, "ok": true}"#, &[point("ok", 10, 1.0)]);
        check("  ", &[]);
        check(r#"{"step": 3}"#, &[]);
    }

    #[test]
    fn the_values_that_python_writes_for_non_finite_numbers_are_read() {
        let points = parse_line(br#"{"a\"NaN": 1, "b": NaN, "c": -Infinity, "d": Infinity}"#);
        assert!(points.unwrap_err().contains("cannot be the name"));
        let points = parse_line(br#"{"b": NaN, "c": -Infinity, "d": Infinity}"#).unwrap();
        assert!(points[0].value.is_nan());
        assert_eq!((points[1].value, points[2].value), (f64::NEG_INFINITY, f64::INFINITY));
        assert_eq!(quote_non_finite(r#"{"NaN \" Infinity": NaN}"#), r#"{"NaN \" Infinity": "NaN"}"#);
    }

    #[test]
    fn what_is_no_metric_is_refused_with_its_line() {
        let check = |text: &str, why: &str| {
            let mut file = tempfile::tempfile().unwrap();
            write!(file, "{{\"a\": 1}}\n\n{text}\n").unwrap();
            file.rewind().unwrap();
            let mut points = Vec::new();
            let error = MetricsFile::new(file).read_points(true, &mut points).unwrap_err().to_string();
            assert_eq!(points, [point("a", None, 1.0)], "what stands before the line is kept");
            assert!(error.contains("line 3") && error.contains(why), "{error}");
        };
        check("loss 0.5", "not JSON");
        check("[1]", "not a JSON object");
        check(r#"{"loss": "low"}"#, "`loss` is \"low\"");
        check(r#"{"step": -1, "loss": 1}"#, "`step` is -1");
        check(r#"{"step": 1.5, "loss": 1}"#, "`step` is 1.5");
        check(r#"{"a\u0000b": 1}"#, "cannot be the name");
        check(&format!("{{\"{}\": 1}}", "x".repeat(300)), "cannot be the name");
        check(&"x".repeat(LONGEST_LINE + 2), "not JSON");
    }

    #[test]
    fn a_line_is_read_once_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics");
        let mut written = File::create(&path).unwrap();
        let mut file = MetricsFile::new(File::open(&path).unwrap());
        write!(written, "{{\"a\": 1}}\n{{\"step\": 2, ").unwrap();
        let mut read = |ended| {
            let mut points = Vec::new();
            file.read_points(ended, &mut points).map(|()| points)
        };
        assert_eq!(read(false).unwrap(), [point("a", None, 1.0)]);
        assert_eq!(read(false).unwrap(), []);
        write!(written, "\"a\": 3}}").unwrap();
        assert_eq!(read(false).unwrap(), []);
        assert_eq!(read(true).unwrap(), [point("a", 2, 3.0)]);
        assert_eq!(read(true).unwrap(), []);
    }

    #[test]
    fn an_endless_line_is_refused_before_it_fills_the_memory() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![b'x'; LONGEST_LINE * 3]).unwrap();
        file.rewind().unwrap();
        let mut file = MetricsFile::new(file);
        let mut points = Vec::new();
        let error = (0..2).find_map(|_| file.read_points(false, &mut points).err()).unwrap();
        assert!(error.to_string().contains("longer than 1 MiB"), "{error}");
    }

    #[test]
    fn declared_metrics_are_found_in_the_output() {
        let declared = BTreeMap::from([("loss".to_owned(), ()), ("accuracy".to_owned(), ())]);
        let check = |line: &str, points: &[Point]| assert_eq!(points_in_output(line, &declared), points, "{line}");
        check("step=10, loss=0.5 lr=1", &[point("loss", 10, 0.5)]);
        check("[loss=1e-3] (accuracy=97.5%)", &[point("loss", None, 1e-3), point("accuracy", None, 97.5)]);
        check("the loss=low, loss==3, myloss=4, loss = 5", &[]);
    }
}
