//! A matrix of values and its cells: GitHub Actions' rules, with typed values.
//!
//! 1. The axes' values are combined, the last axis varying fastest.
//! 2. Every combination that has all values of an `exclude` entry is removed.
//! 3. Each `include` entry, in order, is added to every combination from step 2 in which it would not overwrite an axis
//!    value (it may overwrite values of earlier entries); if there is no such combination, it becomes a separate cell.
//!
//! <https://docs.github.com/actions/reference/workflows-and-actions/workflow-syntax#jobsjob_idstrategymatrix>

use std::collections::BTreeMap;

use serde_json::Value;

use crate::scalar::weight;

/// The maximum number of cells of a matrix.
pub(crate) const MAX_CELLS: usize = 100_000;
/// The maximum number of comparisons for `include` and `exclude`.
pub(crate) const MAX_COMPARISONS: usize = 20_000_000;

/// The values of one cell, by axis.
pub(crate) type Cell = BTreeMap<String, Value>;

/// A matrix with known values.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Matrix {
    /// In the order of the file.
    pub axes: Vec<(String, Vec<Value>)>,
    pub include: Vec<Cell>,
    pub exclude: Vec<Cell>,
}

impl Matrix {
    /// The number of combinations of the axes; `None` on overflow.
    pub fn combinations(&self) -> Option<usize> {
        if self.axes.is_empty() {
            return Some(0);
        }
        self.axes.iter().try_fold(1_usize, |product, (_, values)| product.checked_mul(values.len()))
    }

    /// The cells in order; `None` if they would contain more than `most` values in total. Only for a matrix with few
    /// [`Matrix::combinations`].
    pub fn cells(&self, most: usize) -> Option<Vec<Cell>> {
        let widest = |values: &[Value]| values.iter().map(weight).max().unwrap_or(0);
        let one: usize = self.axes.iter().map(|(_, values)| widest(values)).sum();
        let mut left = most.checked_sub(self.combinations()?.checked_mul(one)?)?;
        let mut originals: Vec<Cell> = self.combined();
        originals.retain(|cell| !self.exclude.iter().any(|entry| agrees(cell, entry)));
        if self.include.is_empty() {
            return Some(originals);
        }
        let mut cells = originals.clone();
        let mut added = Vec::new();
        for entry in &self.include {
            let mut fits_somewhere = false;
            let cost: usize = entry.values().map(weight).sum();
            for (original, cell) in originals.iter().zip(&mut cells) {
                let overwrites = entry.iter().any(|(key, value)| original.get(key).is_some_and(|known| known != value));
                if !overwrites {
                    fits_somewhere = true;
                    left = left.checked_sub(cost)?;
                    cell.extend(entry.clone());
                }
            }
            if !fits_somewhere {
                left = left.checked_sub(cost)?;
                added.push(entry.clone());
            }
        }
        cells.append(&mut added);
        Some(cells)
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cell(value: &Value) -> Cell {
        value.as_object().unwrap().clone().into_iter().collect()
    }

    fn cell_list(value: &Value) -> Vec<Cell> {
        value.as_array().map(|cells| cells.iter().map(cell).collect()).unwrap_or_default()
    }

    /// `check(matrix, cells)`: a matrix as in a file, and its cells.
    fn check(matrix: Value, cells: Value) {
        let mut read = Matrix::default();
        for (key, value) in matrix.as_object().unwrap() {
            match key.as_str() {
                "include" => read.include = cell_list(value),
                "exclude" => read.exclude = cell_list(value),
                axis => read.axes.push((axis.to_owned(), value.as_array().unwrap().clone())),
            }
        }
        assert_eq!(json!(read.cells(1_000_000).unwrap()), json!(cell_list(&cells)), "{matrix}");
    }

    #[test]
    fn axes_are_combined_and_the_last_varies_fastest() {
        check(json!({"b": [1, 2], "a": ["x"]}), json!([{"a": "x", "b": 1}, {"a": "x", "b": 2}]));
        check(
            json!({"b": [1, 2], "a": ["x", 1.5]}),
            json!([{"a": "x", "b": 1}, {"a": 1.5, "b": 1}, {"a": "x", "b": 2}, {"a": 1.5, "b": 2}]),
        );
    }

    /// The example of GitHub's documentation, step by step.
    #[test]
    fn github_s_own_example() {
        let base = json!({"fruit": ["apple", "pear"], "animal": ["cat", "dog"]});
        let steps = [
            json!({"color": "green"}),
            json!({"color": "pink", "animal": "cat"}),
            json!({"fruit": "apple", "shape": "circle"}),
            json!({"fruit": "banana"}),
            json!({"fruit": "banana", "animal": "cat"}),
        ];
        let mut matrix = base;
        matrix["include"] = json!(steps);
        check(
            matrix,
            json!([
                {"fruit": "apple", "animal": "cat", "color": "pink", "shape": "circle"},
                {"fruit": "apple", "animal": "dog", "color": "green", "shape": "circle"},
                {"fruit": "pear", "animal": "cat", "color": "pink"},
                {"fruit": "pear", "animal": "dog", "color": "green"},
                {"fruit": "banana"},
                {"fruit": "banana", "animal": "cat"},
            ]),
        );
    }

    #[test]
    fn include_and_exclude_case_by_case() {
        let cases = [
            // A subset of the axes is sufficient to exclude.
            (json!({"a": [1, 2], "b": [1, 2], "exclude": [{"a": 1}]}), json!([{"a": 2, "b": 1}, {"a": 2, "b": 2}])),
            // All axes exclude one cell.
            (
                json!({"a": [1, 2], "b": [1, 2], "exclude": [{"a": 1, "b": 2}]}),
                json!([{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 2}]),
            ),
            // Values are typed: a text differs from the number.
            (json!({"a": [16, "16"], "exclude": [{"a": "16"}]}), json!([{"a": 16}])),
            // `include` can add an excluded cell: exclude comes first.
            (json!({"a": [1, 2], "exclude": [{"a": 1}], "include": [{"a": 1}]}), json!([{"a": 2}, {"a": 1}])),
            // An entry that only adds goes to every cell.
            (json!({"a": [1, 2], "include": [{"x": 0}]}), json!([{"a": 1, "x": 0}, {"a": 2, "x": 0}])),
            // An entry with values of the axes goes to the cells that have them.
            (json!({"a": [1, 2], "include": [{"a": 2, "x": 0}]}), json!([{"a": 1}, {"a": 2, "x": 0}])),
            // An entry that would overwrite a value of an axis everywhere is a separate cell.
            (json!({"a": [1], "include": [{"a": 3, "x": 0}]}), json!([{"a": 1}, {"a": 3, "x": 0}])),
            // Added values may be overwritten; later entries do not extend added cells.
            (
                json!({"a": [1], "include": [{"x": 0}, {"x": 1}, {"a": 2}, {"a": 2, "y": 0}]}),
                json!([{"a": 1, "x": 1}, {"a": 2}, {"a": 2, "y": 0}]),
            ),
            // Without axes, every entry is a cell.
            (json!({"include": [{"a": 1}, {"b": 2}]}), json!([{"a": 1}, {"b": 2}])),
            // If every cell is excluded, there is nothing to extend.
            (json!({"a": [1], "exclude": [{"a": 1}], "include": [{"x": 0}]}), json!([{"x": 0}])),
            // Lists and mappings are values like any other.
            (json!({"m": [{"k": [1]}, {"k": [2]}], "exclude": [{"m": {"k": [2]}}]}), json!([{"m": {"k": [1]}}])),
        ];
        for (matrix, cells) in cases {
            check(matrix, cells);
        }
    }

    #[test]
    fn sizes_are_known_before_anything_is_built() {
        let ten: Vec<Value> = (0..10).map(Value::from).collect();
        let matrix = |axes: usize| Matrix {
            axes: (0..axes).map(|axis| (axis.to_string(), ten.clone())).collect(),
            ..Matrix::default()
        };
        assert_eq!(matrix(0).combinations(), Some(0));
        assert_eq!(matrix(6).combinations(), Some(1_000_000));
        assert_eq!(matrix(60).combinations(), None);
        assert_eq!(matrix(6).cells(1_000_000), None);
        let mut wide = matrix(1);
        wide.include = (0..10).map(|n| cell(&json!({"x": [n, n, n]}))).collect();
        assert_eq!(wide.cells(10 + 10 * 10 * 4 - 1), None);
        assert!(wide.cells(10 + 10 * 10 * 4).is_some());
    }
}
