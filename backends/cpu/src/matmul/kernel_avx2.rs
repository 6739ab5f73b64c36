//! The register tile of AVX2 with FMA: up to 6 rows by 16 columns of a product, half a strip.
//!
//! A step of k is 12 fused multiply-adds, which take 6 cycles on both units, with 2 vectors of B and 6 numbers of A: 8 loads of the 12
//! that fit into the same cycles. The 12 accumulators, the vectors of B and a number of A take 15 of 16 registers. A panel of 14 rows is
//! cut into tiles of 5, 5 and 4 rows.

use std::arch::x86_64::{
    __m256, __m256i, _mm256_add_ps, _mm256_broadcast_ss, _mm256_cmpgt_epi32, _mm256_fmadd_ps, _mm256_loadu_ps,
    _mm256_maskload_ps, _mm256_maskstore_ps, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_setzero_ps, _mm256_storeu_ps,
};

use crate::matmul::epilogue::Start;
use crate::matmul::kernel512::TileOperands;
use crate::matmul::matrix::PANEL_ROOM;
use crate::simd::rows::STRIP;

/// Columns of a tile.
const HALF: usize = STRIP / 2;
/// Columns of a vector.
const LANES: usize = 8;
/// Rows of a tile.
const ROWS: usize = 6;

/// The accumulators of a row: its left and its right vector.
type Row = [__m256; 2];

/// `rows` rows by up to [`STRIP`] columns of the result.
///
/// # Safety
///
/// The machine must have AVX2 and FMA. `a` holds the rows, of `depth` elements at the strides given, `b` a packed strip; the rows of
/// `columns` elements at `out` are valid for reads and writes.
#[target_feature(enable = "avx2,fma")]
pub(crate) unsafe fn multiply_strip(call: TileOperands, rows: usize, columns: usize, start: Start<'_>) {
    let tiles = rows.div_ceil(ROWS).max(1);
    for from in (0..columns).step_by(HALF) {
        let (width, start) = (HALF.min(columns - from), start.part_at(0, from, HALF.min(columns - from)));
        for tile in 0..tiles {
            let (first, end) = (tile * rows / tiles, (tile + 1) * rows / tiles);
            let call = TileOperands {
                a: call.a.wrapping_add(first * call.strides[0]),
                b: call.b.wrapping_add(from),
                out: call.out.wrapping_add(first * call.stride + from),
                ..call
            };
            let start = start.part_at(first * call.stride, 0, width);
            // SAFETY: the caller vouches for all rows and columns, and these are some of them.
            unsafe {
                match end - first {
                    6 => multiply_rows::<6>(call, width, start),
                    5 => multiply_rows::<5>(call, width, start),
                    4 => multiply_rows::<4>(call, width, start),
                    3 => multiply_rows::<3>(call, width, start),
                    2 => multiply_rows::<2>(call, width, start),
                    1 => multiply_rows::<1>(call, width, start),
                    _ => {}
                }
            }
        }
    }
}

/// Rows of a packed panel, with distances that the compiler knows, or any.
///
/// # Safety
///
/// As [`multiply_tile`].
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply_rows<const R: usize>(call: TileOperands, columns: usize, start: Start<'_>) {
    // SAFETY: as the caller says.
    unsafe {
        match call.strides {
            [1, PANEL_ROOM] => multiply_tile::<R>(call, [1, PANEL_ROOM], columns, start),
            strides => multiply_tile::<R>(call, strides, columns, start),
        }
    }
}

/// R rows by up to [`HALF`] columns.
///
/// # Safety
///
/// As [`multiply_strip`], of R rows and these columns.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn multiply_tile<const R: usize>(
    call: TileOperands,
    [down, across]: [usize; 2],
    columns: usize,
    start: Start<'_>,
) {
    let TileOperands { depth, mut a, mut b, out, stride, .. } = call;
    // SAFETY: the caller vouches for all.
    unsafe {
        let mut sums = load_rows::<R>(out, stride, columns, start);
        for _ in 0..depth {
            let (left, right) = (_mm256_loadu_ps(b), _mm256_loadu_ps(b.add(LANES)));
            for (r, sum) in sums.iter_mut().enumerate() {
                let x = _mm256_broadcast_ss(&*a.add(r * down));
                *sum = [_mm256_fmadd_ps(x, left, sum[0]), _mm256_fmadd_ps(x, right, sum[1])];
            }
            a = a.add(across);
            b = b.add(STRIP);
        }
        for (r, sum) in sums.into_iter().enumerate() {
            store_row(out.wrapping_add(r * stride), columns, sum);
        }
    }
}

/// What R rows of the result begin from.
///
/// # Safety
///
/// The R rows of `columns` elements at `out`, and those of a base, are valid for reads.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn load_rows<const R: usize>(out: *const f32, stride: usize, columns: usize, start: Start<'_>) -> [Row; R] {
    let mut rows = [[_mm256_setzero_ps(); 2]; R];
    for (r, row) in rows.iter_mut().enumerate() {
        // SAFETY: as the caller says; a bias has as many elements.
        *row = unsafe {
            match start {
                Start::Zero => *row,
                Start::Add => load_row(out.wrapping_add(r * stride), columns),
                Start::Bias(bias) => load_row(bias.as_ptr(), columns),
                Start::Base { bias, base } => {
                    let base = load_row(base.wrapping_add(r * stride), columns);
                    match bias {
                        None => base,
                        Some(bias) => {
                            let bias = load_row(bias.as_ptr(), columns);
                            [_mm256_add_ps(base[0], bias[0]), _mm256_add_ps(base[1], bias[1])]
                        }
                    }
                }
            }
        };
    }
    rows
}

/// # Safety
///
/// The elements of the columns are valid for reads.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn load_row(at: *const f32, columns: usize) -> Row {
    // SAFETY: the caller vouches for whole rows; masked loads touch the elements of the mask only.
    unsafe {
        match columns >= HALF {
            true => [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(LANES))],
            false => [
                _mm256_maskload_ps(at, column_mask(columns)),
                _mm256_maskload_ps(at.wrapping_add(LANES), column_mask(columns.saturating_sub(LANES))),
            ],
        }
    }
}

/// # Safety
///
/// The elements of the columns are valid for writes.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn store_row(at: *mut f32, columns: usize, [left, right]: Row) {
    // SAFETY: as for `load_row`.
    unsafe {
        match columns >= HALF {
            true => {
                _mm256_storeu_ps(at, left);
                _mm256_storeu_ps(at.add(LANES), right);
            }
            false => {
                _mm256_maskstore_ps(at, column_mask(columns), left);
                let rest = column_mask(columns.saturating_sub(LANES));
                _mm256_maskstore_ps(at.wrapping_add(LANES), rest, right);
            }
        }
    }
}

/// All bits of the first lanes.
#[target_feature(enable = "avx2")]
#[inline]
fn column_mask(columns: usize) -> __m256i {
    _mm256_cmpgt_epi32(_mm256_set1_epi32(columns.min(LANES) as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
}
