//! Sums and maxima of rows in an order that is fixed, so that every instruction set gives the same bits.

/// The number of partial sums of a row reduction: a vector of the widest instruction set.
pub(crate) const LANES: usize = 16;

/// The sum of partial results in a fixed order: halves are added until one is left.
#[inline(always)]
pub(crate) fn fold_lanes(lanes: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    // Each half an array of its own: so they stay in registers, as vectors.
    let (mut eight, mut four) = ([0.0; 8], [0.0; 4]);
    for i in 0..8 {
        eight[i] = f(lanes[i], lanes[i + 8]);
    }
    for i in 0..4 {
        four[i] = f(eight[i], eight[i + 4]);
    }
    f(f(four[0], four[2]), f(four[1], four[3]))
}

/// Vectors of partial results that a reduction keeps, so that one need not wait for the last.
const SETS: usize = 4;

/// Elements that a reduction takes at a time.
const WIDE: usize = SETS * LANES;

/// A vector of partial results with `f` of the elements at each index of one vector of a block.
#[inline(always)]
fn joined_lanes<const N: usize>(
    lanes: [f32; LANES],
    rows: &[&[f32; WIDE]; N],
    set: usize,
    f: &impl Fn([f32; N]) -> f32,
    join: &impl Fn(f32, f32) -> f32,
) -> [f32; LANES] {
    let mut next = lanes;
    for lane in 0..LANES {
        let mut at = [0.0; N];
        for row in 0..N {
            at[row] = rows[row][set * LANES + lane];
        }
        next[lane] = join(lanes[lane], f(at));
    }
    next
}

/// A reduction of `f` of the elements at each index of N rows of one length: partial result i mod 64 takes element i,
/// then the partial results are joined, halves at a time.
#[inline(always)]
pub(crate) fn reduce_rows<const N: usize>(
    rows: [&[f32]; N],
    start: f32,
    f: impl Fn([f32; N]) -> f32,
    join: impl Fn(f32, f32) -> f32,
) -> f32 {
    let n = rows.iter().map(|row| row.len()).min().unwrap_or(0);
    let whole = n / WIDE * WIDE;
    // Each vector an array of its own, made anew from the last: so they stay in registers.
    let [mut a, mut b, mut c, mut d] = [[start; LANES]; SETS];
    for first in (0..whole).step_by(WIDE) {
        // Blocks of known length, so that no index is checked inside the loop.
        let mut blocks = [&[0.0; WIDE]; N];
        for row in 0..N {
            blocks[row] = rows[row][first..].first_chunk().unwrap_or(&[0.0; WIDE]);
        }
        a = joined_lanes(a, &blocks, 0, &f, &join);
        b = joined_lanes(b, &blocks, 1, &f, &join);
        c = joined_lanes(c, &blocks, 2, &f, &join);
        d = joined_lanes(d, &blocks, 3, &f, &join);
    }
    let rest = n - whole;
    if rest > 0 {
        // What is left is filled up to a block, of which the first elements count: an index into the lanes that is not known
        // would keep them in memory.
        let mut blocks = [[0.0; WIDE]; N];
        for row in 0..N {
            blocks[row][..rest].copy_from_slice(&rows[row][whole..n]);
        }
        let blocks = blocks.each_ref();
        for (set, lanes) in [&mut a, &mut b, &mut c, &mut d].into_iter().enumerate() {
            let next = joined_lanes(*lanes, &blocks, set, &f, &join);
            for lane in 0..LANES {
                lanes[lane] = if set * LANES + lane < rest { next[lane] } else { lanes[lane] };
            }
        }
    }
    for lane in 0..LANES {
        a[lane] = join(join(a[lane], c[lane]), join(b[lane], d[lane]));
    }
    fold_lanes(a, join)
}

/// The sum of `f` of the elements at each index of the rows, see [`reduce_rows`].
#[inline(always)]
pub(crate) fn sum_rows<const N: usize>(rows: [&[f32]; N], f: impl Fn([f32; N]) -> f32) -> f32 {
    reduce_rows(rows, 0.0, f, |a, b| a + b)
}
