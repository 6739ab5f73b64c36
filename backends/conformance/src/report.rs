//! [`Report`]: the results of checks, one line each, and a verdict.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The outcomes of checks, in the order in which they ran.
#[derive(Debug, Clone, Default)]
pub struct Report {
    passed: usize,
    failures: Vec<String>,
}

impl Report {
    /// Runs one check, named `name`, and records what came of it. A panic is a failure.
    pub(crate) fn run(&mut self, name: &str, check: impl FnOnce() -> Result<(), String>) {
        let outcome = catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|_| Err("it panicked".into()));
        match outcome {
            Ok(()) => self.passed += 1,
            Err(problem) => self.failures.push(format!("{name}: {problem}")),
        }
    }

    /// How many checks passed.
    pub fn passed(&self) -> usize {
        self.passed
    }

    /// One line for each check that failed: what, and how.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Whether there were checks, and none failed.
    pub fn is_good(&self) -> bool {
        self.passed > 0 && self.failures.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} checks passed, {} failed", self.passed, self.failures.len())?;
        self.failures.iter().try_for_each(|failure| write!(f, "\n  {failure}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_and_panics_are_recorded_and_an_empty_report_is_not_good() {
        let mut report = Report::default();
        assert!(!report.is_good());
        report.run("a", || Ok(()));
        assert!(report.is_good());
        report.run("b", || Err("wrong".into()));
        report.run("c", || std::panic::resume_unwind(Box::new(())));
        assert_eq!(report.to_string(), "1 checks passed, 2 failed\n  b: wrong\n  c: it panicked");
        assert!(!report.is_good());
    }
}
