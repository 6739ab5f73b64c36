//! The complete state of a training between two steps, as one safetensors file: a training that resumes from it
//! computes the same bits as an uninterrupted one.
//!
//! | in the file | meaning |
//! |---|---|
//! | `parameters.NAME`, F32 | a parameter, as in the checkpoint of a model |
//! | `adamw.m.NAME`, `adamw.v.NAME`, F32 | its moments |
//! | `sampler.pass`, U32 | the remaining samples of the opened windows of the current pass, last first |
//! | `sampler.windows`, U32 | if there are several windows: those of the current pass that are not opened yet, last first |
//! | `sampler.ready`, `sampler.ready.offsets`, U32 | the batches that are ready, one after another, and the start of each |
//! | `window`, F64 `[3]` | sums since the last report: loss, gradient norm, seconds |
//! | `reports.name`, U32, `reports.step`, U64, `reports.value`, F64 | every metric point so far |
//! | `curriculum.state`, U32 | if a plugin decides the curriculum: the bytes of its state |
//! | `best.value`, F64 `[2]` | with early stopping or `keep: best`: the best value so far, and the reference of patience |
//! | `best.parameters.NAME`, F32 | with `keep: best`: the parameters of the best evaluation so far |
//! | metadata `assay.training` | [`Counters`] as JSON: the step, counts, and the names of the metrics |
//! | metadata `assay.identity` | the identity of the training: config, replicate, device, version of Assay, as JSON |
//! | metadata `assay.hash` | BLAKE3 over all of the above |
//!
//! Nothing else has state: the learning rate and the keys of dropout depend only on the step and the seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use assay_models::{Array, ArrayFile, Model, ModelError, Parameters};
use assay_tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::curriculum::SamplerState;
use super::monitor::Evaluations;
use super::optimizer::{AdamW, dense};
use super::paced::{PacedCounters, PacedPlace};
use super::reports::{Point, Reports};
use crate::context::StepError;

const COUNTERS: &str = "assay.training";
const IDENTITY: &str = "assay.identity";
const HASH: &str = "assay.hash";

/// The sums since the last report.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Window {
    pub steps: u64,
    pub loss: f64,
    pub norm: f64,
    pub correct: usize,
    pub count: usize,
    pub tokens: usize,
    /// The duration of these steps.
    pub seconds: f64,
}

/// The state except parameters and optimizer.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Steps done.
    pub step: u64,
    /// Whether the validation after that step is still to be done.
    pub unvalidated: bool,
    /// The position in the data.
    pub sampler: SamplerState,
    /// The progress of the curriculum, if a plugin decides it.
    pub paced: Option<PacedPlace>,
    /// The results of evaluations, if they are needed.
    pub evaluations: Option<Evaluations>,
    /// Sums that were not reported yet.
    pub window: Window,
    /// The points that were reported.
    pub reports: Reports,
}

/// The scalars of a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Counters {
    /// The layout of the file.
    format: u32,
    /// Steps done.
    step: u64,
    /// Whether the validation after that step is still to be done.
    unvalidated: bool,
    /// Updates done.
    updates: u64,
    /// The stage of the curriculum, from 0.
    stage: usize,
    /// Words drawn from the stage's random generator, in decimal: the number may exceed the range of JSON.
    position: String,
    /// The window's steps.
    steps: u64,
    correct: usize,
    count: usize,
    tokens: usize,
    /// The names of the metrics.
    names: Vec<String>,
    /// If a plugin decides the curriculum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paced: Option<PacedCounters>,
    /// If evaluations are needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    evaluations: Option<EvaluationCounters>,
}

/// The scalars of [`Evaluations`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct EvaluationCounters {
    best_step: u64,
    unimproved: u64,
    keeps_parameters: bool,
}

/// Adds a state to a file's arrays.
///
/// # Errors
/// If the device cannot be read.
pub fn write(
    identity: &str,
    parameters: &Parameters,
    optimizer: &AdamW,
    place: &Place,
) -> Result<ArrayFile, StepError> {
    let mut file = ArrayFile::default();
    let (updates, moments) = optimizer.state();
    for (name, parameter) in parameters.iter() {
        file.arrays.insert(format!("parameters.{name}"), to_array(dense(name, parameter)?)?);
    }
    for (name, (m, v)) in moments {
        file.arrays.insert(format!("adamw.m.{name}"), to_array(m)?);
        file.arrays.insert(format!("adamw.v.{name}"), to_array(v)?);
    }
    let (sampler, window) = (&place.sampler, &place.window);
    let mut offsets = vec![0];
    offsets.extend(sampler.ready.iter().scan(0, |end, batch| {
        *end += batch.len() as u32;
        Some(*end)
    }));
    let (names, points) = place.reports.parts();
    let column = |values: Vec<u32>| Array::u32(&values, &[values.len()]);
    let steps: Vec<u64> = points.iter().map(|point| point.step).collect();
    let values: Vec<f64> = points.iter().map(|point| point.value).collect();
    file.arrays.extend([
        ("sampler.pass".into(), column(sampler.pass.iter().map(|sample| *sample as u32).collect())),
        ("sampler.ready".into(), column(sampler.ready.iter().flatten().map(|sample| *sample as u32).collect())),
        ("sampler.ready.offsets".into(), column(offsets)),
        ("window".into(), Array::f64(&[window.loss, window.norm, window.seconds], &[3])),
        ("reports.name".into(), column(points.iter().map(|point| point.name).collect())),
        ("reports.step".into(), Array::u64(&steps, &[steps.len()])),
        ("reports.value".into(), Array::f64(&values, &[values.len()])),
    ]);
    if !sampler.windows.is_empty() {
        let windows = sampler.windows.iter().map(|window| *window as u32).collect();
        file.arrays.insert("sampler.windows".into(), column(windows));
    }
    let evaluations = place.evaluations.as_ref().map(|evaluations| write_evaluations(evaluations, &mut file));
    let paced = place.paced.as_ref().map(|paced| {
        let (counters, state) = paced.parts();
        file.arrays.insert("curriculum.state".into(), state);
        counters
    });
    let counters = Counters {
        format: 1,
        step: place.step,
        unvalidated: place.unvalidated,
        updates,
        stage: sampler.stage,
        position: sampler.position.to_string(),
        steps: window.steps,
        correct: window.correct,
        count: window.count,
        tokens: window.tokens,
        names: names.to_vec(),
        paced,
        evaluations,
    };
    let counters = serde_json::to_string(&counters).map_err(|error| StepError::failed(error.to_string()))?;
    file.metadata.insert(COUNTERS.into(), counters);
    file.metadata.insert(IDENTITY.into(), identity.into());
    file.metadata.insert(HASH.into(), hash_content(&file));
    Ok(file)
}

fn write_evaluations(evaluations: &Evaluations, file: &mut ArrayFile) -> EvaluationCounters {
    // As an array, since a perplexity may be infinite, which JSON cannot represent.
    let values = [evaluations.best_value, evaluations.reference];
    file.arrays.insert("best.value".into(), Array::f64(&values, &[2]));
    for (name, array) in evaluations.parameters.iter().flat_map(|parameters| parameters.iter()) {
        file.arrays.insert(format!("best.parameters.{name}"), array.clone());
    }
    EvaluationCounters {
        best_step: evaluations.best_step,
        unimproved: evaluations.unimproved,
        keeps_parameters: evaluations.parameters.is_some(),
    }
}

fn read_evaluations(file: &ArrayFile, counters: EvaluationCounters, model: &Model) -> Result<Evaluations, String> {
    let values = file.array("best.value").ok().and_then(Array::to_f64);
    let Some([best_value, reference]) = values.as_deref() else {
        return Err("`best.value` is not an array of two numbers".into());
    };
    let mut parameters = BTreeMap::new();
    if counters.keeps_parameters {
        for (name, parameter) in model.parameters().iter() {
            let key = format!("best.parameters.{name}");
            let array = file.array(&key).map_err(|error| error.to_string())?;
            let dims = dense(name, parameter).map_err(|error| error.to_string())?.dims();
            if array.shape != dims || array.to_f32().is_none() {
                return Err(format!("`{key}` is not an array of {dims:?} floats"));
            }
            parameters.insert(name.to_owned(), array.clone());
        }
    }
    Ok(Evaluations {
        best_step: counters.best_step,
        best_value: *best_value,
        reference: *reference,
        unimproved: counters.unimproved,
        parameters: counters.keeps_parameters.then(|| Arc::new(parameters)),
    })
}

/// Reads the model and the position from a file, and restores the state into a new optimizer. If the file is damaged,
/// or belongs to another training, returns the problem, as a fragment.
pub fn read(file: &ArrayFile, identity: &str, model: &Model, optimizer: &mut AdamW) -> Result<(Model, Place), String> {
    if file.metadata.get(HASH) != Some(&hash_content(file)) {
        return Err("its content does not match its hash".into());
    }
    if file.metadata.get(IDENTITY).map(String::as_str) != Some(identity) {
        return Err("it belongs to another training, device or version".into());
    }
    let counters: Counters = file.json(COUNTERS).map_err(|error| error.to_string())?;
    if counters.format != 1 {
        return Err(format!("its format is {}", counters.format));
    }
    let place = place_of(file, &counters, model)?;
    let floats = |name: String, dims: &[usize]| {
        let array = file.array(&name).map_err(|error| error.to_string())?;
        let values = array.to_f32().filter(|_| array.shape == dims);
        values.ok_or_else(|| format!("`{name}` is not an array of {dims:?} floats"))
    };
    let device = model.device().clone();
    let failed = |error: ModelError| error.to_string();
    let parameters = model.parameters().map(|name, value| {
        let values = floats(format!("parameters.{name}"), value.dims());
        let values = values.map_err(ModelError::Input)?;
        Ok(Tensor::from_f32(&device, values, value.dims())?)
    });
    let restored = model.with_parameters(&parameters.map_err(failed)?).map_err(failed)?;
    optimizer.restore(&device, counters.updates, |name, dims| {
        Ok([floats(format!("adamw.m.{name}"), dims)?, floats(format!("adamw.v.{name}"), dims)?])
    })?;
    Ok((restored, place))
}

fn place_of(file: &ArrayFile, counters: &Counters, model: &Model) -> Result<Place, String> {
    let wrong = |name: &str| format!("`{name}` has an unexpected value");
    let numbers = |name: &str| {
        let array = file.array(name).map_err(|error| error.to_string())?;
        array.to_u32().ok_or_else(|| wrong(name))
    };
    let samples = |name: &str| Ok::<_, String>(numbers(name)?.into_iter().map(|sample| sample as usize).collect());
    let floats = |name: &str| file.array(name).ok().and_then(Array::to_f64).ok_or_else(|| wrong(name));
    let (pass, flat): (Vec<usize>, Vec<usize>) = (samples("sampler.pass")?, samples("sampler.ready")?);
    let offsets: Vec<usize> = samples("sampler.ready.offsets")?;
    let has_windows = file.arrays.contains_key("sampler.windows");
    let windows = if has_windows { samples("sampler.windows")? } else { Vec::new() };
    let batch = |ends: &[usize]| flat.get(ends[0]..ends[1]).map(<[usize]>::to_vec);
    let ready: Option<Vec<_>> = offsets.windows(2).map(batch).collect();
    let steps = file.array("reports.step").ok().and_then(Array::to_u64).ok_or_else(|| wrong("reports.step"))?;
    let columns = (numbers("reports.name")?, floats("reports.value")?);
    let points = columns.0.iter().zip(&steps).zip(&columns.1);
    let points = points.map(|((name, step), value)| Point { name: *name, step: *step, value: *value }).collect();
    let paced = counters.paced.clone().map(|paced| {
        PacedPlace::from_parts(paced, &numbers("curriculum.state")?).ok_or_else(|| wrong("curriculum.state"))
    });
    let [loss, norm, seconds] = floats("window")?[..] else { return Err(wrong("window")) };
    Ok(Place {
        step: counters.step,
        unvalidated: counters.unvalidated,
        sampler: SamplerState {
            stage: counters.stage,
            position: counters.position.parse().map_err(|_| wrong("position"))?,
            pass,
            windows,
            ready: ready.ok_or_else(|| wrong("sampler.ready.offsets"))?,
        },
        paced: paced.transpose()?,
        evaluations: counters.evaluations.map(|counters| read_evaluations(file, counters, model)).transpose()?,
        window: Window {
            steps: counters.steps,
            loss,
            norm,
            correct: counters.correct,
            count: counters.count,
            tokens: counters.tokens,
            seconds,
        },
        reports: Reports::of(counters.names.clone(), points).ok_or_else(|| wrong("reports.name"))?,
    })
}

fn to_array(tensor: &Tensor) -> Result<Array, StepError> {
    Ok(Array::f32(&tensor.to_f32_vec().map_err(ModelError::from)?, tensor.dims()))
}

/// A hash over the content of the file without the hash itself, computed without a copy.
fn hash_content(file: &ArrayFile) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    let metadata: BTreeMap<_, _> = file.metadata.iter().filter(|(key, _)| *key != HASH).collect();
    for (key, text) in metadata {
        part(key.as_bytes());
        part(text.as_bytes());
    }
    for (name, array) in &file.arrays {
        part(name.as_bytes());
        part(format!("{:?} {:?}", array.dtype, array.shape).as_bytes());
        part(&array.bytes);
    }
    hasher.finalize().to_hex().to_string()
}
