//! A vendor's failures as errors of tensors.

use assay_tensor::{Class, TensorError};

use crate::driver::DriverError;

/// The error of `operation` that a failed call makes, in its class, with what a person can do about it.
pub(crate) fn to_tensor_error(operation: &'static str, error: DriverError) -> TensorError {
    let problem = error.to_string();
    match error {
        DriverError::OutOfMemory { .. } => TensorError::new(operation, problem)
            .of_class(Class::OutOfMemory)
            .hint("use a smaller batch, model or sequence, or leave the device to one run at a time"),
        DriverError::Fault(_) => TensorError::new(operation, problem)
            .of_class(Class::Fault)
            .hint("this is a defect of the backend: please report it with the workflow"),
        DriverError::Lost(_) => TensorError::new(operation, problem)
            .of_class(Class::Lost)
            .hint("the vendor's tools and the system's log say what happened to the device"),
        DriverError::Compile { .. } | DriverError::Call { .. } => TensorError::new(operation, problem),
    }
}
