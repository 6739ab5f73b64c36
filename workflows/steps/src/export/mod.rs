//! `uses: export`: a checkpoint as files that other programs read, each checked by a program that is not ours.
//!
//! - [`graph`]: an ONNX graph under construction
//! - [`layers`], [`ten`], [`transformer`]: the models as ONNX operators
//! - [`onnx`]: a whole model as an ONNX file
//! - [`check`]: the file in tract, against the model
//! - [`step`]: the step kind

mod check;
mod graph;
mod layers;
mod onnx;
mod step;
mod ten;
#[cfg(test)]
mod tests;
mod transformer;

pub use step::{Export, refuse_planned};
