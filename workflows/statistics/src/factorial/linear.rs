//! Small systems of linear equations.

/// The inverse of a symmetric positive definite matrix by Cholesky's decomposition; `None` where a pivot is below 1e-10
/// of its diagonal element, so that the matrix is singular for any practical purpose.
pub(crate) fn invert(matrix: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let n = matrix.len();
    let mut lower = vec![vec![0.0; n]; n];
    for row in 0..n {
        for column in 0..=row {
            let known: f64 = (0..column).map(|k| lower[row][k] * lower[column][k]).sum();
            let left = matrix[row][column] - known;
            lower[row][column] = if row > column {
                left / lower[column][column]
            } else if left > 1e-10 * matrix[row][row].abs() {
                left.sqrt()
            } else {
                return None;
            };
        }
    }
    let columns: Vec<Vec<f64>> = (0..n).map(|column| solve(&lower, column)).collect();
    Some(columns)
}

/// A column of the inverse, which is also a row of it.
fn solve(lower: &[Vec<f64>], unit: usize) -> Vec<f64> {
    let n = lower.len();
    let mut x = vec![0.0; n];
    for row in 0..n {
        let known: f64 = (0..row).map(|k| lower[row][k] * x[k]).sum();
        x[row] = (f64::from(u8::from(row == unit)) - known) / lower[row][row];
    }
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|k| lower[k][row] * x[k]).sum();
        x[row] = (x[row] - known) / lower[row][row];
    }
    x
}

/// The sum of squares that columns leave of `y`, and how many of them are independent, by Gram and Schmidt's method. A
/// column of which others leave less than 1e-8 is none.
pub(crate) fn residual<'a>(columns: impl IntoIterator<Item = &'a Vec<f64>>, y: &[f64]) -> (f64, usize) {
    let mut basis: Vec<Vec<f64>> = Vec::new();
    let mut left = y.to_vec();
    for column in columns {
        let mut own = column.clone();
        let before = norm(&own);
        // Twice, so that rounding leaves no part of the earlier columns.
        for _ in 0..2 {
            for known in &basis {
                remove(&mut own, known);
            }
        }
        let after = norm(&own);
        if after > 1e-8 * before {
            own.iter_mut().for_each(|value| *value /= after);
            remove(&mut left, &own);
            basis.push(own);
        }
    }
    (norm(&left).powi(2), basis.len())
}

fn norm(column: &[f64]) -> f64 {
    column.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// Removes the part along a column of length one.
fn remove(column: &mut [f64], along: &[f64]) {
    let share: f64 = std::iter::zip(&*column, along).map(|(a, b)| a * b).sum();
    for (value, part) in std::iter::zip(column, along) {
        *value -= share * part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inverse_times_its_matrix_is_one() {
        let matrix = vec![vec![4.0, 1.0, 0.5], vec![1.0, 3.0, 0.2], vec![0.5, 0.2, 2.0]];
        let inverse = invert(&matrix).unwrap();
        for row in 0..3 {
            for column in 0..3 {
                let sum: f64 = (0..3).map(|k| matrix[row][k] * inverse[k][column]).sum();
                assert!((sum - f64::from(u8::from(row == column))).abs() < 1e-14);
            }
        }
        assert_eq!(invert(&[vec![1.0, 1.0], vec![1.0, 1.0]]), None);
        assert_eq!(invert(&[]), Some(Vec::new()));
    }

    #[test]
    fn dependent_columns_count_once() {
        let columns = [vec![1.0; 4], vec![1.0, 2.0, 3.0, 4.0], vec![2.0, 3.0, 4.0, 5.0]];
        let (left, rank) = residual(&columns, &[1.0, 2.0, 2.0, 3.0]);
        assert_eq!(rank, 2);
        assert!((left - 0.2).abs() < 1e-12, "numpy.polyfit leaves 0.2: {left}");
    }
}
