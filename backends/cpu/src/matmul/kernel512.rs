//! The register tiles of AVX-512, see `blocking.rs`: up to [`PANEL`] rows by [`STRIP`] columns of a product.

use std::arch::asm;
use std::arch::x86_64::{
    __m512, __mmask16, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps,
    _mm512_set1_ps, _mm512_setzero_ps,
};

use crate::matmul::epilogue::Start;
use crate::matmul::matrix::{Area, PANEL};
use crate::simd::instructions::LINE;
use crate::simd::rows::STRIP;

/// Elements that are fetched ahead in a run at most: a line in each four steps of k.
const RUN: usize = 256;

/// Where fetching ahead has come to.
pub(crate) struct Prefetcher<'a> {
    areas: &'a [Area],
    row: usize,
    column: usize,
}

impl<'a> Prefetcher<'a> {
    /// From the beginning of these.
    pub(crate) fn new(areas: &'a [Area]) -> Self {
        Prefetcher { areas, row: 0, column: 0 }
    }

    /// The next run: where it begins, and how many lines it has.
    fn next_run(&mut self) -> Option<(*const f32, usize)> {
        let area = self.areas.first()?;
        let at = area.at.wrapping_add(self.row * area.stride + self.column);
        let width = RUN.min(area.width - self.column);
        self.column += width;
        if self.column >= area.width {
            (self.row, self.column) = (self.row + 1, 0);
        }
        if self.row >= area.rows {
            (self.areas, self.row) = (&self.areas[1..], 0);
        }
        Some((at, width.div_ceil(LINE)))
    }
}

/// The operands of one call of the kernel.
#[derive(Clone, Copy)]
pub(crate) struct TileOperands {
    pub(crate) depth: usize,
    pub(crate) a: *const f32,
    pub(crate) strides: [usize; 2],
    pub(crate) b: *const f32,
    pub(crate) out: *mut f32,
    pub(crate) stride: usize,
}

/// R rows of the result, of up to 32 columns: the accumulators of the left and of the right 16.
type Accumulators<const R: usize> = ([__m512; R], [__m512; R]);

/// What R rows of the result begin from.
///
/// # Safety
///
/// The R rows of `columns` elements at `out`, and those of a base, are valid for reads.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn load_accumulators<const R: usize>(
    out: *const f32,
    stride: usize,
    columns: usize,
    start: Start<'_>,
) -> Accumulators<R> {
    let [low, high] = column_masks(columns);
    // SAFETY: masked loads touch the elements of the mask only, which the caller vouches for.
    let first = |row: usize, offset: usize, mask: __mmask16| unsafe {
        match start {
            Start::Zero => _mm512_setzero_ps(),
            Start::Add => _mm512_maskz_loadu_ps(mask, out.wrapping_add(row * stride + offset)),
            Start::Bias(bias) => _mm512_maskz_loadu_ps(mask, bias.as_ptr().wrapping_add(offset)),
            Start::Base { bias, base } => {
                let base = _mm512_maskz_loadu_ps(mask, base.wrapping_add(row * stride + offset));
                match bias {
                    Some(bias) => _mm512_add_ps(base, _mm512_maskz_loadu_ps(mask, bias.as_ptr().wrapping_add(offset))),
                    None => base,
                }
            }
        }
    };
    let (mut left, mut right) = ([_mm512_setzero_ps(); R], [_mm512_setzero_ps(); R]);
    for r in 0..R {
        (left[r], right[r]) = (first(r, 0, low), first(r, 16, high));
    }
    (left, right)
}

/// Writes R rows of the result.
///
/// # Safety
///
/// The R rows of `columns` elements at `out` are valid for writes.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn store_accumulators<const R: usize>(
    out: *mut f32,
    stride: usize,
    columns: usize,
    (left, right): Accumulators<R>,
) {
    let [low, high] = column_masks(columns);
    for r in 0..R {
        // SAFETY: masked stores touch the elements of the mask only, which the caller vouches for.
        unsafe {
            _mm512_mask_storeu_ps(out.wrapping_add(r * stride), low, left[r]);
            _mm512_mask_storeu_ps(out.wrapping_add(r * stride + 16), high, right[r]);
        }
    }
}

/// The columns that the left and the right vector have of up to 32.
fn column_masks(columns: usize) -> [__mmask16; 2] {
    let low = if columns >= 16 { !0 } else { (1 << columns) - 1 };
    let high = if columns >= 32 { !0 } else { (1u16 << columns.saturating_sub(16)) - 1 };
    [low, high]
}

/// R rows by up to 32 columns of the result.
///
/// # Safety
///
/// `a` holds R rows of `depth` elements at the strides given, `b` a packed strip; the R rows of `columns` elements at
/// `out` are valid for reads and writes.
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn multiply_tile<const R: usize>(call: TileOperands, columns: usize, start: Start<'_>) {
    let TileOperands { depth, mut a, strides: [down, across], mut b, out, stride } = call;
    // SAFETY: the caller vouches for all.
    unsafe {
        let (mut left, mut right) = load_accumulators::<R>(out, stride, columns, start);
        // Written out rather than called: a call would keep the accumulators in memory.
        macro_rules! step {
            ($step:literal) => {
                let (a, b) = (a.add($step * across), b.add($step * STRIP));
                let (b0, b1) = (_mm512_loadu_ps(b), _mm512_loadu_ps(b.add(16)));
                for r in 0..R {
                    let x = _mm512_set1_ps(*a.add(r * down));
                    left[r] = _mm512_fmadd_ps(x, b0, left[r]);
                    right[r] = _mm512_fmadd_ps(x, b1, right[r]);
                }
            };
        }
        // Four steps at a time: the addresses of 14 rows do not fit into the registers, and are worked out once for all.
        for _ in 0..depth / 4 {
            step!(0);
            step!(1);
            step!(2);
            step!(3);
            a = a.add(4 * across);
            b = b.add(4 * STRIP);
        }
        for _ in 0..depth % 4 {
            step!(0);
            a = a.add(across);
            b = b.add(STRIP);
        }
        store_accumulators(out, stride, columns, (left, right));
    }
}

/// [`multiply_tile`] for [`PANEL`] rows whose numbers lie `DOWN` apart from row to row and `ACROSS` from step to step: packed, or of
/// a strip. Ten numbers of A in fourteen are loaded by the multiply-adds themselves, twice: that takes fewer instructions, and
/// still fewer loads than the machine has time for, two a cycle. The compiler loads each once.
///
/// # Safety
///
/// As [`multiply_tile`]'s, `a` having these strides.
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn multiply_tile_fixed<const DOWN: usize, const ACROSS: usize>(
    call: TileOperands,
    columns: usize,
    start: Start<'_>,
    fetch: &mut Prefetcher<'_>,
) {
    let TileOperands { depth, mut a, mut b, out, stride, .. } = call;
    // Row $x in step $s of four, and its accumulators: its number is loaded twice, or once.
    #[rustfmt::skip]
    macro_rules! twice {
        ($s:literal, $x:literal: $left:literal $right:literal) => {
            concat!(
                "vfmadd231ps zmm", $left, ", zmm28, dword ptr [{a} + {across} * ", $s, " + {down} * ", $x, "]{{1to16}}\n",
                "vfmadd231ps zmm", $right, ", zmm29, dword ptr [{a} + {across} * ", $s, " + {down} * ", $x, "]{{1to16}}\n",
            )
        };
    }
    #[rustfmt::skip]
    macro_rules! once {
        ($s:literal, $x:literal: $left:literal $right:literal) => {
            concat!(
                "vbroadcastss zmm30, dword ptr [{a} + {across} * ", $s, " + {down} * ", $x, "]\n",
                "vfmadd231ps zmm", $left, ", zmm28, zmm30\n",
                "vfmadd231ps zmm", $right, ", zmm29, zmm30\n",
            )
        };
    }
    #[rustfmt::skip]
    macro_rules! step {
        ($s:literal) => {
            concat!(
                "vmovups zmm28, [{b} + 128 * ", $s, "]\n",
                "vmovups zmm29, [{b} + 128 * ", $s, " + 64]\n",
                twice!($s, 0: 0 1), once!($s, 1: 2 3), twice!($s, 2: 4 5), twice!($s, 3: 6 7), once!($s, 4: 8 9),
                twice!($s, 5: 10 11), twice!($s, 6: 12 13), twice!($s, 7: 14 15), once!($s, 8: 16 17), twice!($s, 9: 18 19),
                twice!($s, 10: 20 21), once!($s, 11: 22 23), twice!($s, 12: 24 25), twice!($s, 13: 26 27),
            )
        };
    }
    // SAFETY: the caller vouches for all; the assembly reads `depth` steps of both operands and nothing else.
    unsafe {
        let (mut l, mut r) = load_accumulators::<PANEL>(out, stride, columns, start);
        // These steps so many times, at least once. A line is fetched with each.
        macro_rules! repeat {
            ($count:expr, $line:expr, $a:tt, $b:tt, $($step:expr),+) => {
                asm!(
                    "2:", "prefetcht1 [{line}]", $($step,)+ "add {line}, 64", "dec {count}", "jnz 2b",
                    count = inout(reg) $count => _, line = inout(reg) $line => _,
                    a = inout(reg) a => $a, b = inout(reg) b => $b,
                    inout("zmm0") l[0], inout("zmm1") r[0], inout("zmm2") l[1], inout("zmm3") r[1],
                    inout("zmm4") l[2], inout("zmm5") r[2], inout("zmm6") l[3], inout("zmm7") r[3],
                    inout("zmm8") l[4], inout("zmm9") r[4], inout("zmm10") l[5], inout("zmm11") r[5],
                    inout("zmm12") l[6], inout("zmm13") r[6], inout("zmm14") l[7], inout("zmm15") r[7],
                    inout("zmm16") l[8], inout("zmm17") r[8], inout("zmm18") l[9], inout("zmm19") r[9],
                    inout("zmm20") l[10], inout("zmm21") r[10], inout("zmm22") l[11], inout("zmm23") r[11],
                    inout("zmm24") l[12], inout("zmm25") r[12], inout("zmm26") l[13], inout("zmm27") r[13],
                    out("zmm28") _, out("zmm29") _, out("zmm30") _, down = const 4 * DOWN, across = const 4 * ACROSS,
                    options(nostack, readonly),
                )
            };
        }
        let mut fours = depth / 4;
        while fours > 0 {
            let (line, lines) = fetch.next_run().unwrap_or((b, fours));
            let count = fours.min(lines);
            repeat!(count, line, a, b, step!(0), step!(1), step!(2), step!(3), "add {a}, 4 * {across}", "add {b}, 512");
            fours -= count;
        }
        if depth % 4 > 0 {
            repeat!(depth % 4, b, _, _, step!(0), "add {a}, {across}", "add {b}, 128");
        }
        store_accumulators(out, stride, columns, (l, r));
    }
}
