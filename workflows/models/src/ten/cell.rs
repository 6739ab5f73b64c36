//! The parameters of a cell, a diagonal complex recurrence between two projections.

use assay_tensor::{DType, Device, Tensor};

use crate::config::{Field, Resonance, TenConfig, TenInit};
use crate::error::ModelError;
use crate::layers::Linear;
use crate::parameters::{Init, Role, Scope, constant};
use crate::precision::Precision;

/// The range of magnitudes of `init: ring`, uniform in area.
const RING: (f64, f64) = (0.9, 0.999);
/// The range of magnitudes of `init: seed`.
const SEED_MAGNITUDE: (f64, f64) = (0.1, 0.99);

/// A diagonal complex recurrence between two projections.
#[derive(Clone)]
pub struct Cell {
    /// |a|, or its initial value if the cell is selective.
    pub magnitude: Magnitude,
    /// The phase w of a, `[K]`, in radians.
    pub phase: Tensor,
    /// ln gamma, `[K]`; only for `init: ring`.
    pub log_gamma: Option<Tensor>,
    /// W_in: D to K, or to 2K, all real parts first.
    pub input: Linear,
    /// W_sel: D to 2K, all u first; only for `selective`.
    pub select: Option<Linear>,
    /// R; only with resonance.
    pub coupling: Option<Coupling>,
    /// W_out: K or 2K to D.
    pub output: Linear,
    /// d, `[D]`.
    pub skip: Option<Tensor>,
    /// The precision of the matrices computed from these.
    pub precision: Precision,
}

/// The parametrisation of the magnitude m of the eigenvalues, which keeps it within the unit circle.
#[derive(Clone)]
pub enum Magnitude {
    /// m = exp(-exp(nu)).
    Ring(Tensor),
    /// m = 0.1 + 0.89 sigmoid(alpha).
    Seed(Tensor),
    /// m = sigmoid(alpha), to which a selective cell adds at each step.
    Logit(Tensor),
}

impl Magnitude {
    /// nu or alpha, `[K]`.
    #[must_use]
    pub fn parameter(&self) -> &Tensor {
        match self {
            Magnitude::Ring(parameter) | Magnitude::Seed(parameter) | Magnitude::Logit(parameter) => parameter,
        }
    }

    /// m, `[K]`.
    ///
    /// # Errors
    /// If the device fails.
    pub fn value(&self) -> Result<Tensor, ModelError> {
        let (low, high) = SEED_MAGNITUDE;
        Ok(match self {
            Magnitude::Ring(nu) => nu.exp()?.neg()?.exp()?,
            Magnitude::Seed(alpha) => alpha.sigmoid()?.scale(high - low)?.offset(low)?,
            Magnitude::Logit(alpha) => alpha.sigmoid()?,
        })
    }

    /// ln m in f64, `[K]`, also accurate near m = 1.
    ///
    /// # Errors
    /// If the device fails.
    pub fn logarithms(&self) -> Result<Vec<f64>, ModelError> {
        let (low, high) = SEED_MAGNITUDE;
        let each = |tensor: &Tensor, f: fn(f64) -> f64| Ok(tensor.to_f64_vec()?.into_iter().map(f).collect());
        match self {
            Magnitude::Ring(nu) => each(nu, |nu| -nu.exp()),
            Magnitude::Logit(alpha) => each(alpha, |alpha| -(-alpha).exp().ln_1p()),
            Magnitude::Seed(alpha) => {
                let values = alpha.to_f64_vec()?.into_iter();
                Ok(values.map(|alpha| (low + (high - low) / (1.0 + (-alpha).exp())).ln()).collect())
            }
        }
    }
}

/// Resonance: R = I + eps M / ||M||_F.
#[derive(Clone)]
pub struct Coupling {
    /// Where R is applied; never `off`.
    pub place: Resonance,
    /// eps.
    pub strength: f64,
    /// M, `[K, K]`.
    pub matrix: Tensor,
}

/// Added to ||M||^2, so that a zero matrix gives R = I instead of NaN.
const LEAST_NORM: f64 = 1e-24;

impl Coupling {
    /// R, `[K, K]`.
    ///
    /// # Errors
    /// If the device fails.
    pub fn value(&self) -> Result<Tensor, ModelError> {
        let norm = self.matrix.square()?.sum(&[0, 1], true)?.offset(LEAST_NORM)?.sqrt()?;
        let identity = identity(self.matrix.device(), self.matrix.dtype(), self.matrix.dims()[0])?;
        Ok(self.matrix.div(&norm)?.scale(self.strength)?.add(&identity)?)
    }
}

fn identity(device: &Device, dtype: DType, size: usize) -> Result<Tensor, ModelError> {
    let values = (0..size * size).map(|i| if i % (size + 1) == 0 { 1.0 } else { 0.0 }).collect();
    constant(device, dtype, values, &[size, size])
}

impl Cell {
    /// a = m exp(i w) as real and imaginary part, `[K]` each.
    ///
    /// # Errors
    /// If the device fails.
    pub fn decay(&self) -> Result<(Tensor, Tensor), ModelError> {
        let magnitude = self.magnitude.value()?;
        Ok((magnitude.mul(&self.phase.cos()?)?, magnitude.mul(&self.phase.sin()?)?))
    }

    /// gamma, `[K]`, if it is not 1.
    ///
    /// # Errors
    /// If the device fails.
    pub fn gamma(&self) -> Result<Option<Tensor>, ModelError> {
        Ok(self.log_gamma.as_ref().map(Tensor::exp).transpose()?)
    }

    /// R, if it is applied at `place`.
    ///
    /// # Errors
    /// If the device fails.
    pub fn resonance(&self, place: Resonance) -> Result<Option<Tensor>, ModelError> {
        self.coupling.as_ref().filter(|coupling| coupling.place == place).map(Coupling::value).transpose()
    }

    pub(super) fn build(scope: &mut Scope, config: &TenConfig, gain: f64) -> Result<Self, ModelError> {
        let (dim, states) = (config.dim, config.states);
        let (magnitude, log_gamma) = eigenvalues(scope, config)?;
        let phase = match config.init {
            TenInit::Ring => Init::Uniform(0.0, config.max_phase),
            TenInit::Seed => Init::Ramp(std::f64::consts::TAU / states as f64),
        };
        let phase = scope.tensor("phase", &[states], phase, Role::Plain)?;
        let parts = |field| if field == Field::Complex { 2 * states } else { states };
        let input = Linear::exact(&mut scope.child("in"), parts(config.input), dim, 1.0)?;
        let select = match config.selective {
            true => Some(Linear::exact(&mut scope.child("select"), 2 * states, dim, 1.0)?),
            false => None,
        };
        let coupling = match config.resonance {
            Resonance::Off => None,
            place => {
                let matrix = scope.tensor("resonance", &[states, states], Init::Deviation(1.0), Role::Plain)?;
                Some(Coupling { place, strength: config.resonance_strength, matrix })
            }
        };
        let output = Linear::exact(&mut scope.child("out"), dim, parts(config.readout), gain)?;
        let skip = match config.skip {
            true => Some(scope.tensor("skip", &[dim], Init::Constant(gain), Role::Plain)?),
            false => None,
        };
        let precision = scope.precision();
        Ok(Cell { magnitude, phase, log_gamma, input, select, coupling, output, skip, precision })
    }
}

/// The magnitude and, for `init: ring`, ln gamma.
fn eigenvalues(scope: &mut Scope, config: &TenConfig) -> Result<(Magnitude, Option<Tensor>), ModelError> {
    let states = [config.states];
    let (ring, seed) = (Init::RingNu(RING.0, RING.1), Init::Uniform(-3.0, 0.0));
    let magnitude = match (config.init, config.selective) {
        (TenInit::Ring, false) => Magnitude::Ring(scope.tensor("nu", &states, ring, Role::Plain)?),
        (TenInit::Seed, false) => Magnitude::Seed(scope.tensor("alpha", &states, seed, Role::Plain)?),
        (TenInit::Seed, true) => Magnitude::Logit(scope.tensor("alpha", &states, seed, Role::Plain)?),
        (TenInit::Ring, true) => {
            let ring = Init::RingLogit(RING.0, RING.1);
            Magnitude::Logit(scope.tensor("alpha", &states, ring, Role::Plain)?)
        }
    };
    let log_gamma = match config.init {
        TenInit::Ring => Some(scope.derived("log_gamma", &states, || log_gamma(&magnitude))?),
        TenInit::Seed => None,
    };
    Ok((magnitude, log_gamma))
}

/// ln sqrt(1 - m^2), with which a unit input gives states of unit variance.
fn log_gamma(magnitude: &Magnitude) -> Result<Vec<f64>, ModelError> {
    let ln = |ln_m: f64| 0.5 * (-(2.0 * ln_m).exp_m1()).ln();
    Ok(magnitude.logarithms()?.into_iter().map(ln).collect())
}
