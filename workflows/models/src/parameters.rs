//! A model's parameters by name, and the construction of a model from them.
//!
//! A model is a pure function of its config, its task and its [`Parameters`]: one `build` function creates a new model,
//! a loaded one, a quantized one, and the model after an optimizer step. It requests each parameter from a [`Scope`] by
//! name and shape; for a new model it is drawn, for a stored one it is looked up.
//!
//! Names are paths such as `blocks.0.cell.0.nu` or `blocks.1.ffn.down.weight`; matrices are stored `[out, in]`.

use std::collections::BTreeMap;

use assay_tensor::{DType, Device, Tensor};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::error::ModelError;
use crate::precision::Precision;

/// The matrix of a linear layer, or any other parameter, as stored.
#[derive(Clone)]
pub enum Weight {
    /// Floating point.
    Dense(Tensor),
    /// Symmetric int8, one scale for each output channel: the value is `q * scale`.
    Int8 {
        /// I8, `[N, K]`, within -127..=127.
        q: Tensor,
        /// F32, `[N]`.
        scale: Tensor,
    },
}

/// The purpose of a parameter: weight decay and quantization depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The matrix `[N, K]` of a linear layer: decays, and may be int8.
    Linear,
    /// A table of vectors, looked up by id: decays.
    Table,
    /// Biases, the gains of norms, eigenvalues, gamma and the skip factors: they do not decay.
    Plain,
}

impl Role {
    /// Whether weight decay applies.
    #[must_use]
    pub fn decays(self) -> bool {
        self != Role::Plain
    }
}

/// A parameter.
#[derive(Clone)]
pub struct Parameter {
    /// Its value.
    pub value: Weight,
    /// Its purpose.
    pub role: Role,
}

/// All parameters of a model, in the order of their names.
#[derive(Clone, Default)]
pub struct Parameters(BTreeMap<String, Parameter>);

impl Parameters {
    /// Each parameter with its name, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Parameter)> {
        self.0.iter().map(|(name, parameter)| (name.as_str(), parameter))
    }

    /// The parameter `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.0.get(name)
    }

    /// The parameter `name`, mutable.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Parameter> {
        self.0.get_mut(name)
    }

    /// Each parameter with its name, in order, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Parameter)> {
        self.0.iter_mut().map(|(name, parameter)| (name.as_str(), parameter))
    }

    /// Adds or replaces a parameter.
    pub fn insert(&mut self, name: impl Into<String>, parameter: Parameter) {
        self.0.insert(name.into(), parameter);
    }

    /// Number of parameters (tensors).
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no parameters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of learned values. The scales of int8 weights are not counted.
    #[must_use]
    pub fn count(&self) -> usize {
        let values = |weight: &Weight| match weight {
            Weight::Dense(tensor) => tensor.dims().iter().product::<usize>(),
            Weight::Int8 { q, .. } => q.dims().iter().product(),
        };
        self.0.values().map(|parameter| values(&parameter.value)).sum()
    }

    /// The same parameters with each dense value replaced by `change(name, value)`.
    ///
    /// # Errors
    /// The first error of `change`.
    pub fn map(
        &self,
        mut change: impl FnMut(&str, &Tensor) -> Result<Tensor, ModelError>,
    ) -> Result<Parameters, ModelError> {
        let mut mapped = self.clone();
        for (name, parameter) in &mut mapped.0 {
            if let Weight::Dense(tensor) = &parameter.value {
                parameter.value = Weight::Dense(change(name, tensor)?);
            }
        }
        Ok(mapped)
    }
}

/// How an initial parameter is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// All values are the same.
    Constant(f64),
    /// Uniform on `[low, high)`.
    Uniform(f64, f64),
    /// Uniform about 0 with this standard deviation.
    Deviation(f64),
    /// The k-th value is k times this.
    Ramp(f64),
    /// ln(-ln m) with m uniform in area on the ring `low <= m < high`: then m = exp(-exp(nu)).
    RingNu(f64, f64),
    /// ln(m / (1 - m)) with m as in [`Init::RingNu`]: then m = sigmoid(alpha).
    RingLogit(f64, f64),
}

impl Init {
    fn draw(self, rng: &mut ChaCha8Rng, index: usize) -> f64 {
        let mut unit = || rng.random::<f64>();
        match self {
            Init::Constant(value) => value,
            Init::Uniform(low, high) => low + (high - low) * unit(),
            Init::Deviation(deviation) => deviation * 3_f64.sqrt() * (2.0 * unit() - 1.0),
            Init::Ramp(slope) => slope * index as f64,
            Init::RingNu(low, high) => {
                let area = low * low + (high * high - low * low) * unit();
                (-(area.sqrt().ln())).ln()
            }
            Init::RingLogit(low, high) => {
                let m = (low * low + (high * high - low * low) * unit()).sqrt();
                (m / (1.0 - m)).ln()
            }
        }
    }
}

/// The source of parameters for a model under construction.
pub struct Builder<'a> {
    device: &'a Device,
    source: Source<'a>,
    precision: Precision,
    made: Parameters,
}

enum Source<'a> {
    Fresh { seed: u64, dtype: DType },
    Stored(&'a Parameters),
}

impl<'a> Builder<'a> {
    /// Draws every parameter. Each has a separate random stream, keyed by its name, so that adding one changes no
    /// other.
    #[must_use]
    pub fn fresh(device: &'a Device, seed: u64, dtype: DType) -> Self {
        let source = Source::Fresh { seed, dtype };
        Builder { device, source, precision: Precision::F32, made: Parameters::default() }
    }

    /// Takes every parameter from `parameters`.
    #[must_use]
    pub fn stored(device: &'a Device, parameters: &'a Parameters) -> Self {
        let source = Source::Stored(parameters);
        Builder { device, source, precision: Precision::F32, made: Parameters::default() }
    }

    /// The same builder for a model in another precision. Its parameters are not changed.
    #[must_use]
    pub fn precision(self, precision: Precision) -> Self {
        Builder { precision, ..self }
    }

    /// The root of all names.
    pub fn root(&mut self) -> Scope<'_, 'a> {
        Scope { builder: self, path: String::new() }
    }

    /// The requested parameters.
    ///
    /// # Errors
    /// [`ModelError::Parameter`] if a stored one was not requested: the checkpoint belongs to another model.
    pub fn finish(self) -> Result<Parameters, ModelError> {
        if let Source::Stored(stored) = self.source
            && let Some((name, _)) = stored.iter().find(|(name, _)| self.made.get(name).is_none())
        {
            return Err(ModelError::parameter(name, "is in the file, but the model has none of this name"));
        }
        Ok(self.made)
    }

    fn take(&mut self, name: String, shape: &[usize], init: Init, role: Role) -> Result<Weight, ModelError> {
        let value = match &self.source {
            Source::Fresh { seed, dtype } => Weight::Dense(draw(self.device, *seed, *dtype, &name, shape, init)?),
            Source::Stored(stored) => {
                let stored = stored.get(&name).ok_or_else(|| ModelError::parameter(&name, "is missing"))?;
                check_shape(&name, &stored.value, shape, role)?;
                stored.value.clone()
            }
        };
        self.made.insert(name, Parameter { value: value.clone(), role });
        Ok(value)
    }
}

/// A path in the tree of names.
pub struct Scope<'b, 'a> {
    builder: &'b mut Builder<'a>,
    path: String,
}

impl<'a> Scope<'_, 'a> {
    /// The path `name` below this one; `name` may have several parts, as in `blocks.0`.
    pub fn child(&mut self, name: &str) -> Scope<'_, 'a> {
        let path = self.name(name);
        Scope { builder: self.builder, path }
    }

    /// The precision of the model.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.builder.precision
    }

    /// The matrix `[out, in]` of a linear layer.
    ///
    /// # Errors
    /// [`ModelError::Parameter`] if the stored one is missing or has another shape.
    pub fn linear(&mut self, name: &str, out: usize, inp: usize, init: Init) -> Result<Weight, ModelError> {
        let name = self.name(name);
        self.builder.take(name, &[out, inp], init, Role::Linear)
    }

    /// Any other parameter.
    ///
    /// # Errors
    /// As [`Scope::linear`]; also if the stored one is int8.
    pub fn tensor(&mut self, name: &str, shape: &[usize], init: Init, role: Role) -> Result<Tensor, ModelError> {
        let name = self.name(name);
        match self.builder.take(name.clone(), shape, init, role)? {
            Weight::Dense(tensor) => Ok(tensor),
            Weight::Int8 { .. } => Err(ModelError::parameter(&name, "is int8, which only a linear layer can read")),
        }
    }

    /// A plain parameter whose initial values depend on others.
    ///
    /// # Errors
    /// As [`Scope::tensor`], or what `values` returns.
    pub fn derived(
        &mut self,
        name: &str,
        shape: &[usize],
        values: impl FnOnce() -> Result<Vec<f64>, ModelError>,
    ) -> Result<Tensor, ModelError> {
        let Source::Fresh { dtype, .. } = self.builder.source else {
            return self.tensor(name, shape, Init::Constant(0.0), Role::Plain);
        };
        let tensor = constant(self.builder.device, dtype, values()?, shape)?;
        let parameter = Parameter { value: Weight::Dense(tensor.clone()), role: Role::Plain };
        self.builder.made.insert(self.name(name), parameter);
        Ok(tensor)
    }

    fn name(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) }
    }
}

fn check_shape(name: &str, value: &Weight, shape: &[usize], role: Role) -> Result<(), ModelError> {
    let found = match value {
        Weight::Dense(tensor) => tensor.dims(),
        Weight::Int8 { q, scale } => {
            if role != Role::Linear || scale.dims() != &shape[..1] {
                return Err(ModelError::parameter(name, "is int8, but is not a matrix with a scale for each row"));
            }
            q.dims()
        }
    };
    if found != shape {
        return Err(ModelError::parameter(name, &format!("has shape {found:?}; the model needs {shape:?}")));
    }
    Ok(())
}

fn draw(
    device: &Device,
    seed: u64,
    dtype: DType,
    name: &str,
    shape: &[usize],
    init: Init,
) -> Result<Tensor, ModelError> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ hash(name));
    let values: Vec<f64> = (0..shape.iter().product()).map(|index| init.draw(&mut rng, index)).collect();
    constant(device, dtype, values, shape)
}

/// A tensor of `values` in the requested floating type; in f32 for bf16, which is computed in f32.
pub(crate) fn constant(device: &Device, dtype: DType, values: Vec<f64>, shape: &[usize]) -> Result<Tensor, ModelError> {
    Ok(match dtype {
        DType::F64 => Tensor::from_f64(device, values, shape)?,
        _ => Tensor::from_f32(device, values.into_iter().map(|value| value as f32).collect(), shape)?,
    })
}

/// FNV-1a with 64 bits: small, and the same on every machine.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
