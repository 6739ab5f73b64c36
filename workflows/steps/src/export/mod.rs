//! `uses: export`: writes a checkpoint as files for other programs, each checked by an independent program.
//!
//! - [`graph`]: builds an ONNX graph
//! - [`layers`], [`ten`], [`transformer`]: the models as ONNX operators
//! - [`onnx`]: a whole model as an ONNX file
//! - [`check`]: compares the file in tract with the model
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
