//! Capture and replay of work that runs again and again with inputs of the same shapes, such as a training step.
//!
//! On a device where launching an operation costs more than the operation itself, a backend can capture the launches of a unit of work
//! and replay all of them at once (a CUDA graph), without running the code that asked for them. What that code decides on the host must
//! then be the same each time. What differs reaches the work as [`Feed`]s, through the device's memory.

use crate::array::Array;
use crate::device::Device;
use crate::dtype::{DType, HostData};
use crate::error::{Result, TensorError};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// An input that differs from time to time: elements on their way to a device.
#[derive(Debug, Clone)]
pub struct Feed {
    /// The elements, row-major.
    pub data: HostData,
    /// Their shape.
    pub shape: Shape,
    /// For ids: they stay below this, every time.
    pub below: Option<u32>,
}

impl Feed {
    /// Elements that are no ids.
    pub fn new(data: HostData, shape: impl Into<Shape>) -> Feed {
        Feed { data, shape: shape.into(), below: None }
    }

    /// Ids that stay below `below`, every time.
    pub fn ids(ids: Vec<u32>, shape: impl Into<Shape>, below: usize) -> Feed {
        Feed { data: HostData::U32(ids), shape: shape.into(), below: Some(u32::try_from(below).unwrap_or(u32::MAX)) }
    }

    /// Numbers in the type that models compute in where their parameters have the type `dtype`: f64 or f32.
    pub fn numbers(numbers: &[f64], dtype: DType, shape: impl Into<Shape>) -> Feed {
        let dtype = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        Feed::new(HostData::from_f64(numbers, dtype), shape)
    }

    /// The input on a device.
    pub fn upload(self, device: &Device) -> Result<Tensor> {
        self.check_data()?;
        Tensor::from_host(device, self.data, self.shape)
    }

    fn check_data(&self) -> Result<()> {
        let name = "feed";
        if self.shape.check_size(name)? != self.data.len() {
            let problem = format!("{} elements do not fill the shape", self.data.len());
            return Err(TensorError::new(name, problem).shapes([&self.shape]));
        }
        let (HostData::U32(ids), Some(below)) = (&self.data, self.below) else { return Ok(()) };
        match ids.iter().position(|id| *id >= below) {
            None => Ok(()),
            Some(place) => {
                let problem = format!("id {} at position {place} is not below {below}", ids[place]);
                Err(TensorError::new(name, problem).shapes([&self.shape]))
            }
        }
    }
}

/// A backend's cache of captured work; see [`Replayer`], which keeps its rules.
pub trait ReplayBackend: Send {
    /// Replays the work that is known by `key` and gives its results, or gives the inputs to run it with. In the second case the
    /// caller runs the work and calls [`ReplayBackend::end`].
    fn begin(&mut self, key: &str, state: &[&Array], inputs: Vec<Feed>) -> Result<BackendReplay>;
    /// The results of the work that [`ReplayBackend::begin`] asked for; none if it failed.
    fn end(&mut self, results: Option<&[Array]>);
    /// Why some work is not replayed; each reason is given once.
    fn remark(&mut self) -> Option<String>;
}

/// The result of [`ReplayBackend::begin`].
#[derive(Debug)]
pub enum BackendReplay {
    /// The work was replayed; these are its results.
    Replayed(Vec<Array>),
    /// The work has to run with these inputs.
    Eager(Vec<Array>),
}

/// Runs units of work on a device, and replays them where the backend can.
///
/// A unit of work is known by a key. The caller promises, for one key and inputs of the same shapes:
///
/// - The work asks for the same operations each time, on its inputs, on the `state`, and on what it computes itself. Nothing else that
///   differs reaches it, and it reads nothing from the device.
/// - What it changes is the state, in place, and its results.
///
/// A backend checks what it can of this, and runs the work operation by operation where it finds otherwise. The results are valid
/// until the next unit of work.
pub struct Replayer {
    device: Device,
    backend: Option<Box<dyn ReplayBackend>>,
}

/// The result of [`Replayer::begin`].
pub enum Replay<'a> {
    /// The work was replayed; these are its results.
    Replayed(Vec<Tensor>),
    /// The caller has to run the work.
    Eager(EagerWork<'a>),
}

/// A unit of work that runs operation by operation. Dropping it unfinished reports that it failed.
pub struct EagerWork<'a> {
    inputs: Vec<Tensor>,
    replayer: &'a mut Replayer,
    finished: bool,
}

impl Replayer {
    /// For work on `device`.
    pub fn new(device: &Device) -> Replayer {
        Replayer { device: device.clone(), backend: device.kernels().replay_backend() }
    }

    /// The same, but nothing is captured or replayed.
    pub fn disabled(device: &Device) -> Replayer {
        Replayer { device: device.clone(), backend: None }
    }

    /// Replays the work that is known by `key` if it was captured, or asks the caller to run it. `state` is all that the work uses beside
    /// its inputs, and all that it changes in place.
    pub fn begin(&mut self, key: &str, state: &[&Tensor], inputs: Vec<Feed>) -> Result<Replay<'_>> {
        inputs.iter().try_for_each(Feed::check_data)?;
        let device = self.device.clone();
        let tensors = |arrays: Vec<Array>| arrays.into_iter().map(|array| Tensor::from_array(&device, array)).collect();
        let inputs = match &mut self.backend {
            None => inputs.into_iter().map(|input| input.upload(&device)).collect::<Result<Vec<_>>>()?,
            Some(backend) => {
                let state: Vec<&Array> = state.iter().map(|tensor| tensor.array()).collect();
                match backend.begin(key, &state, inputs)? {
                    BackendReplay::Replayed(results) => return Ok(Replay::Replayed(tensors(results))),
                    BackendReplay::Eager(inputs) => tensors(inputs),
                }
            }
        };
        Ok(Replay::Eager(EagerWork { inputs, replayer: self, finished: false }))
    }

    /// Why some work is not replayed, as a sentence for the log; each reason is given once.
    pub fn remark(&mut self) -> Option<String> {
        self.backend.as_mut().and_then(|backend| backend.remark())
    }
}

impl EagerWork<'_> {
    /// The inputs, in their order.
    pub fn inputs(&self) -> &[Tensor] {
        &self.inputs
    }

    /// Ends the work with these results.
    pub fn finish(mut self, results: Vec<Tensor>) -> Vec<Tensor> {
        self.finished = true;
        if let Some(backend) = &mut self.replayer.backend {
            let arrays: Vec<Array> = results.iter().map(|tensor| tensor.array().clone()).collect();
            backend.end(Some(&arrays));
        }
        results
    }
}

impl Drop for EagerWork<'_> {
    fn drop(&mut self) {
        if !self.finished
            && let Some(backend) = &mut self.replayer.backend
        {
            backend.end(None);
        }
    }
}
