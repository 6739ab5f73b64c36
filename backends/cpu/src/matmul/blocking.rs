//! Matrix products by our own kernels: one packing and blocking around a register tile, which each instruction set has of its own.
//!
//! ```text
//! for each depth of k                   strips of B, [k, 32], are packed so that each is read in one line
//!   for each 14 rows of A               packed too, column after column, where the product is large enough
//!     for each strip of 32 columns      the tile: AVX-512 takes all of it at once, AVX2 in parts of up to 6 rows by 16 columns
//! ```
//!
//! | | AVX-512 (`kernel512.rs`, `pack512.rs`) | AVX2 with FMA (`kernel_avx2.rs`, `pack_avx2.rs`) |
//! |---|---|---|
//! | block of B | 512 by 512, half of a second cache of 2 MiB | 256 by 256, half of one of 512 KiB |
//! | a step of k | 28 fused multiply-adds, 2 vectors of B and 14 numbers of A, in 14 cycles | 10, 10 and 8, in as many half cycles |
//! | rows of A of the most common widths | read in place by kernels of their own | read in place, as all widths |
//!
//! Loads and other instructions must fit into the same cycles; a core that is shared with other programs has fewer of them to spare.
//! Every element of the result is one chain of multiply-adds over k in order: its bits depend on nothing but its own row and
//! column, wherever the result is cut between threads or into blocks, and are the same for both instruction sets.

use std::cell::RefCell;
use std::ops::Range;

use crate::matmul::epilogue::Destination;
use crate::matmul::epilogue::{Finish, Start};
use crate::matmul::kernel512::{Prefetcher, TileOperands, multiply_tile, multiply_tile_fixed};
use crate::matmul::matrix::{Extent, Matrix, PANEL, PANEL_ROOM};
use crate::matmul::pack512::GROUP;
use crate::matmul::packed::{Left, Panels, Right};
use crate::matmul::{kernel_avx2, pack_avx2, pack512};
use crate::memory::scratch::Scratch;
use crate::simd::instructions::{LINE, Level, level, prefetch};
use crate::simd::rows::STRIP;
use crate::threads::work_stealing;

/// Steps of k, and columns of B, that are packed together.
fn block_sides() -> [usize; 2] {
    if level() == Level::Avx512 { [512, 512] } else { [256, 256] }
}

/// Columns from which on packing rows of A costs less than it saves.
const ENOUGH: usize = 128;
/// Multiply-adds from which on rows are offered to idle threads.
const WORTH: usize = 1 << 20;
/// Distance in elements at which addresses fall into the same sets of the first-level cache.
const PAGE: usize = 1024;

thread_local! {
    /// A packed block of B.
    static PACKED_B: RefCell<Scratch> = const { RefCell::new(Scratch::EMPTY) };
    /// Packed panels of A.
    static PACKED_A: RefCell<Scratch> = const { RefCell::new(Scratch::EMPTY) };
}

/// Packs all panels of a matrix, the first `columns` of each of its rows.
///
/// # Safety
///
/// The machine must have AVX2 and FMA, the matrix lie inside its slice, and `packed` have room for all panels.
pub(crate) unsafe fn pack_left(a: Matrix<'_>, extent: [usize; 2], packed: &mut [f32]) {
    // SAFETY: the machine has the level's instructions; the caller vouches for the rest.
    unsafe {
        match level() {
            Level::Avx512 => pack512::pack_left(a, extent, packed),
            _ => pack_avx2::pack_left(a, extent, packed),
        }
    }
}

/// Copies `depth` rows of `width` columns of B into strips of [`STRIP`], the last one filled up with zeros.
///
/// # Safety
///
/// The machine must have AVX2 and FMA. The block must lie inside B, and the strips fit into `packed`.
pub(crate) unsafe fn pack_right(
    b: Matrix<'_>,
    first: usize,
    depth: usize,
    column: usize,
    width: usize,
    packed: &mut [f32],
) {
    // SAFETY: as above.
    unsafe {
        match level() {
            Level::Avx512 => pack512::pack_right(b, first, depth, column, width, packed),
            _ => pack_avx2::pack_right(b, first, depth, column, width, packed),
        }
    }
}

/// a b, to a place.
///
/// # Safety
///
/// The machine must have AVX2 and FMA. The operands must lie inside their slices, packed ones having been made by [`pack_left`] and
/// [`pack_right`] of as many steps of k; the m rows of n elements at the place, and those that its start and finish point to, must be valid
/// for reads and writes, and no other thread may use what is written; a bias must have n elements.
pub(crate) unsafe fn multiply_blocks(extent: Extent, a: Left<'_>, b: Right<'_>, place: Destination<'_>) {
    let Extent { m, n, k } = extent;
    let Destination { out, stride, start, finish, ahead } = place;
    let [deep, wide] = block_sides();
    PACKED_B.with_borrow_mut(|packed_b| {
        let lies = matches!(b, Right::Matrix(_));
        let packed_b =
            packed_b.prefix_of_length(if lies { deep.min(k) * wide.min(n.next_multiple_of(STRIP)) } else { 0 });
        for column in (0..n).step_by(wide) {
            let width = wide.min(n - column);
            for first in (0..k).step_by(deep) {
                let depth = deep.min(k - first);
                let (strips, between) = match b {
                    Right::Packed(whole) => (whole.elements_from(first, column), whole.strip_stride()),
                    Right::Matrix(b) => {
                        // SAFETY: the block lies inside B, and the room was made above.
                        unsafe { pack_right(b, first, depth, column, width, packed_b) };
                        (&packed_b[..], depth * STRIP)
                    }
                };
                // What is packed already is fetched while the block before it is multiplied by.
                let next = if first + depth < k { (first + depth, column) } else { (0, column + width) };
                let next_piece = match b {
                    Right::Packed(whole) if next.1 < n => {
                        Some(whole.from(next.0, next.1).prefetch_area(deep.min(k - next.0), wide.min(n - next.1)))
                    }
                    _ => None,
                };
                let mut fetch = Prefetcher::new(next_piece.as_ref().map_or(ahead, std::slice::from_ref));
                let start = if first > 0 { Start::Add } else { start.part_at(0, column, width) };
                let finish = if first + depth < k { Finish::Nothing } else { finish };
                let block =
                    PackedBlock { depth, width, strips, between, start, finish: finish.part_at(0, column), stride };
                let out = out.wrapping_add(column);
                // SAFETY: the caller vouches for the operands and the result.
                unsafe { multiply_rows(block, a, m, first, &mut fetch, out) };
            }
        }
    });
}

/// All rows of the result, all strips of a block of B. Idle threads may steal groups of rows.
///
/// # Safety
///
/// As [`multiply_group`]'s, of all m rows.
unsafe fn multiply_rows(
    block: PackedBlock<'_>,
    a: Left<'_>,
    m: usize,
    first: usize,
    fetch: &mut Prefetcher<'_>,
    out: *mut f32,
) {
    struct Out(*mut f32);
    // SAFETY: groups are different rows.
    unsafe impl Sync for Out {}
    impl Out {
        fn row_start(&self, row: usize, stride: usize) -> *mut f32 {
            self.0.wrapping_add(row * stride)
        }
    }
    let (count, out) = (m.div_ceil(GROUP * PANEL), Out(out));
    let one = |index: usize, fetch: &mut Prefetcher<'_>| {
        let row = index * GROUP * PANEL;
        let rows = row..m.min(row + GROUP * PANEL);
        let (start, finish) = (block.start.part_at(row * block.stride, 0, block.width), block.finish.part_at(row, 0));
        let block = PackedBlock { start, finish, ..block };
        PACKED_A.with_borrow_mut(|packed_a| {
            let packed_a = packed_a.prefix_of_length(GROUP * block.depth * PANEL_ROOM);
            // SAFETY: the rows lie inside A and the result.
            unsafe { multiply_group(block, a, rows, first, packed_a, fetch, out.row_start(row, block.stride)) };
        });
    };
    let shares = count > 1 && m * block.width * block.depth >= WORTH && work_stealing::has_idle_threads();
    if !(shares && work_stealing::run_shared(count, &|index| one(index, &mut Prefetcher::new(&[])))) {
        (0..count).for_each(|index| one(index, fetch));
    }
}

/// A packed block of B and what it is for.
#[derive(Clone, Copy)]
struct PackedBlock<'a> {
    depth: usize,
    width: usize,
    /// The packed strips, and the distance from one to the next.
    strips: &'a [f32],
    between: usize,
    start: Start<'a>,
    finish: Finish,
    stride: usize,
}

/// Up to [`GROUP`] panels of [`PANEL`] rows of the result, all strips.
///
/// # Safety
///
/// The rows must lie inside A and the result, `packed_a` have room for them.
unsafe fn multiply_group(
    block: PackedBlock<'_>,
    a: Left<'_>,
    Range { start: row, end }: Range<usize>,
    first: usize,
    packed_a: &mut [f32],
    fetch: &mut Prefetcher<'_>,
    out: *mut f32,
) {
    let PackedBlock { depth, width, stride, .. } = block;
    // Read again and again, A is packed: its columns (of a transposed matrix) because each step would touch another page, a
    // few panels at once, as they lie in the same lines; its rows for the faster kernel, where it cannot read them as they lie,
    // or because they would throw each other out of the first cache, panel by panel, so that what is packed stays there.
    let (columns, rows) = match a {
        Left::Matrix(Matrix { strides: [down, 1], .. }) => (
            false,
            (width >= ENOUGH && level() == Level::Avx512 && fixed_kernel_for([down, 1]).is_none())
                || (width > STRIP && down.is_multiple_of(PAGE)),
        ),
        Left::Matrix(_) => (width > STRIP, false),
        Left::Packed(_) => (false, false),
    };
    if let Left::Matrix(a) = a
        && columns
    {
        // SAFETY: the caller vouches for the rows, and the room is there.
        unsafe { pack_left(a.part_from(row, first), [end - row, depth], packed_a) };
    }
    for from in (0..end - row).step_by(PANEL) {
        let count = PANEL.min(end - row - from);
        let block = PackedBlock { start: block.start.part_at(from * stride, 0, width), ..block };
        // SAFETY: the caller vouches for the rows, and there is room for the panels.
        unsafe {
            let (a, strides) = match a {
                Left::Packed(panels) => (panels.elements_from(row + from, first), [1, PANEL_ROOM]),
                Left::Matrix(_) if columns => (Panels::new(packed_a, depth).elements_from(from, 0), [1, PANEL_ROOM]),
                Left::Matrix(a) if rows => {
                    pack_left(a.part_from(row + from, first), [count, depth], packed_a);
                    (&*packed_a, [1, PANEL_ROOM])
                }
                Left::Matrix(a) => (a.part_from(row + from, first).elements, a.strides),
            };
            let out = out.add(from * stride);
            multiply_panel(block, a.as_ptr(), strides, count, fetch, out);
            block.finish.part_at(from, 0).finish_rows(out, [count, width], stride);
        }
    }
}

/// A kernel for whole panels.
type FixedKernel = unsafe fn(TileOperands, usize, Start<'_>, &mut Prefetcher<'_>);

/// The kernel that reads panels with these distances between rows and between steps of k, if there is one: packed, of a strip,
/// or rows as they lie, of the width of the chunks of feed-forward layers and of models of usual widths.
fn fixed_kernel_for(strides: [usize; 2]) -> Option<FixedKernel> {
    Some(match strides {
        [1, PANEL_ROOM] => multiply_tile_fixed::<1, PANEL_ROOM>,
        [1, STRIP] => multiply_tile_fixed::<1, STRIP>,
        [STRIP, 1] => multiply_tile_fixed::<STRIP, 1>,
        [128, 1] => multiply_tile_fixed::<128, 1>,
        [256, 1] => multiply_tile_fixed::<256, 1>,
        [384, 1] => multiply_tile_fixed::<384, 1>,
        _ => return None,
    })
}

/// Up to [`PANEL`] rows of the result, all strips. `a` has the distances `strides` between rows and between steps of k.
///
/// # Safety
///
/// The rows must lie inside A and the result.
unsafe fn multiply_panel(
    block: PackedBlock<'_>,
    a: *const f32,
    strides: [usize; 2],
    rows: usize,
    fetch: &mut Prefetcher<'_>,
    out: *mut f32,
) {
    let PackedBlock { depth, width, strips, between, start, stride, .. } = block;
    let fixed = fixed_kernel_for(strides);
    for (strip, from) in strips.chunks(between).zip((0..width).step_by(STRIP)) {
        let strip = &strip[..depth * STRIP];
        let columns = STRIP.min(width - from);
        let start = start.part_at(0, from, columns);
        // The lines of the result that the next strip writes are fetched meanwhile: a hint, which may lead anywhere.
        for r in 0..if from + STRIP < width { rows } else { 0 } {
            let next = out.wrapping_add(r * stride + from + STRIP);
            prefetch(next);
            prefetch(next.wrapping_add(LINE));
        }
        // SAFETY: the caller vouches for the extents.
        unsafe {
            let call = TileOperands { depth, a, strides, b: strip.as_ptr(), out: out.add(from), stride };
            if level() != Level::Avx512 {
                kernel_avx2::multiply_strip(call, rows, columns, start);
                continue;
            }
            match rows {
                14 => match fixed {
                    Some(fixed) => fixed(call, columns, start, fetch),
                    None => multiply_tile::<14>(call, columns, start),
                },
                13 => multiply_tile::<13>(call, columns, start),
                12 => multiply_tile::<12>(call, columns, start),
                11 => multiply_tile::<11>(call, columns, start),
                10 => multiply_tile::<10>(call, columns, start),
                9 => multiply_tile::<9>(call, columns, start),
                8 => multiply_tile::<8>(call, columns, start),
                7 => multiply_tile::<7>(call, columns, start),
                6 => multiply_tile::<6>(call, columns, start),
                5 => multiply_tile::<5>(call, columns, start),
                4 => multiply_tile::<4>(call, columns, start),
                3 => multiply_tile::<3>(call, columns, start),
                2 => multiply_tile::<2>(call, columns, start),
                _ => multiply_tile::<1>(call, columns, start),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::packed::Strips;
    use crate::simd::rows::RowPointers;

    /// Elements without a pattern that a transposition could hide behind.
    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect()
    }

    /// The product in f64, from the bias or what was there.
    fn expected_product(
        extent: Extent,
        a: Matrix<'_>,
        b: Matrix<'_>,
        before: impl Fn(usize, usize) -> f32,
    ) -> Vec<f64> {
        let at = |x: &Matrix<'_>, i: usize, j: usize| f64::from(x.elements[i * x.strides[0] + j * x.strides[1]]);
        let element = |i: usize, j: usize| (0..extent.k).map(|k| at(&a, i, k) * at(&b, k, j)).sum::<f64>();
        let places = (0..extent.m).flat_map(|i| (0..extent.n).map(move |j| (i, j)));
        places.map(|(i, j)| element(i, j) + f64::from(before(i, j))).collect()
    }

    #[test]
    fn products_of_every_layout_and_extent_are_right() {
        if level() == Level::Baseline {
            return;
        }
        let extents = [(1, 1, 1), (3, 5, 2), (14, 32, 16), (15, 33, 17), (13, 31, 130), (29, 70, 515), (40, 600, 40)];
        // Rows that are read as they lie; rows that fall into the same sets of the cache, so that A is packed.
        let lying = [128, 256, 384].map(|k| (17, 140, k));
        for (m, n, k) in extents.into_iter().chain(lying).chain([(20, 48, 1024), (14, 16, 512), (31, 40, 2048)]) {
            let extent = Extent { m, n, k };
            let (x, w, bias) = (numbers(m * k, 1), numbers(k * n, 2), numbers(n, 3));
            for trans_a in [false, true] {
                for trans_b in [false, true] {
                    let a = Matrix::new(&x, if trans_a { m } else { k }).transposed_if(trans_a);
                    let b = Matrix::new(&w, if trans_b { k } else { n }).transposed_if(trans_b);
                    let mut strips = vec![f32::NAN; k * n.next_multiple_of(STRIP)];
                    // SAFETY: the machine has AVX2, and there is room for the strips.
                    unsafe { pack_right(b, 0, k, 0, n, &mut strips) };
                    let base = numbers(m * n, 5);
                    let onto = |bias| Start::Base { bias, base: base.as_ptr() };
                    for start in [Start::Zero, Start::Add, Start::Bias(&bias), onto(None), onto(Some(&bias))] {
                        let expected = expected_product(extent, a, b, |i, j| match start {
                            Start::Zero => 0.0,
                            Start::Add => numbers(m * n, 4)[i * n + j],
                            Start::Bias(bias) => bias[j],
                            Start::Base { bias, .. } => base[i * n + j] + bias.map_or(0.0, |bias| bias[j]),
                        });
                        let mut panels = vec![f32::NAN; Panels::packed_length(m, k)];
                        // SAFETY: the machine has AVX2, and there is room for the panels.
                        unsafe { pack_left(a, [m, k], &mut panels) };
                        let packed = (Left::Packed(Panels::new(&panels, k)), Right::Packed(Strips::new(&strips, k)));
                        let [lying, packed] = [(Left::Matrix(a), Right::Matrix(b)), packed].map(|(a, b)| {
                            let (mut out, mut value) = (numbers(m * n, 4), vec![0.0; m * n]);
                            let finish = Finish::Gelu(RowPointers { at: value.as_mut_ptr(), stride: n });
                            let place = Destination { finish, ..Destination::new(out.as_mut_ptr(), n, start) };
                            // SAFETY: the machine has AVX2, and the slices have the extents' sizes.
                            unsafe { multiply_blocks(extent, a, b, place) };
                            assert!(out.iter().zip(&value).all(|(z, y)| crate::simd::gelu::gelu(*z) == *y));
                            out
                        });
                        assert!(lying == packed, "{m} {n} {k} {trans_a} {trans_b} {start:?}");
                        for (place, (found, expected)) in lying.iter().zip(expected).enumerate() {
                            let close = (f64::from(*found) - expected).abs() < 1e-6 * (k as f64 + 4.0);
                            assert!(close, "{m} {n} {k} {trans_a} {trans_b} {start:?} at {place}: {found}, {expected}");
                        }
                    }
                }
            }
        }
    }
}
