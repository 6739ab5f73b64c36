//! A matrix of values, and the cells that it stands for: GitHub Actions' rules, with typed values.
//!
//! 1. The axes' values are combined, the last axis varying fastest.
//! 2. Every combination that has all the values of some `exclude` entry is taken away.
//! 3. Each `include` entry, in order, is added to every combination of step 2 of which it would not overwrite an
//!    axis's value (it may overwrite what an earlier entry added); if there is none, it becomes a cell of its own.
//!
//! <https://docs.github.com/actions/reference/workflows-and-actions/workflow-syntax#jobsjob_idstrategymatrix>

use std::collections::BTreeMap;

use serde_json::Value;

/// The most cells of one matrix.
pub(crate) const MAX_CELLS: usize = 100_000;
/// The most comparisons that `include` and `exclude` may take.
pub(crate) const MAX_COMPARISONS: usize = 20_000_000;

/// The values of one cell, by axis.
pub(crate) type Cell = BTreeMap<String, Value>;

/// A matrix with its values known.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Matrix {
    /// In the order of the file.
    pub axes: Vec<(String, Vec<Value>)>,
    pub include: Vec<Cell>,
    pub exclude: Vec<Cell>,
}

impl Matrix {
    /// How many combinations the axes have; `None` beyond what fits a number.
    pub fn combinations(&self) -> Option<usize> {
        if self.axes.is_empty() {
            return Some(0);
        }
        self.axes.iter().try_fold(1_usize, |product, (_, values)| product.checked_mul(values.len()))
    }

    /// The cells in order. Only for a matrix of which [`Matrix::combinations`] is small.
    pub fn cells(&self) -> Vec<Cell> {
        let mut originals: Vec<Cell> = self.combined();
        originals.retain(|cell| !self.exclude.iter().any(|entry| agrees(cell, entry)));
        let mut cells = originals.clone();
        let mut added = Vec::new();
        for entry in &self.include {
            let mut fits_somewhere = false;
            for (original, cell) in originals.iter().zip(&mut cells) {
                let overwrites = entry.iter().any(|(key, value)| original.get(key).is_some_and(|known| known != value));
                if !overwrites {
                    fits_somewhere = true;
                    cell.extend(entry.clone());
                }
            }
            if !fits_somewhere {
                added.push(entry.clone());
            }
        }
        cells.append(&mut added);
        cells
    }

    fn combined(&self) -> Vec<Cell> {
        if self.axes.is_empty() {
            return Vec::new();
        }
        let mut cells = vec![Cell::new()];
        for (axis, values) in &self.axes {
            cells = cells
                .iter()
                .flat_map(|cell| {
                    values.iter().map(|value| {
                        let mut cell = cell.clone();
                        cell.insert(axis.clone(), value.clone());
                        cell
                    })
                })
                .collect();
        }
        cells
    }
}

/// Whether a cell has every value of an entry.
fn agrees(cell: &Cell, entry: &Cell) -> bool {
    entry.iter().all(|(key, value)| cell.get(key) == Some(value))
}
