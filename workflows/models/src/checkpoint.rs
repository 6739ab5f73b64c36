//! Checkpoints: a model as one safetensors file.
//!
//! | in the file | meaning |
//! |---|---|
//! | array `NAME`, F32 | a parameter; matrices are `[out, in]` |
//! | arrays `NAME.q`, I8 `[N, K]`, and `NAME.scale`, F32 `[N]` | an int8 matrix: its value is `q * scale`, row by row |
//! | metadata `assay.format` | `1` |
//! | metadata `assay.model` | the model config, as in a workflow file, as JSON |
//! | metadata `assay.task` | vocabulary, longest sequence and objective, as JSON |
//!
//! The names are listed at the top of each family's file. Equal models are equal bytes.

use std::path::Path;

use assay_tensor::{Device, Tensor};

use crate::error::ModelError;
use crate::file::{Array, ArrayFile, FileError};
use crate::model::Model;
use crate::parameters::{Parameter, Parameters, Role, Weight};

const FORMAT: &str = "1";

/// Writes a model; returns the size of the file in bytes.
///
/// # Errors
/// If the file cannot be written, or a parameter cannot be read from the device.
pub fn save(model: &Model, path: &Path) -> Result<u64, ModelError> {
    Ok(to_file(model)?.write(path)?)
}

/// Reads a model onto a device.
///
/// # Errors
/// If the file cannot be read or does not contain exactly the parameters of the model that it describes.
pub fn load(device: &Device, path: &Path) -> Result<Model, ModelError> {
    from_file(device, &ArrayFile::read(path)?)
}

/// The model as named arrays.
///
/// # Errors
/// If a parameter cannot be read from the device.
pub fn to_file(model: &Model) -> Result<ArrayFile, ModelError> {
    let mut file = ArrayFile::default();
    let text = |value: serde_json::Result<String>| value.map_err(|error| FileError::Content(error.to_string()));
    file.metadata.insert("assay.format".into(), FORMAT.into());
    file.metadata.insert("assay.model".into(), text(serde_json::to_string(model.config()))?);
    file.metadata.insert("assay.task".into(), text(serde_json::to_string(model.task()))?);
    for (name, parameter) in model.parameters().iter() {
        match &parameter.value {
            Weight::Dense(tensor) => {
                let values: Vec<f32> = tensor.to_f64_vec()?.into_iter().map(|value| value as f32).collect();
                file.arrays.insert(name.into(), Array::f32(&values, tensor.dims()));
            }
            Weight::Int8 { q, scale } => {
                file.arrays.insert(format!("{name}.q"), Array::i8(&q.to_i8_vec()?, q.dims()));
                file.arrays.insert(format!("{name}.scale"), Array::f32(&scale.to_f32_vec()?, scale.dims()));
            }
        }
    }
    Ok(file)
}

/// The model that named arrays describe.
///
/// # Errors
/// As [`load`].
pub fn from_file(device: &Device, file: &ArrayFile) -> Result<Model, ModelError> {
    let format = file.metadata.get("assay.format").map_or("", String::as_str);
    if format != FORMAT {
        let message = format!("this is not a checkpoint of format {FORMAT}: `assay.format` is `{format}`");
        return Err(FileError::Content(message).into());
    }
    let (config, task) = (file.json("assay.model")?, file.json("assay.task")?);
    let mut parameters = Parameters::default();
    for (name, array) in &file.arrays {
        if name.strip_suffix(".scale").is_some_and(|stem| file.arrays.contains_key(&format!("{stem}.q"))) {
            continue;
        }
        let (name, value) = match name.strip_suffix(".q") {
            None => (name.as_str(), Weight::Dense(dense(device, name, array)?)),
            Some(stem) => (stem, int8(device, file, stem)?),
        };
        // The model sets the role when it requests the parameter by name.
        parameters.insert(name, Parameter { value, role: Role::Plain });
    }
    Model::from_parameters(device, &config, &task, &parameters)
}

fn dense(device: &Device, name: &str, array: &Array) -> Result<Tensor, ModelError> {
    let values = array.to_f32().ok_or_else(|| ModelError::parameter(name, "is not f32"))?;
    Ok(Tensor::from_f32(device, values, array.shape.as_slice())?)
}

fn int8(device: &Device, file: &ArrayFile, name: &str) -> Result<Weight, ModelError> {
    let q = file.array(&format!("{name}.q"))?;
    let scale = dense(device, name, file.array(&format!("{name}.scale"))?)?;
    let values = q.to_i8().ok_or_else(|| ModelError::parameter(name, "has quantized values that are not int8"))?;
    Ok(Weight::Int8 { q: Tensor::from_i8(device, values, q.shape.as_slice())?, scale })
}
