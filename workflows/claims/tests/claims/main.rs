//! Verdicts in known cases, and their error rates.

mod calibration;
mod run;
mod verdicts;
