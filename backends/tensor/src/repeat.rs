//! Work that is repeated with other inputs of the same shapes, such as a training step.
//!
//! A device on which starting an operation costs more than the operation itself can note what a unit of work starts, and
//! start all of it at once the next time (a CUDA graph), without running the code that asked for it. What such code decides on the host
//! must then be the same each time; what differs comes to it as [`Feed`]s, through the device's memory.

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

/// A backend's means to repeat units of work; see [`Repeated`], which keeps its rules.
pub trait Repeater: Send {
    /// Either starts the work that is known by `key` and gives its results, or gives the inputs to do it with: then the
    /// work follows, and [`Repeater::end`].
    fn begin(&mut self, key: &str, state: &[&Array], inputs: Vec<Feed>) -> Result<Begun>;
    /// The results of the work that [`Repeater::begin`] asked for; none if it failed.
    fn end(&mut self, results: Option<&[Array]>);
    /// Why something is not repeated, once each.
    fn remark(&mut self) -> Option<String>;
}

/// The result of [`Repeater::begin`].
#[derive(Debug)]
pub enum Begun {
    /// Everything was started; these are its results.
    Repeated(Vec<Array>),
    /// The work has to be done with these inputs.
    Anew(Vec<Array>),
}

/// Units of work that may be repeated on a device.
///
/// A unit of work is known by a key. The caller promises, for one key and inputs of the same shapes:
///
/// - The work asks for the same operations each time, on its inputs, on the `state`, and on what it makes itself. It is told
///   nothing else that differs, and reads nothing from the device.
/// - What it changes is the state, in place, and its results.
///
/// A device that repeats checks what it can of this, and does the work anew where it finds otherwise. The results are there
/// until the next unit of work.
pub struct Repeated {
    device: Device,
    repeater: Option<Box<dyn Repeater>>,
}

/// What [`Repeated::begin`] asks for.
pub enum Turn<'a> {
    /// Nothing: everything was started, and these are the results.
    Done(Vec<Tensor>),
    /// The work.
    Work(Work<'a>),
}

/// A unit of work that is to be done now. Dropping it says that it failed.
pub struct Work<'a> {
    inputs: Vec<Tensor>,
    repeated: &'a mut Repeated,
    /// Whether it is over.
    ended: bool,
}

impl Repeated {
    /// For work on `device`.
    pub fn new(device: &Device) -> Repeated {
        Repeated { device: device.clone(), repeater: device.kernels().repeater() }
    }

    /// The same, but everything is done anew each time.
    pub fn never(device: &Device) -> Repeated {
        Repeated { device: device.clone(), repeater: None }
    }

    /// Starts what is known by `key` if it can be repeated, or asks for it. `state` is all that the work uses beside its
    /// inputs and changes in place.
    pub fn begin(&mut self, key: &str, state: &[&Tensor], inputs: Vec<Feed>) -> Result<Turn<'_>> {
        inputs.iter().try_for_each(Feed::check_data)?;
        let device = self.device.clone();
        let tensors = |arrays: Vec<Array>| arrays.into_iter().map(|array| Tensor::from_array(&device, array)).collect();
        let inputs = match &mut self.repeater {
            None => inputs.into_iter().map(|input| input.upload(&device)).collect::<Result<Vec<_>>>()?,
            Some(repeater) => {
                let state: Vec<&Array> = state.iter().map(|tensor| tensor.array()).collect();
                match repeater.begin(key, &state, inputs)? {
                    Begun::Repeated(results) => return Ok(Turn::Done(tensors(results))),
                    Begun::Anew(inputs) => tensors(inputs),
                }
            }
        };
        Ok(Turn::Work(Work { inputs, repeated: self, ended: false }))
    }

    /// Why something is not repeated, for a person; once each.
    pub fn remark(&mut self) -> Option<String> {
        self.repeater.as_mut().and_then(|repeater| repeater.remark())
    }
}

impl Work<'_> {
    /// The inputs, in their order.
    pub fn inputs(&self) -> &[Tensor] {
        &self.inputs
    }

    /// The work is done, with these results.
    pub fn done(mut self, results: Vec<Tensor>) -> Vec<Tensor> {
        self.ended = true;
        if let Some(repeater) = &mut self.repeated.repeater {
            let arrays: Vec<Array> = results.iter().map(|tensor| tensor.array().clone()).collect();
            repeater.end(Some(&arrays));
        }
        results
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        if !self.ended
            && let Some(repeater) = &mut self.repeated.repeater
        {
            repeater.end(None);
        }
    }
}
