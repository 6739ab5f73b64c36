//! Verdicts: what they are in known cases, and how often they are wrong.

mod calibration;
mod run;
mod verdicts;
