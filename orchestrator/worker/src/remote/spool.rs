//! The reports of one attempt that the server has not acknowledged, in a file: an attempt may run for hours without a connection.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use assay_core::AttemptId;
use assay_protocol::{Failure, FailureClass, LogLevel};
use assay_wire::{AttemptReport, Ended, MAX_MESSAGE, ReportBody};

/// The largest report, in bytes: a message with only this report is accepted.
const LARGEST: usize = MAX_MESSAGE - 4096;

/// A report in the file.
#[derive(Debug, Clone, Copy)]
struct Place {
    seq: u64,
    at: u64,
    bytes: usize,
}

/// The reports of one attempt.
#[derive(Debug)]
pub(super) struct Spool {
    attempt: AttemptId,
    path: PathBuf,
    file: File,
    end: u64,
    /// The number of the latest report.
    last: u64,
    /// Reports that are not acknowledged, in order.
    kept: VecDeque<Place>,
    /// How many of them were sent on the current connection.
    sent: usize,
    /// Whether the attempt's last report was added.
    ended: bool,
}

impl Spool {
    pub(super) fn create(folder: &Path, attempt: AttemptId) -> std::io::Result<Spool> {
        let path = folder.join(format!("{}-{}-{}", attempt.task.run, attempt.task.task, attempt.epoch));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        Ok(Spool { attempt, path, file, end: 0, last: 0, kept: VecDeque::new(), sent: 0, ended: false })
    }

    /// Adds a report.
    pub(super) fn push(&mut self, body: ReportBody) -> std::io::Result<()> {
        let ended = matches!(body, ReportBody::Ended { .. });
        let mut report = AttemptReport { attempt: self.attempt, seq: self.last + 1, body };
        let mut text = serde_json::to_vec(&report)?;
        if text.len() > LARGEST {
            // The server would refuse the message every time.
            report.body = replace_large(&report.body, text.len());
            text = serde_json::to_vec(&report)?;
        }
        self.file.write_all_at(&text, self.end)?;
        self.kept.push_back(Place { seq: report.seq, at: self.end, bytes: text.len() });
        self.end += text.len() as u64;
        self.last = report.seq;
        self.ended |= ended;
        Ok(())
    }

    /// The number of the latest report.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The next reports that were not sent on this connection, at most `most` bytes or a single report. They then count as sent.
    pub(super) fn next_batch(&mut self, most: usize) -> std::io::Result<Vec<AttemptReport>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(place) = self.kept.get(self.sent).filter(|place| batch.is_empty() || bytes + place.bytes <= most)
        {
            let mut text = vec![0; place.bytes];
            self.file.read_exact_at(&mut text, place.at)?;
            batch.push(serde_json::from_slice(&text)?);
            bytes += place.bytes;
            self.sent += 1;
        }
        Ok(batch)
    }

    /// Marks every report that is not acknowledged as unsent.
    pub(super) fn rewind(&mut self) {
        self.sent = 0;
    }

    /// The server has stored the reports up to this number. `true` if it was the attempt's last one.
    pub(super) fn acknowledge(&mut self, seq: u64) -> bool {
        while self.kept.front().is_some_and(|place| place.seq <= seq) {
            self.kept.pop_front();
            self.sent = self.sent.saturating_sub(1);
        }
        if self.kept.is_empty() && !self.ended {
            // No report in the file is needed any more. If it cannot be truncated, it keeps growing.
            if self.file.set_len(0).is_ok() {
                self.end = 0;
            }
        }
        self.ended && self.kept.is_empty()
    }
}

/// The substitute for a report that is too large for a message.
fn replace_large(body: &ReportBody, bytes: usize) -> ReportBody {
    let what = match body {
        ReportBody::Ended { .. } => "the outputs of the attempt",
        ReportBody::Log { .. } => "a line of the log",
        ReportBody::Metrics { .. } => "a batch of metrics",
        ReportBody::Queued { .. } | ReportBody::Greeted { .. } | ReportBody::Started => "a report of its state",
        ReportBody::Progress { .. } | ReportBody::Checkpoint { .. } => "a report of its progress",
    };
    let message = format!("{what} has {bytes} bytes; at most {LARGEST} can be sent to the server");
    match body {
        ReportBody::Ended { .. } => {
            let hint = Some("write large values into a file, and declare it as an output".to_owned());
            let failure = Failure { class: FailureClass::Output, message, hint };
            ReportBody::Ended { ended: Ended::Failed { failure } }
        }
        _ => ReportBody::Log { level: LogLevel::Error, text: message },
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // If this fails, the next worker here removes the file when it starts.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_core::{Epoch, RunId, TaskId, TaskIx};

    fn line(text: &str) -> ReportBody {
        ReportBody::Log { level: LogLevel::Info, text: text.into() }
    }

    fn numbers(batch: &[AttemptReport]) -> Vec<u64> {
        batch.iter().map(|report| report.seq).collect()
    }

    #[test]
    fn a_report_that_no_message_can_carry_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let attempt = AttemptId { task: TaskId { run: RunId(1), task: TaskIx(2) }, epoch: Epoch(3) };
        let mut spool = Spool::create(folder.path(), attempt).unwrap();
        spool.push(line(&"\u{1}".repeat(4 << 20))).unwrap();
        let values = [("text".to_owned(), serde_json::Value::from("\u{1}".repeat(4 << 20)))].into();
        spool.push(ReportBody::Ended { ended: Ended::Completed { values, artifacts: Vec::new() } }).unwrap();
        for place in 0..2 {
            let reports = spool.next_batch(1).unwrap();
            assert!(assay_wire::encode(&assay_wire::ToServer::Reports { reports: reports.clone() }).is_ok());
            let replaced = match &reports[0].body {
                ReportBody::Log { level: LogLevel::Error, .. } => place == 0,
                ReportBody::Ended { ended: Ended::Failed { failure } } => {
                    place == 1 && failure.class == FailureClass::Output
                }
                _ => false,
            };
            assert!(replaced, "{:?}", reports[0].body);
        }
    }

    #[test]
    fn reports_are_kept_until_they_are_acknowledged() {
        let folder = tempfile::tempdir().unwrap();
        let attempt = AttemptId { task: TaskId { run: RunId(1), task: TaskIx(2) }, epoch: Epoch(3) };
        let mut spool = Spool::create(folder.path(), attempt).unwrap();
        for text in ["a", "b", "c"] {
            spool.push(line(text)).unwrap();
        }
        assert_eq!(numbers(&spool.next_batch(1).unwrap()), [1], "a batch has at least one");
        assert_eq!(numbers(&spool.next_batch(1 << 20).unwrap()), [2, 3]);
        assert!(spool.next_batch(1 << 20).unwrap().is_empty());
        assert!(!spool.acknowledge(1));
        spool.rewind();
        let again = spool.next_batch(1 << 20).unwrap();
        assert_eq!((numbers(&again), &again[0].body), (vec![2, 3], &line("b")));
        assert!(!spool.acknowledge(3));
        let failure = Failure { class: FailureClass::Step, message: "no".into(), hint: None };
        spool.push(ReportBody::Ended { ended: Ended::Failed { failure } }).unwrap();
        assert_eq!(numbers(&spool.next_batch(1).unwrap()), [4]);
        assert!(!spool.acknowledge(3), "a late word about earlier reports");
        assert!(spool.acknowledge(4));
        let path = spool.path.clone();
        drop(spool);
        assert!(!path.exists());
    }
}
