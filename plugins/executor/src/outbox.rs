//! The queue of reports: batches metric points, keeps only the latest position, and preserves the order.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use assay_protocol::{FrameError, LogLevel, MetricPoint, Progress, Report, write_frame};

/// How long a metric point may wait for others, and the interval between positions.
const INTERVAL: Duration = Duration::from_millis(100);

/// The maximum number of metric points in a batch.
const BATCH: usize = 256;

/// The longest log text that is sent, in bytes. The worker truncates lines further.
const MAX_TEXT: usize = 64 * 1024;

/// The destination of reports.
pub(crate) trait Sink: Send {
    /// Sends one report.
    ///
    /// # Errors
    /// [`FrameError::Io`] if the receiver is gone.
    fn send(&mut self, report: &Report) -> Result<(), FrameError>;
}

/// Writes reports as frames.
pub(crate) struct Frames<W>(pub(crate) W);

impl<W: Write + Send> Sink for Frames<W> {
    fn send(&mut self, report: &Report) -> Result<(), FrameError> {
        write_frame(&mut self.0, report)
    }
}

/// The pending reports of one attempt.
pub(crate) struct Outbox {
    sink: Box<dyn Sink>,
    epoch: u32,
    points: Vec<MetricPoint>,
    progress: Option<Progress>,
    progress_sent: Option<Instant>,
    closed: bool,
    hang_up: Box<dyn Fn() + Send>,
}

impl Outbox {
    /// An outbox for the attempt `epoch`. `hang_up` is called when the receiver is gone.
    pub(crate) fn new(sink: Box<dyn Sink>, epoch: u32, hang_up: Box<dyn Fn() + Send>) -> Outbox {
        Outbox { sink, epoch, points: Vec::new(), progress: None, progress_sent: None, closed: false, hang_up }
    }

    pub(crate) fn report_started(&mut self) {
        self.send(&Report::Started { epoch: self.epoch });
    }

    pub(crate) fn report_metric(&mut self, name: &str, step: u64, value: f64) {
        self.points.push(MetricPoint { name: name.to_owned(), step, value });
        if self.points.len() >= BATCH {
            self.send_points();
        }
    }

    pub(crate) fn report_progress(&mut self, progress: Progress) {
        self.progress = Some(progress);
        if self.progress_sent.is_none_or(|sent| sent.elapsed() >= INTERVAL) {
            self.flush_pending();
        }
    }

    pub(crate) fn report_log(&mut self, level: LogLevel, text: &str) {
        self.flush_pending();
        let text = text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default().to_owned();
        self.send(&Report::Log { epoch: self.epoch, level, text });
    }

    pub(crate) fn report_artifact(&mut self, name: &str, path: PathBuf) {
        self.flush_pending();
        self.send(&Report::Artifact { epoch: self.epoch, name: name.to_owned(), path });
    }

    /// Sends the last report; later reports are dropped.
    ///
    /// # Errors
    /// If the report does not fit into a frame. It was then not sent, and another may be sent.
    pub(crate) fn report_last(&mut self, report: &Report) -> Result<(), String> {
        self.flush_pending();
        if self.closed {
            return Ok(());
        }
        match self.sink.send(report) {
            Err(error @ (FrameError::TooLong(_) | FrameError::Malformed { .. })) => return Err(error.to_string()),
            Err(FrameError::Io(_) | FrameError::Text(_)) => (self.hang_up)(),
            Ok(()) => {}
        }
        self.closed = true;
        Ok(())
    }

    /// Sends pending reports.
    pub(crate) fn flush_pending(&mut self) {
        self.send_points();
        if let Some(progress) = self.progress.take() {
            self.progress_sent = Some(Instant::now());
            self.send(&Report::Progress { epoch: self.epoch, progress });
        }
    }

    fn send_points(&mut self) {
        if !self.points.is_empty() {
            let points = std::mem::take(&mut self.points);
            self.send(&Report::Metrics { epoch: self.epoch, points });
        }
    }

    fn send(&mut self, report: &Report) {
        if self.closed {
            return;
        }
        if let Err(error) = self.sink.send(report) {
            // An attempt that cannot report is useless. The worker sees the end of its pipe and reports the failure.
            eprintln!("cannot send a report, so this executor exits: {error}");
            self.closed = true;
            (self.hang_up)();
        }
    }
}

/// An outbox that is also flushed while the step reports nothing.
pub(crate) struct SharedOutbox(Arc<Mutex<Outbox>>);

impl SharedOutbox {
    /// Shares `outbox` with a thread that flushes it until this handle is dropped.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn new(outbox: Outbox) -> io::Result<SharedOutbox> {
        let shared = Arc::new(Mutex::new(outbox));
        let weak = Arc::downgrade(&shared);
        let flush = move || {
            loop {
                thread::sleep(INTERVAL);
                let Some(outbox) = weak.upgrade() else { return };
                outbox.lock().unwrap_or_else(PoisonError::into_inner).flush_pending();
            }
        };
        thread::Builder::new().name("reports".into()).spawn(flush)?;
        Ok(SharedOutbox(shared))
    }

    pub(crate) fn lock_outbox(&self) -> MutexGuard<'_, Outbox> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use assay_protocol::MAX_FRAME;

    use super::*;
    use crate::testing::Shelf;

    fn new_outbox(shelf: &Shelf) -> Outbox {
        Outbox::new(Box::new(Frames(shelf.clone())), 3, Box::new(|| panic!("nobody hung up")))
    }

    fn progress_at(done: u64) -> Progress {
        Progress { done, total: None, unit: "steps".into(), note: String::new() }
    }

    fn completed_report() -> Report {
        Report::Completed { epoch: 3, values: [].into() }
    }

    #[test]
    fn points_go_in_batches_and_none_is_lost() {
        let shelf = Shelf::default();
        let mut outbox = new_outbox(&shelf);
        (0..600).for_each(|step| outbox.report_metric("train/loss", step, 0.5));
        outbox.report_last(&completed_report()).unwrap();
        let sizes: Vec<usize> = shelf
            .reports()
            .iter()
            .filter_map(|report| if let Report::Metrics { points, .. } = report { Some(points.len()) } else { None })
            .collect();
        assert_eq!(sizes, [256, 256, 88]);
    }

    #[test]
    fn the_first_and_the_last_position_are_sent_and_not_all_between() {
        let shelf = Shelf::default();
        let mut outbox = new_outbox(&shelf);
        (0..100_000).for_each(|done| outbox.report_progress(progress_at(done)));
        outbox.report_last(&completed_report()).unwrap();
        let reports = shelf.reports();
        assert!(reports.len() < 10_000, "{}", reports.len());
        assert_eq!(reports[0], Report::Progress { epoch: 3, progress: progress_at(0) });
        assert_eq!(reports[reports.len() - 2], Report::Progress { epoch: 3, progress: progress_at(99_999) });
    }

    #[test]
    fn order_is_kept_across_kinds_and_nothing_follows_the_last() {
        let shelf = Shelf::default();
        let mut outbox = new_outbox(&shelf);
        outbox.report_started();
        outbox.report_metric("a", 0, 1.0);
        outbox.report_log(LogLevel::Info, "b");
        outbox.report_metric("c", 0, 1.0);
        outbox.report_artifact("d", "d.txt".into());
        outbox.report_last(&completed_report()).unwrap();
        outbox.report_log(LogLevel::Info, "late");
        outbox.report_last(&completed_report()).unwrap();
        let names: Vec<_> = shelf.reports().iter().map(Report::name).collect();
        assert_eq!(names, ["started", "metrics", "log", "metrics", "artifact", "completed"]);
    }

    #[test]
    fn what_is_too_long_is_cut_or_refused_and_the_pipe_stays_whole() {
        let shelf = Shelf::default();
        let mut outbox = new_outbox(&shelf);
        outbox.report_log(LogLevel::Info, &"x".repeat(MAX_FRAME as usize + 1));
        let values = [("huge".to_owned(), "x".repeat(MAX_FRAME as usize).into())].into();
        assert!(outbox.report_last(&Report::Completed { epoch: 3, values }).unwrap_err().contains("4194304"));
        outbox.report_last(&completed_report()).unwrap();
        assert_eq!(shelf.reports().len(), 2);
    }

    #[test]
    fn a_worker_that_is_gone_is_noticed_once() {
        struct Broken;
        impl Sink for Broken {
            fn send(&mut self, _: &Report) -> Result<(), FrameError> {
                Err(io::Error::from(io::ErrorKind::BrokenPipe).into())
            }
        }
        let calls = Arc::new(Mutex::new(0));
        let count = Arc::clone(&calls);
        let mut outbox = Outbox::new(Box::new(Broken), 1, Box::new(move || *count.lock().unwrap() += 1));
        outbox.report_started();
        outbox.report_log(LogLevel::Info, "nobody hears this");
        assert_eq!(*calls.lock().unwrap(), 1);
    }

    #[test]
    fn a_silent_step_still_has_its_points_sent() {
        let shelf = Shelf::default();
        let shared = SharedOutbox::new(new_outbox(&shelf)).unwrap();
        shared.lock_outbox().report_metric("train/loss", 1, 0.5);
        for _ in 0..600 {
            if !shelf.reports().is_empty() {
                return;
            }
            thread::sleep(INTERVAL);
        }
        panic!("the point was not sent within a minute");
    }
}
