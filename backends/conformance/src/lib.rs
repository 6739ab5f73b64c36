//! One suite that every backend runs: values, gradients, shapes and refusals.
//!
//! A [`Case`](cases::Case) is an operation on operands of given shapes. [`check`] runs each of them on a device and on
//! the reference backend in f64, and compares values and gradients; the same cases serve [`check_gradients`] (central
//! differences), [`check_same_bits`] (two devices that must agree exactly), [`check_storage`] (operands held as bf16
//! against the same values in f32; attention by itself in [`check_attention_bf16`]) and [`check_sums`] (gradients added to gradients). [`check_refusals`] sees that bad
//! arguments are errors, [`check_operations`] runs all of this on operations that are values ([`assay_tensor::FusedOp`]) of any crate, [`check_random`] draws operations and shapes from seeds, and [`check_recurrences`] what holds of models' states: chunks do not change them, a segment cuts
//! their gradient and nothing else, and the future does not change the past.
//!
//! # Invariants
//!
//! - Nothing here panics or stops at the first failure: each check ends in a line of a [`Report`].
//! - No case is skipped: an operation of `assay-tensor`'s table that no case reaches is a failure of
//!   [`check_gradients`].
//! - Every case also checks that its operands are unchanged afterwards.
//! - Operands are the same on every device and in every run.

mod attention_bf16;
pub mod cases;
mod compare;
mod composed;
mod gradients;
mod operands;
mod operations;
mod random;
mod recurrences;
mod refusals;
mod report;
mod storage;
mod suite;
mod sums;

pub use attention_bf16::check_attention_bf16;
pub use composed::composed_device;
pub use gradients::check_gradients;
pub use operations::{check_examples, check_operations};
pub use random::check_random;
pub use recurrences::check_recurrences;
pub use refusals::check_refusals;
pub use report::Report;
pub use storage::check_storage;
pub use suite::{Tolerance, check, check_adamw, check_same_bits};
pub use sums::check_sums;
