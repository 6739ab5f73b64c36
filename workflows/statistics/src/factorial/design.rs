//! The cells of a sweep, and the columns of its linear model.

use std::collections::BTreeMap;

use crate::comparisons::cells::Observation;
use crate::error::StatisticsError;

/// An axis of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// How many levels it has, two or more.
    pub levels: usize,
    /// Where the levels stand on an ordered axis, such as state counts; empty on an unordered one, such as model families.
    pub positions: Vec<f64>,
}

/// One observation of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct FactorialObservation {
    /// The level on each axis, from 0.
    pub levels: Vec<usize>,
    /// The value.
    pub value: f64,
    /// What it shares with observations of other cells, such as a seed.
    pub block: Option<u32>,
}

/// The observations by cell.
pub(crate) struct Cells {
    /// The level of each cell on each axis.
    pub levels: Vec<Vec<usize>>,
    /// Its observations.
    pub observations: Vec<Vec<Observation>>,
}

impl Cells {
    /// # Errors
    /// Without an axis, with an axis of fewer than two levels, positions that are not one finite number for each level, an
    /// observation whose levels do not fit the axes, or one that is not finite.
    pub fn of(axes: &[Axis], observations: &[FactorialObservation]) -> Result<Self, StatisticsError> {
        if axes.is_empty() {
            return Err(StatisticsError::TooFew { what: "a factorial experiment", needed: 1, found: 0 });
        }
        for axis in axes {
            if axis.levels < 2 {
                let value = axis.levels as f64;
                return Err(StatisticsError::OutOfRange {
                    name: "the number of an axis's levels",
                    value,
                    range: "at 2 or above",
                });
            }
            if !axis.positions.is_empty() && axis.positions.len() != axis.levels {
                let (first, second) = (axis.levels, axis.positions.len());
                let what = "the levels and positions of an axis";
                return Err(StatisticsError::UnequalCounts { what, first, second });
            }
            if let Some(value) = axis.positions.iter().copied().find(|at| !at.is_finite()) {
                return Err(StatisticsError::OutOfRange {
                    name: "the position of a level",
                    value,
                    range: "within the finite numbers",
                });
            }
        }
        let mut cells: BTreeMap<&[usize], Vec<Observation>> = BTreeMap::new();
        for (index, FactorialObservation { levels, value, block }) in observations.iter().enumerate() {
            if !value.is_finite() {
                return Err(StatisticsError::NotFinite { index, value: *value });
            }
            let fits = levels.len() == axes.len() && levels.iter().zip(axes).all(|(level, axis)| *level < axis.levels);
            if !fits {
                let name = "the level of an observation";
                let value = levels.iter().max().map_or(0.0, |level| *level as f64);
                return Err(StatisticsError::OutOfRange { name, value, range: "on its axis" });
            }
            cells.entry(levels).or_default().push(Observation { value: *value, block: *block });
        }
        let (levels, observations) = cells.into_iter().map(|(levels, cell)| (levels.to_vec(), cell)).unzip();
        Ok(Cells { levels, observations })
    }

    /// The columns of a term: of an axis, its levels against the last one (sum to zero); of several axes, the products.
    pub fn columns(&self, axes: &[Axis], term: &[usize]) -> Vec<Vec<f64>> {
        let rows = self.rows();
        let mut columns = vec![vec![1.0; rows.len()]];
        for &axis in term {
            let last = axes[axis].levels - 1;
            let code = |cell: usize, level: usize| match self.levels[cell][axis] {
                own if own == level => 1.0,
                own if own == last => -1.0,
                _ => 0.0,
            };
            let scaled = |column: &Vec<f64>, level: usize| -> Vec<f64> {
                std::iter::zip(column, &rows).map(|(value, (cell, _))| value * code(*cell, level)).collect()
            };
            columns = columns.iter().flat_map(|column| (0..last).map(move |level| scaled(column, level))).collect();
        }
        columns
    }

    /// A column for each block but the first.
    pub fn block_columns(&self) -> Vec<Vec<f64>> {
        let rows = self.rows();
        let mut blocks: Vec<u32> = rows.iter().filter_map(|(_, observation)| observation.block).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let column = |block: u32| rows.iter().map(|(_, own)| f64::from(u8::from(own.block == Some(block)))).collect();
        blocks.into_iter().skip(1).map(column).collect()
    }

    /// Each observation with its cell.
    pub fn rows(&self) -> Vec<(usize, Observation)> {
        let of_cell =
            |(cell, own): (usize, &Vec<Observation>)| own.iter().map(move |&one| (cell, one)).collect::<Vec<_>>();
        self.observations.iter().enumerate().flat_map(of_cell).collect()
    }
}
