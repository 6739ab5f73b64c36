//! Matrix products as the vendors' libraries define them: column-major, d = alpha op(a) op(b) + beta c + bias, and GELU or its
//! gradient after that.

use crate::memory::{Memory, Wrong};

/// The elements of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    F32,
    Bf16,
}

impl Element {
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Element::F32 => 4,
            Element::Bf16 => 2,
        }
    }
}

/// A matrix in memory, or a batch of matrices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix {
    pub(crate) at: u64,
    pub(crate) element: Element,
    /// Elements from one column to the next.
    pub(crate) leading: u64,
    /// Elements from one matrix of the batch to the next.
    pub(crate) stride: i64,
    pub(crate) transposed: bool,
}

/// A product. After transposition, `a` is [m, k], `b` is [k, n], `c` and `d` are [m, n].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Product {
    pub(crate) m: u64,
    pub(crate) n: u64,
    pub(crate) k: u64,
    pub(crate) batch: u64,
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
    pub(crate) a: Matrix,
    pub(crate) b: Matrix,
    pub(crate) c: Matrix,
    pub(crate) d: Matrix,
    /// m elements, added to each column.
    pub(crate) bias: Option<(u64, Element)>,
    pub(crate) activation: Activation,
}

/// The activation after the product. The matrix is [m, n].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Activation {
    None,
    /// The value is stored in the matrix, and its GELU is the result.
    Gelu(Matrix),
    /// The value is multiplied with the slope of GELU at the matrix's values.
    GeluGradient(Matrix),
}

/// GELU in its tanh form, x p with p = (1 + tanh u) / 2 and u = sqrt(2 / pi) (x + 0.044715 x^3); and its slope.
fn gelu(x: f32) -> (f32, f32) {
    let x = f64::from(x);
    let factor = (2.0 / std::f64::consts::PI).sqrt();
    let p = 0.5 + 0.5 * (factor * (x + 0.044_715 * x.powi(3))).tanh();
    let slope = factor * (1.0 + 3.0 * 0.044_715 * x * x);
    ((x * p) as f32, (p + 2.0 * x * p * (1.0 - p) * slope) as f32)
}

fn widened(bytes: &[u8]) -> f32 {
    match *bytes {
        [a, b] => f32::from_bits(u32::from(u16::from_le_bytes([a, b])) << 16),
        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
        _ => f32::NAN,
    }
}

/// Round to nearest, ties to even.
fn halved(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

type Refused = (&'static str, u64, Wrong);

impl Matrix {
    fn address(&self, batch: u64, row: u64, column: u64) -> u64 {
        let index = (self.stride * batch as i64) as u64;
        self.at.wrapping_add(index.wrapping_add(column * self.leading + row).wrapping_mul(self.element.bytes()))
    }

    /// The matrix of [rows, columns] in its memory layout, column after column.
    fn load(
        &self,
        memory: &Memory,
        what: &'static str,
        batch: u64,
        rows: u64,
        columns: u64,
    ) -> Result<Vec<f32>, Refused> {
        let mut values = Vec::with_capacity((rows * columns) as usize);
        for column in 0..columns {
            let at = self.address(batch, 0, column);
            let bytes = memory.read(at, rows * self.element.bytes()).map_err(|wrong| (what, at, wrong))?;
            values.extend(bytes.chunks_exact(self.element.bytes() as usize).map(widened));
        }
        Ok(values)
    }

    /// Writes the first elements of a column.
    fn store(
        &self,
        memory: &Memory,
        what: &'static str,
        batch: u64,
        column: u64,
        values: &[f32],
    ) -> Result<(), Refused> {
        let at = self.address(batch, 0, column);
        let length = values.len() as u64 * self.element.bytes();
        let bytes = memory.written(at, length).map_err(|wrong| (what, at, wrong))?;
        match self.element {
            Element::F32 => {
                for (slot, value) in bytes.chunks_exact_mut(4).zip(values) {
                    slot.copy_from_slice(&value.to_le_bytes());
                }
            }
            Element::Bf16 => {
                for (slot, value) in bytes.chunks_exact_mut(2).zip(values) {
                    slot.copy_from_slice(&halved(*value).to_le_bytes());
                }
            }
        }
        Ok(())
    }
}

impl Product {
    /// Sums are in f64, in the order of k, so that the same product gives the same bits.
    pub(crate) fn carry_out(&self, memory: &Memory) -> Result<(), Refused> {
        let Product { m, n, k, .. } = *self;
        let extent = |taken: [u64; 2], transposed: bool| if transposed { [taken[1], taken[0]] } else { taken };
        let ([am, ak], [bk, bn]) = (extent([m, k], self.a.transposed), extent([k, n], self.b.transposed));
        let bias = match self.bias {
            Some((at, element)) => {
                let matrix = Matrix { at, element, leading: m, stride: 0, transposed: false };
                matrix.load(memory, "bias", 0, m, 1)?
            }
            None => vec![0.0; m as usize],
        };
        for batch in 0..self.batch {
            let (a, b) = (self.a.load(memory, "a", batch, am, ak)?, self.b.load(memory, "b", batch, bk, bn)?);
            let before = if self.beta == 0.0 { Vec::new() } else { self.c.load(memory, "c", batch, m, n)? };
            let mut column = vec![0f32; m as usize];
            for j in 0..n {
                for (i, value) in column.iter_mut().enumerate() {
                    let i = i as u64;
                    let sum: f64 = (0..k)
                        .map(|p| {
                            let left =
                                if self.a.transposed { a[(i * k + p) as usize] } else { a[(p * m + i) as usize] };
                            let right =
                                if self.b.transposed { b[(p * n + j) as usize] } else { b[(j * k + p) as usize] };
                            f64::from(left) * f64::from(right)
                        })
                        .sum();
                    let old = before.get((j * m + i) as usize).map_or(0.0, |&old| self.beta * old);
                    *value = self.alpha * sum as f32 + old + bias[i as usize];
                }
                self.activate(memory, batch, j, &mut column)?;
                self.d.store(memory, "result", batch, j, &column)?;
            }
        }
        Ok(())
    }

    /// Applies the activation to a column.
    fn activate(&self, memory: &Memory, batch: u64, column: u64, values: &mut [f32]) -> Result<(), Refused> {
        match self.activation {
            Activation::None => {}
            Activation::Gelu(argument) => {
                argument.store(memory, "argument of GELU", batch, column, values)?;
                values.iter_mut().for_each(|value| *value = gelu(*value).0);
            }
            Activation::GeluGradient(argument) => {
                let at = argument.address(batch, 0, column);
                let size = argument.element.bytes();
                let bytes = memory.read(at, self.m * size).map_err(|wrong| ("argument of GELU", at, wrong))?;
                let arguments = bytes.chunks_exact(size as usize).map(widened);
                values.iter_mut().zip(arguments).for_each(|(value, argument)| *value *= gelu(argument).1);
            }
        }
        Ok(())
    }
}
