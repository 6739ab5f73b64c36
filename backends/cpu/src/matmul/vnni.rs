//! Byte products with AVX-512 VNNI: weights laid out so that sums need no reduction. `bytes_avx2.rs` multiplies the same layout.
//!
//! ```text
//! line      16 columns (outputs) times 4 depths (inputs): 64 bytes, what one instruction takes
//! strip     the lines of 16 columns, one for each 4 depths
//! group     4 strips, whose lines of the same depths lie one after the other: 64 columns; the last may have fewer
//! ```
//!
//! An instruction multiplies unsigned bytes with signed ones and adds groups of 4 products to 16 sums. So activations are
//! shifted by 128, and sums begin at -128 sum q of their columns, which takes the shift out again.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::ops::Range;

use assay_tensor::{Array, Result};

#[cfg(target_arch = "x86_64")]
use crate::matmul::bytes_avx2;
use crate::memory::blocks::Block;
use crate::memory::packed::{Line, Lines, PackedBytes, Prepared};
use crate::memory::storage::{Allocator, i8s, prepared_of};
#[cfg(target_arch = "x86_64")]
use crate::simd::instructions::ByteInstructions;

/// Columns of a strip.
pub(crate) const STRIP: usize = 16;
/// Strips of a group.
const STRIPS: usize = 4;
/// Columns of a group.
pub(crate) const GROUP: usize = STRIP * STRIPS;
/// Depths of a line.
pub(crate) const DEPTHS: usize = 4;
/// Rows that are multiplied at a time, where there are so many.
pub(crate) const ROWS: usize = 4;

/// Elements of a block that a line takes.
const ELEMENTS: usize = size_of::<Line>() / size_of::<f32>();

impl Lines {
    /// So many lines of zeros. Errors where there is no memory for them.
    fn zeroed_lines(memory: &Allocator, count: usize) -> Result<Lines> {
        // Kept blocks begin at a page, others anywhere.
        Ok(match memory.zeroed_block("int8_linear", count * ELEMENTS)? {
            kept @ Block::Kept { .. } => Lines::Many(kept),
            Block::Heap(_) => Lines::Few(vec![Line([0; 64]); count]),
        })
    }

    fn as_slice(&self) -> &[Line] {
        match self {
            Lines::Few(lines) => lines,
            // SAFETY: the block begins at a page, so it is aligned as lines are, and any bits are bytes.
            Lines::Many(block) => unsafe { std::slice::from_raw_parts(block.as_ptr().cast(), block.len() / ELEMENTS) },
        }
    }

    fn as_mut_slice(&mut self) -> &mut [Line] {
        match self {
            Lines::Few(lines) => lines,
            // SAFETY: as above, and the block is borrowed mutably.
            Lines::Many(block) => unsafe {
                std::slice::from_raw_parts_mut(block.as_mut_ptr().cast(), block.len() / ELEMENTS)
            },
        }
    }
}

impl PackedBytes {
    /// Lays out `q`, i8 in the bits of u8. Errors where there is no memory for it.
    pub(crate) fn new(memory: &Allocator, q: &[u8], shape: [usize; 2]) -> Result<PackedBytes> {
        let [n, k] = shape;
        let (strips, depth) = (n.div_ceil(STRIP), k.div_ceil(DEPTHS));
        let mut kept = Lines::zeroed_lines(memory, strips * depth)?;
        let lines = kept.as_mut_slice();
        let mut starts = vec![0i32; strips * STRIP];
        for (column, (row, start)) in q.chunks_exact(k.max(1)).zip(&mut starts).enumerate() {
            *start = -128 * row.iter().map(|q| i32::from(*q as i8)).sum::<i32>();
            let (group, strip) = (column / GROUP, column % GROUP / STRIP);
            let together = STRIPS.min(strips - group * STRIPS);
            let first = group * STRIPS * depth + strip;
            for (step, bytes) in row.chunks(DEPTHS).enumerate() {
                let Line(line) = &mut lines[first + step * together];
                line[column % STRIP * DEPTHS..][..bytes.len()].copy_from_slice(bytes);
            }
        }
        Ok(PackedBytes { shape, lines: kept, starts })
    }

    /// The lines of a group and what its columns begin at.
    fn group_lines(&self, group: usize) -> (&[Line], &[i32]) {
        let depth = self.shape[1].div_ceil(DEPTHS);
        let from = group * STRIPS;
        let to = (from + STRIPS).min(self.starts.len() / STRIP);
        (&self.lines.as_slice()[from * depth..to * depth], &self.starts[from * STRIP..to * STRIP])
    }

    /// sum (a - 128) q step scale of `R` rows of levels, with their steps, and of columns that begin with a group; a row
    /// has K levels, and any up to a multiple of [`DEPTHS`]. `scale` has N elements, each of `out` one for each of the columns.
    ///
    /// # Safety
    ///
    /// The machine must have the instructions.
    #[cfg(target_arch = "x86_64")]
    pub(crate) unsafe fn multiply_rows<const R: usize>(
        &self,
        by: ByteInstructions,
        rows: [(&[u8], f32); R],
        scale: &[f32],
        columns: Range<usize>,
        mut out: [&mut [f32]; R],
    ) {
        for (index, scale) in scale[columns.clone()].chunks(GROUP).enumerate() {
            let (lines, starts) = self.group_lines(columns.start / GROUP + index);
            let out = out.each_mut().map(|y| &mut y[index * GROUP..][..scale.len()]);
            // SAFETY: the caller vouches for the instructions.
            unsafe {
                match by {
                    ByteInstructions::Avx512Vnni => multiply_group(rows, lines, starts, scale, out),
                    ByteInstructions::AvxVnni => bytes_avx2::multiply_group(true, rows, lines, starts, scale, out),
                    ByteInstructions::Avx2 => bytes_avx2::multiply_group(false, rows, lines, starts, scale, out),
                }
            }
        }
    }
}

/// [`PackedBytes::multiply_rows`] of a group. One row alone has too few sums to hide that each waits for the last one.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn multiply_group<const R: usize>(
    rows: [(&[u8], f32); R],
    lines: &[Line],
    starts: &[i32],
    scale: &[f32],
    out: [&mut [f32]; R],
) {
    match (R, starts.len() / STRIP) {
        (1, 4) => multiply_tile::<R, 4, 2>(rows, lines, starts, scale, out),
        (1, 3) => multiply_tile::<R, 3, 2>(rows, lines, starts, scale, out),
        (1, 2) => multiply_tile::<R, 2, 4>(rows, lines, starts, scale, out),
        (1, _) => multiply_tile::<R, 1, 4>(rows, lines, starts, scale, out),
        (_, 4) => multiply_tile::<R, 4, 1>(rows, lines, starts, scale, out),
        (_, 3) => multiply_tile::<R, 3, 1>(rows, lines, starts, scale, out),
        (_, 2) => multiply_tile::<R, 2, 1>(rows, lines, starts, scale, out),
        _ => multiply_tile::<R, 1, 1>(rows, lines, starts, scale, out),
    }
}

/// [`PackedBytes::multiply_rows`] of a group of `S` strips, in `P` partial sums, each of every P-th line.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn multiply_tile<const R: usize, const S: usize, const P: usize>(
    rows: [(&[u8], f32); R],
    lines: &[Line],
    starts: &[i32],
    scale: &[f32],
    mut out: [&mut [f32]; R],
) {
    let depth = lines.len() / S;
    assert!(rows.iter().all(|(row, _)| row.len() >= depth * DEPTHS) && starts.len() == S * STRIP, "whole strips");
    assert!(out.iter().all(|row| row.len() == scale.len()), "a scale for each column");
    let mut sums = [[[_mm512_setzero_si512(); S]; R]; P];
    for row in &mut sums[0] {
        for (strip, sum) in row.iter_mut().enumerate() {
            // SAFETY: there are S * 16 of them, as was asserted.
            *sum = unsafe { _mm512_loadu_si512(starts.as_ptr().add(strip * STRIP).cast()) };
        }
    }
    let add = |sums: &mut [[__m512i; S]; R], step: usize| {
        // SAFETY: `step` is below `depth`, so that its S lines and each row's 4 levels are there.
        let weights: [__m512i; S] =
            std::array::from_fn(|strip| unsafe { _mm512_load_si512(lines.as_ptr().add(step * S + strip).cast()) });
        for (row, (levels, _)) in sums.iter_mut().zip(&rows) {
            // SAFETY: as above.
            let four = unsafe { levels.as_ptr().add(step * DEPTHS).cast::<i32>().read_unaligned() };
            let four = _mm512_set1_epi32(four);
            for (sum, weights) in row.iter_mut().zip(&weights) {
                *sum = _mm512_dpbusd_epi32(*sum, four, *weights);
            }
        }
    };
    let whole = depth / P * P;
    for step in (0..whole).step_by(P) {
        for (part, sums) in sums.iter_mut().enumerate() {
            add(sums, step + part);
        }
    }
    for step in whole..depth {
        add(&mut sums[0], step);
    }
    for (row, ((_, step), out)) in rows.iter().zip(&mut out).enumerate() {
        for strip in 0..S {
            let mut total = sums[0][row][strip];
            for part in &sums[1..] {
                total = _mm512_add_epi32(total, part[row][strip]);
            }
            let first = strip * STRIP;
            let kept = u16::MAX.checked_shr((first + STRIP).saturating_sub(scale.len()) as u32).unwrap_or(0);
            // SAFETY: what is kept of a strip lies before the end of `scale` and of `out`, which is as long.
            unsafe {
                let scale = _mm512_maskz_loadu_ps(kept, scale.as_ptr().wrapping_add(first));
                let scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(total), _mm512_set1_ps(*step));
                _mm512_mask_storeu_ps(out.as_mut_ptr().wrapping_add(first), kept, _mm512_mul_ps(scaled, scale));
            }
        }
    }
}

/// The elements of an i8 array [N, K] in the order of [`PackedBytes`]: made the first time, kept as long as the array. None where
/// another shape of the same elements was first. Errors where there is no memory for it.
pub(crate) fn packed_bytes<'a>(
    memory: &Allocator,
    operation: &'static str,
    x: &'a Array,
) -> Result<Option<&'a PackedBytes>> {
    let (&[n, k], Some(Prepared { bytes, .. })) = (x.dims(), prepared_of(x, true)) else { return Ok(None) };
    let packed = match bytes.get() {
        Some(packed) => packed,
        None => {
            let packed = PackedBytes::new(memory, i8s(operation, x)?, [n, k])?;
            bytes.get_or_init(|| packed)
        }
    };
    Ok(Some(packed).filter(|packed| packed.shape == [n, k]))
}
