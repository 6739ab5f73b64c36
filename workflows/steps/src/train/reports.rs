//! The metric points of a training, kept so that an attempt that resumes from a checkpoint can report them again: the
//! store keeps the points of each attempt separately, and the last attempt's curves must be complete.

use crate::context::Context;

/// Every point so far, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reports {
    names: Vec<String>,
    points: Vec<Point>,
}

/// A point of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The index of its name.
    pub name: u32,
    /// The training step.
    pub step: u64,
    /// The value.
    pub value: f64,
}

impl Reports {
    /// Reports a point, and stores it.
    pub fn metric(&mut self, context: &mut dyn Context, name: &str, step: u64, value: f64) {
        context.metric(name, step, value);
        let known = self.names.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        self.points.push(Point { name: index as u32, step, value });
    }

    /// The latest value of a metric.
    #[must_use]
    pub fn last(&self, name: &str) -> Option<f64> {
        let index = self.names.iter().position(|known| known == name)?;
        self.points.iter().rfind(|point| point.name as usize == index).map(|point| point.value)
    }

    /// Reports every point again.
    pub fn replay(&self, context: &mut dyn Context) {
        for point in &self.points {
            if let Some(name) = self.names.get(point.name as usize) {
                context.metric(name, point.step, point.value);
            }
        }
    }

    /// The names, and the points, which refer to them.
    #[must_use]
    pub fn parts(&self) -> (&[String], &[Point]) {
        (&self.names, &self.points)
    }

    /// Restores reports from names and points; `None` if a point has no name.
    #[must_use]
    pub fn of(names: Vec<String>, points: Vec<Point>) -> Option<Self> {
        points.iter().all(|point| (point.name as usize) < names.len()).then_some(Reports { names, points })
    }
}
