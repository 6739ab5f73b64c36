//! Standard error: log lines, and the last lines of a process that crashed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use assay_protocol::{AttemptEvent, LogLevel};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

/// The longest line that is kept, in bytes.
pub(crate) const MAX_LINE: usize = 4096;

/// How many of the last lines are stored for the message of a crash.
const LAST_LINES: usize = 3;

/// The maximum number of lines of a panic's message.
const PANIC_LINES: usize = 4;

/// The remaining bytes of log, shared by standard error and the log reports.
pub(crate) struct Budget {
    left: AtomicU64,
}

impl Budget {
    pub(crate) fn new(bytes: u64) -> Budget {
        Budget { left: AtomicU64::new(bytes) }
    }

    /// Subtracts `bytes`.
    ///
    /// # Errors
    /// [`Overspent`] if fewer bytes remain.
    pub(crate) fn spend_bytes(&self, bytes: usize) -> Result<(), Overspent> {
        let take = |left: u64| left.checked_sub(bytes as u64);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_or(Err(Overspent), |_| Ok(()))
    }
}

/// The log limit was exceeded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overspent;

/// The last lines of standard error.
#[derive(Debug, Default)]
pub(crate) struct StderrTail {
    lines: VecDeque<String>,
    panic: Vec<String>,
    in_panic: bool,
    /// The number of bytes of a failed allocation, from Rust's error message.
    pub(crate) allocation: Option<u64>,
}

impl StderrTail {
    pub(crate) fn add_line(&mut self, line: &str) {
        if let Some((_, rest)) = line.split_once("memory allocation of ") {
            self.allocation = rest.split(' ').next().and_then(|bytes| bytes.parse().ok()).or(self.allocation);
        }
        if line.starts_with("thread '") && line.contains(" panicked at ") {
            self.panic.clear();
            self.in_panic = true;
        } else if line.starts_with("note: ") || line.starts_with("stack backtrace:") {
            self.in_panic = false;
        }
        if self.in_panic && self.panic.len() < PANIC_LINES {
            self.panic.push(line.to_owned());
        }
        if !line.trim().is_empty() {
            if self.lines.len() == LAST_LINES {
                self.lines.pop_front();
            }
            self.lines.push_back(line.to_owned());
        }
    }

    /// The position and the message of the last panic.
    pub(crate) fn last_panic(&self) -> Option<(String, String)> {
        let (first, message) = self.panic.split_first()?;
        let (_, place) = first.split_once(" panicked at ")?;
        Some((place.trim_end_matches(':').to_owned(), message.join(" ")))
    }

    /// The last lines as one line, or `None` if nothing was written.
    pub(crate) fn quote_lines(&self) -> Option<String> {
        let text = self.lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" / ");
        (!text.is_empty()).then(|| truncate_text(&text, 400))
    }
}

/// Forwards every line until the end of the pipe. Lines that are not UTF-8 are converted lossily; only the start of a
/// long line is forwarded.
///
/// # Errors
/// [`Overspent`] if the log exceeds the budget.
pub(crate) async fn forward_lines(
    mut pipe: impl AsyncRead + Unpin,
    events: &mpsc::Sender<AttemptEvent>,
    budget: &Budget,
    stderr_tail: &std::sync::Mutex<StderrTail>,
) -> Result<(), Overspent> {
    let mut chunk = vec![0; 8192];
    let mut lines = Lines::default();
    let pass_on = async |line: Vec<u8>| {
        let text = to_printable(&line);
        stderr_tail.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add_line(&text);
        // If the consumer is gone, the attempt continues, since its outcome still counts.
        let _ = events.send(AttemptEvent::Log(LogLevel::Stderr, text)).await;
    };
    loop {
        let count = pipe.read(&mut chunk).await.unwrap_or(0);
        budget.spend_bytes(count)?;
        for line in lines.split_lines(chunk.get(..count).unwrap_or_default()) {
            pass_on(line).await;
        }
        if count == 0 {
            if let Some(line) = lines.take_rest() {
                pass_on(line).await;
            }
            return Ok(());
        }
    }
}

/// Splits a stream into lines; of a longer line, only the first [`MAX_LINE`] bytes are kept.
#[derive(Default)]
struct Lines {
    line: Vec<u8>,
    cut: bool,
}

impl Lines {
    /// The lines completed by these bytes.
    fn split_lines(&mut self, mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut complete = Vec::new();
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            self.append_bytes(line);
            complete.push(self.take_line());
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.append_bytes(bytes);
        complete
    }

    /// The last line if it has no line break.
    fn take_rest(&mut self) -> Option<Vec<u8>> {
        (!self.line.is_empty()).then(|| self.take_line())
    }

    fn append_bytes(&mut self, bytes: &[u8]) {
        let room = MAX_LINE - self.line.len();
        self.cut |= bytes.len() > room;
        self.line.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    fn take_line(&mut self) -> Vec<u8> {
        let mut line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.cut) {
            line.extend_from_slice(" … (cut)".as_bytes());
        }
        line
    }
}

/// A line as text, without its line break and without control characters that would move a terminal's cursor. If a line
/// was overwritten in place, as by progress bars, its last content is used.
pub(crate) fn to_printable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches(['\r', '\n']);
    let shown = text.rsplit('\r').next().unwrap_or_default();
    let keep = |c: char| if c.is_control() && c != '\t' { '\u{fffd}' } else { c };
    shown.chars().map(keep).collect()
}

/// At most `bytes` bytes of a text, with an ellipsis if it is truncated.
pub(crate) fn truncate_text(text: &str, bytes: usize) -> String {
    if text.len() <= bytes { text.to_owned() } else { format!("{}…", &text[..text.floor_char_boundary(bytes)]) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split_chunks(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut lines = Lines::default();
        let mut split: Vec<Vec<u8>> = chunks.iter().flat_map(|chunk| lines.split_lines(chunk)).collect();
        split.extend(lines.take_rest());
        split
    }

    #[test]
    fn a_line_of_the_greatest_length_is_whole() {
        let whole = vec![b'x'; MAX_LINE];
        assert_eq!(split_chunks(&[&whole, b"\n"]).concat(), whole);
        let cut = &split_chunks(&[&whole, b"y\n"])[0];
        assert!(cut.starts_with(&whole) && cut.ends_with("… (cut)".as_bytes()));
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_the_bytes_arrive(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            size in 1_usize..20,
        ) {
            let mut expected: Vec<Vec<u8>> = bytes.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
            expected.pop_if(|last| last.is_empty());
            prop_assert_eq!(split_chunks(&bytes.chunks(size).collect::<Vec<_>>()), expected);
        }

        #[test]
        fn cutting_keeps_the_beginning_and_the_bound(text in ".*", bytes in 0_usize..40) {
            let short = truncate_text(&text, bytes);
            prop_assert!(short.len() <= bytes + "…".len());
            let kept = if text.len() > bytes { short.trim_end_matches('…') } else { &short };
            prop_assert!(text.starts_with(kept));
        }
    }

    #[test]
    fn a_panic_is_remembered_under_its_backtrace() {
        let mut words = StderrTail::default();
        words.add_line("thread 'main' (17) panicked at src/scan.rs:3:9:");
        words.add_line("index 4 of");
        words.add_line("3 states");
        words.add_line("stack backtrace:");
        for frame in 0..50 {
            words.add_line(&format!("  {frame}: core::panicking"));
        }
        assert_eq!(words.last_panic(), Some(("src/scan.rs:3:9".into(), "index 4 of 3 states".into())));
        assert_eq!(words.quote_lines().unwrap(), "47: core::panicking / 48: core::panicking / 49: core::panicking");
    }

    #[test]
    fn a_refused_allocation_is_read() {
        let mut words = StderrTail::default();
        words.add_line("memory allocation of 17179869184 bytes failed");
        assert_eq!(words.allocation, Some(17_179_869_184));
    }

    #[test]
    fn a_budget_is_spent_to_the_last_byte() {
        let budget = Budget::new(3);
        assert_eq!(budget.spend_bytes(3), Ok(()));
        assert_eq!(budget.spend_bytes(0), Ok(()));
        assert_eq!(budget.spend_bytes(1), Err(Overspent));
    }
}
