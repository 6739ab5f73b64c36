//! The one error of this layer: which operation, what is wrong, the shapes involved, and what to do about it.

use std::fmt;

use crate::shape::Shape;

/// What kind of failure it is: what those who start runs tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Class {
    /// The operation was refused, or could not be carried out as it was asked for.
    #[default]
    Refused,
    /// The device, or the host, has no memory for it.
    OutOfMemory,
    /// A kernel failed on the device, which is of no more use to this process.
    Fault,
    /// The device is gone, for this process at least.
    Lost,
}

/// A refused operation. Nothing has been changed when it is returned.
///
/// It is a pointer, so that results are small: most are passed on, and hold no error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorError(Box<Parts>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts {
    class: Class,
    operation: &'static str,
    problem: String,
    shapes: Vec<Shape>,
    hint: Option<String>,
}

/// The result of every operation of this layer.
pub type Result<T, E = TensorError> = std::result::Result<T, E>;

impl TensorError {
    /// An error of `operation`; `problem` is a lower-case fragment.
    #[cold]
    pub fn new(operation: &'static str, problem: impl Into<String>) -> TensorError {
        let (class, problem) = (Class::Refused, problem.into());
        TensorError(Box::new(Parts { class, operation, problem, shapes: Vec::new(), hint: None }))
    }

    /// The same error in another class.
    pub fn of_class(mut self, class: Class) -> TensorError {
        self.0.class = class;
        self
    }

    /// The same error with the shapes that were involved, in the order of the operation's arguments.
    pub fn shapes<'a>(mut self, shapes: impl IntoIterator<Item = &'a Shape>) -> TensorError {
        self.0.shapes.extend(shapes.into_iter().cloned());
        self
    }

    /// The same error with advice.
    pub fn hint(mut self, hint: impl Into<String>) -> TensorError {
        self.0.hint = Some(hint.into());
        self
    }

    /// What kind of failure it is.
    pub fn class(&self) -> Class {
        self.0.class
    }

    /// The operation that refused.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// What is wrong, without shapes and hint.
    pub fn problem(&self) -> &str {
        &self.0.problem
    }

    /// What to do about it, where that is known.
    pub fn advice(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The shapes that were involved.
    pub fn involved(&self) -> &[Shape] {
        &self.0.shapes
    }
}

impl fmt::Display for TensorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.operation, self.0.problem)?;
        if !self.0.shapes.is_empty() {
            let list: Vec<String> = self.0.shapes.iter().map(Shape::to_string).collect();
            write!(f, " (shapes {})", list.join(", "))?;
        }
        match &self.0.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for TensorError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_where_and_what_to_do() {
        let error = TensorError::new("matmul", "inner dimensions differ")
            .shapes([&Shape::from([2, 3]), &Shape::from([4, 5])])
            .hint("transpose one side");
        assert_eq!(error.to_string(), "matmul: inner dimensions differ (shapes [2, 3], [4, 5]); transpose one side");
    }
}
