//! Converts messages to text and back, and limits their size.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest message that either side accepts, in bytes. An executor's frame has at most 4 MiB, and a report holds one of them.
pub const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// How many bytes of reports a worker puts into one message. A single larger report is sent alone.
pub const MAX_BATCH: usize = 1024 * 1024;

/// Why a message cannot be read or sent.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The message is too large.
    #[error("the message has {0} bytes; at most {MAX_MESSAGE} are allowed")]
    TooLong(usize),
    /// The text is not a message of this protocol.
    #[error("not a message of this protocol: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// A message as text.
///
/// # Errors
/// If it is too large.
pub fn encode<T: Serialize>(message: &T) -> Result<String, WireError> {
    let text = serde_json::to_string(message)?;
    if text.len() > MAX_MESSAGE { Err(WireError::TooLong(text.len())) } else { Ok(text) }
}

/// A message from text.
///
/// # Errors
/// If the text is too large, or not a message of this type.
pub fn decode<T: DeserializeOwned>(text: &str) -> Result<T, WireError> {
    if text.len() > MAX_MESSAGE {
        return Err(WireError::TooLong(text.len()));
    }
    Ok(serde_json::from_str(text)?)
}

#[cfg(test)]
mod tests {
    use assay_core::{AttemptId, Epoch, RunId, TaskId, TaskIx};
    use assay_protocol::MetricPoint;

    use super::*;
    use crate::{AttemptReport, ReportBody, ToServer};

    #[test]
    fn a_message_survives_as_text() {
        let task = TaskId { run: RunId(3), task: TaskIx(1) };
        let points = vec![MetricPoint { name: "loss".into(), step: 7, value: 0.1 }];
        let report = AttemptReport {
            attempt: AttemptId { task, epoch: Epoch(2) },
            seq: 9,
            body: ReportBody::Metrics { points },
        };
        let message = ToServer::Reports { reports: vec![report] };
        let text = encode(&message).unwrap();
        assert_eq!(decode::<ToServer>(&text).unwrap(), message);
    }

    #[test]
    fn a_value_that_is_not_finite_survives_as_text() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let body = ReportBody::Metrics { points: vec![MetricPoint { name: "loss".into(), step: 0, value }] };
            let ReportBody::Metrics { points } = decode(&encode(&body).unwrap()).unwrap() else { panic!("metrics") };
            assert_eq!(points[0].value.to_bits(), value.to_bits());
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "{}", "[]", r#"{"type":"explode"}"#, r#"{"type":"reports"}"#, "\0"] {
            assert!(matches!(decode::<ToServer>(text), Err(WireError::Malformed(_))), "{text}");
        }
        let long = format!("\"{}\"", "x".repeat(MAX_MESSAGE));
        assert!(matches!(decode::<ToServer>(&long), Err(WireError::TooLong(_))));
    }
}
