//! Prologue and epilogue of a product: initial values (zero, a sum, a bias), and operations on its rows while they are in the cache.

use crate::matmul::matrix::Area;
use crate::simd::gelu;
use crate::simd::rows::{RowPointers, strip_offset};

/// What a product is added to. Places are counted as in the result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Start<'a> {
    /// Nothing: what is in the result already is written over.
    Zero,
    /// What is in the result already.
    Add,
    /// These n numbers, in each row.
    Bias(&'a [f32]),
    /// A matrix laid out as the result is, and a bias.
    Base { bias: Option<&'a [f32]>, base: *const f32 },
}

// SAFETY: the base is only read, and whoever names one vouches that it may be.
unsafe impl Send for Start<'_> {}
// SAFETY: as above.
unsafe impl Sync for Start<'_> {}

impl Start<'_> {
    /// That of a part of the result, `place` elements on, which has `width` columns from `column` on.
    pub(crate) fn part_at(self, place: usize, column: usize, width: usize) -> Self {
        match self {
            Start::Bias(bias) => Start::Bias(&bias[column..column + width]),
            Start::Base { bias, base } => Start::Base {
                bias: bias.map(|bias| &bias[column..column + width]),
                base: base.wrapping_add(place + column),
            },
            other => other,
        }
    }

    /// Writes what a row of n elements at `out` begins from, where that is not there already. The row begins `place`
    /// elements behind the first.
    ///
    /// # Safety
    ///
    /// The row must be valid for writes, that of the base for reads, and a bias have n elements.
    pub(crate) unsafe fn write_row(self, out: *mut f32, place: usize, n: usize) {
        // SAFETY: as the caller says.
        let out = unsafe { std::slice::from_raw_parts_mut(out, n) };
        match self {
            Start::Zero | Start::Add => {}
            Start::Bias(bias) => out.copy_from_slice(&bias[..n]),
            Start::Base { bias, base } => {
                // SAFETY: as the caller says.
                out.copy_from_slice(unsafe { std::slice::from_raw_parts(base.add(place), n) });
                if let Some(bias) = bias {
                    out.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
                }
            }
        }
    }
}

/// What is done with rows of a product once they are complete.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Finish {
    /// Nothing.
    Nothing,
    /// The result stays, and GELU of it goes here.
    Gelu(RowPointers<*mut f32>),
    /// The result is the gradient of GELU's value; it becomes that of its argument, which is read here, and the value
    /// itself, made again, goes there: in strips of [`STRIP`] columns, which begin so far apart. That is [`STRIP`], where its
    /// rows are contiguous.
    GeluBack { argument: RowPointers<*const f32>, value: RowPointers<*mut f32>, strips: usize },
}

// SAFETY: it is only used to write parts that do not overlap, of memory that whoever names it vouches for.
unsafe impl Send for Finish {}
// SAFETY: as above.
unsafe impl Sync for Finish {}

impl Finish {
    /// That of the part of the result that begins at this row and column.
    pub(crate) fn part_at(self, row: usize, column: usize) -> Finish {
        match self {
            Finish::Nothing => Finish::Nothing,
            Finish::Gelu(to) => Finish::Gelu(to.from(row, column)),
            Finish::GeluBack { argument, value, strips } => {
                let value = value.from(row, strip_offset(column, strips));
                Finish::GeluBack { argument: argument.from(row, column), value, strips }
            }
        }
    }

    /// Finishes rows of `width` complete elements at `out`, `stride` apart.
    ///
    /// # Safety
    ///
    /// The rows must be valid for reads and writes, there and at what the finish points to.
    pub(crate) unsafe fn finish_rows(self, out: *mut f32, extent: [usize; 2], stride: usize) {
        // SAFETY: as the caller says.
        unsafe {
            match self {
                Finish::Nothing => {}
                Finish::Gelu(to) => gelu::gelu_rows(RowPointers { at: out.cast_const(), stride }, to, extent),
                Finish::GeluBack { argument, value, strips } => {
                    gelu::gelu_gradient_rows(argument, RowPointers { at: out, stride }, value, strips, extent);
                }
            }
        }
    }
}

/// Where a product goes: rows `stride` apart, what they begin from, and what is done with them; and what comes after it.
#[derive(Clone, Copy)]
pub(crate) struct Destination<'a> {
    pub(crate) out: *mut f32,
    pub(crate) stride: usize,
    pub(crate) start: Start<'a>,
    pub(crate) finish: Finish,
    pub(crate) ahead: &'a [Area],
}

impl<'a> Destination<'a> {
    /// Where a product goes that is complete then.
    pub(crate) fn new(out: *mut f32, stride: usize, start: Start<'a>) -> Destination<'a> {
        Destination { out, stride, start, finish: Finish::Nothing, ahead: &[] }
    }
}
