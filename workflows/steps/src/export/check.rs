//! Verifies an ONNX file: tract, an independent runtime, must compute the same results as the model.

use std::collections::BTreeMap;
use std::path::Path;

use assay_models::{Array, ArrayFile, Batch, Model, ModelConfig, ModelError, Objective, TenPositions};
use assay_statistics::Random;
use tract_onnx::prelude::*;

use crate::context::{Context, StepError};
use crate::load::failed;

/// The tolerance of the difference between a logit of the file and of the model, both in f32.
pub const TOLERANCE: f64 = 1e-4;

/// The longest sequence of a check, in tokens.
const LONGEST: usize = 256;
/// Batch sizes of the check.
const BATCHES: [usize; 2] = [1, 3];

/// Random inputs of one batch size and one length, and the model's results.
pub struct Case {
    batch: Batch,
    /// `[batch, length]`.
    dims: [usize; 2],
    /// The model's logits, row by row.
    logits: Vec<f32>,
    shape: Vec<usize>,
}

/// The largest difference.
#[derive(Debug, Clone, PartialEq)]
pub struct Worst {
    /// The largest difference of two logits; infinite if one is NaN.
    pub difference: f64,
    /// The inputs and the position of the logit.
    pub place: String,
}

/// Random tokens for two lengths and two batch sizes, with rows of different lengths, and the model's results.
pub fn cases(model: &Model, seed: u64) -> Result<Vec<Case>, StepError> {
    let mut random = Random::new(seed);
    let mut cases = Vec::new();
    for length in lengths(model) {
        for rows in BATCHES {
            // The first row has the full length; the others are shorter.
            let sizes: Vec<usize> =
                (0..rows).map(|row| if row == 0 { length } else { 1 + random.below(length) }).collect();
            let sequences: Vec<Vec<u32>> = sizes
                .iter()
                .map(|&size| (0..size).map(|_| random.below(model.task().vocabulary) as u32).collect())
                .collect();
            let slices: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
            cases.push(case(model, &slices, [rows, length]).map_err(|error| failed("the model cannot be run", error))?);
        }
    }
    Ok(cases)
}

fn case(model: &Model, sequences: &[&[u32]], dims: [usize; 2]) -> Result<Case, ModelError> {
    let batch = Batch::new(model.device(), sequences)?;
    let logits = model.outputs(&batch)?;
    let shape = logits.dims().to_vec();
    Ok(Case { logits: logits.to_f32_vec()?, batch, dims, shape })
}

/// A short and a long length; only one if the model accepts a single token.
fn lengths(model: &Model) -> Vec<usize> {
    let free = matches!(model.config(), ModelConfig::Ten(config) if config.positions == TenPositions::None);
    let longest = if free { model.task().max_length.max(8) } else { model.task().max_length }.min(LONGEST);
    let mut lengths = vec![longest.div_ceil(3), longest];
    lengths.dedup();
    lengths
}

/// Runs every case in tract and finds the largest difference.
pub fn in_tract(file: &[u8], cases: &[Case], context: &mut dyn Context) -> Result<Worst, StepError> {
    let mut worst = Worst { difference: 0.0, place: "nowhere".into() };
    for (index, case) in cases.iter().enumerate() {
        if context.cancelled() {
            return Err(StepError::Cancelled);
        }
        let found = run(file, case).map_err(|error| StepError::Check {
            message: format!("tract cannot run the ONNX file on inputs {:?}: {error:#}", case.dims),
            hint: Some("this is a bug in the export: please report it with the workflow file".into()),
        })?;
        let here = case.compare(&found);
        if here.difference > worst.difference {
            worst = here;
        }
        context.progress(index as u64 + 1, Some(cases.len() as u64), "checks", "");
    }
    Ok(worst)
}

/// The logits computed by tract. The file is read again for each case, so that it is planned for its dimensions.
fn run(file: &[u8], case: &Case) -> TractResult<Vec<f32>> {
    let [rows, length] = case.dims;
    let mut model = onnx().model_for_read(&mut &*file)?;
    model.set_input_fact(0, i64::fact([rows, length]).into())?;
    let tokens = case.batch.tokens().to_u32_vec()?.into_iter().map(i64::from).collect::<Vec<_>>();
    let mut inputs = tvec![Tensor::from_shape(&[rows, length], &tokens)?.into_tvalue()];
    if model.input_outlets()?.len() > 1 {
        model.set_input_fact(1, i64::fact([rows]).into())?;
        let lengths: Vec<i64> = case.batch.lengths().iter().map(|&length| length as i64).collect();
        inputs.push(Tensor::from_shape(&[rows], &lengths)?.into_tvalue());
    }
    let outputs = model.into_optimized()?.into_runnable()?.run(inputs)?;
    // A graph without an output has no logits; the caller then reports the wrong number.
    let Some(logits) = outputs.first() else { return Ok(Vec::new()) };
    Ok(logits.to_plain_array_view::<f32>()?.iter().copied().collect())
}

impl Case {
    fn compare(&self, found: &[f32]) -> Worst {
        let name = format!("batch {} and length {}", self.dims[0], self.dims[1]);
        if found.len() != self.logits.len() {
            let place = format!("{name}: {} logits instead of {}", found.len(), self.logits.len());
            return Worst { difference: f64::INFINITY, place };
        }
        let mut worst = Worst { difference: 0.0, place: "nowhere".into() };
        for (at, (&theirs, &ours)) in found.iter().zip(&self.logits).enumerate() {
            if !self.counts(at) {
                continue;
            }
            let difference = (f64::from(theirs) - f64::from(ours)).abs();
            let difference = if difference.is_nan() { f64::INFINITY } else { difference };
            if difference > worst.difference {
                worst = Worst { difference, place: format!("{name}, logit {at}: {theirs} instead of {ours}") };
            }
        }
        worst
    }

    /// Whether the logit at this index is valid: those of a language model at padded positions are not.
    fn counts(&self, at: usize) -> bool {
        match *self.shape {
            [_, length, width] if width > 0 && length > 0 => {
                let (row, t) = (at / width / length, at / width % length);
                self.batch.lengths().get(row).is_some_and(|&size| t < size)
            }
            _ => true,
        }
    }
}

/// Writes the inputs and the model's results for comparison with a second runtime: a safetensors file with arrays
/// `caseN.tokens` and `caseN.lengths` (U32) and `caseN.logits` (F32), and the tolerance in its metadata.
pub fn write_reference(cases: &[Case], objective: Objective, path: &Path) -> Result<(), StepError> {
    let mut file = ArrayFile::default();
    for (index, case) in cases.iter().enumerate() {
        let tokens =
            case.batch.tokens().to_u32_vec().map_err(|error| failed("the inputs cannot be read", error.into()))?;
        let lengths: Vec<u32> = case.batch.lengths().iter().map(|&length| length as u32).collect();
        let arrays = [
            ("tokens", Array::u32(&tokens, &case.dims)),
            ("lengths", Array::u32(&lengths, &[lengths.len()])),
            ("logits", Array::f32(&case.logits, &case.shape)),
        ];
        file.arrays.extend(arrays.map(|(name, array)| (format!("case{index}.{name}"), array)));
    }
    let takes_lengths = matches!(objective, Objective::Classify(_));
    file.metadata = BTreeMap::from([
        ("assay.tolerance".into(), TOLERANCE.to_string()),
        ("assay.inputs".into(), if takes_lengths { "tokens,lengths" } else { "tokens" }.into()),
    ]);
    file.write(path).map_err(|error| failed("the reference cannot be written", error.into()))?;
    Ok(())
}
