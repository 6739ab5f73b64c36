//! Claims as tests: computes verdicts from the claims of a workflow and the results of a run.
//!
//! A claim is a hypothesis about one number: the value of its formula lies inside a band. [`judge_claims`] computes the
//! formula once for each replicate and compares the mean with the ends of the band. Invariants:
//!
//! - This crate is pure: claims and observations in, verdicts out. It uses no store, clock or file.
//! - `supported` and `refuted` are both statements with an error: each end of a band has 2.5 %, so that a verdict agrees with
//!   the 95 % interval, and Holm's correction keeps the chance of any false verdict in a file below 5 %.
//! - Replicates with the same number are pairs. Ratios are judged on a logarithmic scale.
//! - One observation decides nothing, unless the claim states that its values are exact. A failed replicate leaves a
//!   claim undecided, because the successful replicates alone are a biased sample.
//! - `undecided` is not evidence that a claim is wrong.
//!
//! Reading order: [`observation`] is the input, [`verdict`] the output; in between [`arithmetic`],
//! [`hypothesis`], [`evaluate`], [`test`] and [`judge`].

mod arithmetic;
mod evaluate;
mod hypothesis;
mod judge;
mod observation;
mod test;
mod verdict;

pub use judge::{CLAIMS_LEVEL, judge_claims};
pub use observation::{Observation, Outcome};
pub use verdict::{Arithmetic, JudgedClaim, Measurement, Verdict};
