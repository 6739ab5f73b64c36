//! The diagonal recurrence c_t = a c_{t-1} + beta_t and its gradient: one step of time after another, vectorised over
//! the states, sequences shared between threads.
//!
//! A step reads the states of the last one from where it wrote them, in the first cache. The states are cut into tiles
//! of [`TILE`], so that few long sequences still occupy all threads.

use crate::parallel::{Disjoint, Threads};
use crate::simd::simd;

/// States that one thread advances together.
const TILE: usize = 128;

/// The extents of a scan: B sequences of T steps of K states.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) b: usize,
    pub(crate) t: usize,
    pub(crate) k: usize,
}

/// The real and the imaginary part of something.
pub(crate) type Complex<'a> = (&'a [f32], &'a [f32]);

/// An operand [B, T, K], or one row of K zeros in the place of one that is absent.
#[derive(Debug, Clone, Copy)]
struct Steps<'a> {
    elements: &'a [f32],
    absent: bool,
}

impl<'a> Steps<'a> {
    fn new(elements: Option<&'a [f32]>, zeros: &'a [f32]) -> Steps<'a> {
        Steps { elements: elements.unwrap_or(zeros), absent: elements.is_none() }
    }

    /// The states `from..from + n` of row `row` (b T + t).
    #[inline(always)]
    fn at(&self, row: usize, k: usize, from: usize, n: usize) -> &'a [f32] {
        let row = if self.absent { 0 } else { row };
        &self.elements[row * k + from..][..n]
    }
}

/// One tile: which sequence, and which of its states.
#[derive(Debug, Clone, Copy)]
struct Tile {
    b: usize,
    from: usize,
    n: usize,
}

impl Extent {
    fn tiles(&self) -> usize {
        self.b * self.k.div_ceil(TILE)
    }

    fn tile(&self, index: usize) -> Tile {
        let across = self.k.div_ceil(TILE);
        let from = index % across * TILE;
        Tile { b: index / across, from, n: TILE.min(self.k - from) }
    }
}

simd! {
    /// All steps of one tile.
    fn forward_tile(
        extent: Extent, tile: Tile, a: Complex<'_>, input: (Steps<'_>, Steps<'_>), carry: Complex<'_>,
        states: &(Disjoint<'_, f32>, Disjoint<'_, f32>),
    ) {
        let (Extent { t: steps, k, .. }, Tile { b, from, n }) = (extent, tile);
        let a = (&a.0[from..from + n], &a.1[from..from + n]);
        let mut last = (&carry.0[b * k + from..][..n], &carry.1[b * k + from..][..n]);
        for row in b * steps..(b + 1) * steps {
            let (x, y) = (input.0.at(row, k, from, n), input.1.at(row, k, from, n));
            let place = row * k + from;
            // SAFETY: each tile is advanced by one thread, and each step of it is taken once.
            let now = unsafe { (states.0.part(place..place + n), states.1.part(place..place + n)) };
            advance(a, last, (x, y), (&mut *now.0, &mut *now.1));
            last = (&*now.0, &*now.1);
        }
    }

    /// All steps of one tile, the last first. What flows into the state before is kept in `flow`, [K] of the tile,
    /// which is zero at first and the gradient of the carry in the end.
    fn backward_tile(
        extent: Extent, tile: Tile, segment: usize, a: Complex<'_>, carry: Complex<'_>, states: Complex<'_>,
        grad: (Steps<'_>, Steps<'_>), input: &(Disjoint<'_, f32>, Disjoint<'_, f32>), sums: [&mut [f32]; 4],
    ) {
        let (Extent { t: steps, k, .. }, Tile { b, from, n }) = (extent, tile);
        let a = (&a.0[from..from + n], &a.1[from..from + n]);
        let [decay_re, decay_im, flow_re, flow_im] = sums;
        for step in (0..steps).rev() {
            if (step + 1) % segment == 0 && step + 1 < steps {
                flow_re.fill(0.0);
                flow_im.fill(0.0);
            }
            let row = b * steps + step;
            let u = (grad.0.at(row, k, from, n), grad.1.at(row, k, from, n));
            let before = match step {
                0 => (&carry.0[b * k + from..][..n], &carry.1[b * k + from..][..n]),
                _ => (&states.0[(row - 1) * k + from..][..n], &states.1[(row - 1) * k + from..][..n]),
            };
            let place = row * k + from;
            // SAFETY: each tile is taken by one thread, and each step of it once.
            let g = unsafe { (input.0.part(place..place + n), input.1.part(place..place + n)) };
            retreat(a, u, before, g, (&mut *decay_re, &mut *decay_im), (&mut *flow_re, &mut *flow_im));
        }
    }
}

/// now = a last + input
#[inline(always)]
fn advance(a: Complex<'_>, last: Complex<'_>, input: Complex<'_>, now: (&mut [f32], &mut [f32])) {
    let n = now.0.len();
    let (ar, ai, lr, li) = (&a.0[..n], &a.1[..n], &last.0[..n], &last.1[..n]);
    let (xr, xi, re, im) = (&input.0[..n], &input.1[..n], now.0, &mut now.1[..n]);
    for i in 0..n {
        re[i] = ar[i].mul_add(lr[i], (-ai[i]).mul_add(li[i], xr[i]));
        im[i] = ar[i].mul_add(li[i], ai[i].mul_add(lr[i], xi[i]));
    }
}

/// g = u + flow;  decay += g conj(before);  flow = conj(a) g
#[inline(always)]
fn retreat(
    a: Complex<'_>,
    u: Complex<'_>,
    before: Complex<'_>,
    g: (&mut [f32], &mut [f32]),
    decay: (&mut [f32], &mut [f32]),
    flow: (&mut [f32], &mut [f32]),
) {
    let n = g.0.len();
    let (ar, ai, ur, ui) = (&a.0[..n], &a.1[..n], &u.0[..n], &u.1[..n]);
    let (br, bi, gr, gi) = (&before.0[..n], &before.1[..n], g.0, &mut g.1[..n]);
    let (dr, di, fr, fi) = (&mut decay.0[..n], &mut decay.1[..n], &mut flow.0[..n], &mut flow.1[..n]);
    for i in 0..n {
        let (re, im) = (ur[i] + fr[i], ui[i] + fi[i]);
        (gr[i], gi[i]) = (re, im);
        dr[i] = re.mul_add(br[i], im.mul_add(bi[i], dr[i]));
        di[i] = im.mul_add(br[i], (-re).mul_add(bi[i], di[i]));
        fr[i] = ar[i].mul_add(re, ai[i] * im);
        fi[i] = ar[i].mul_add(im, -(ai[i] * re));
    }
}

/// The arguments that both directions share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recurrence<'a> {
    pub(crate) extent: Extent,
    /// \[K\]
    pub(crate) decay: Complex<'a>,
    /// [B, K]
    pub(crate) carry: Complex<'a>,
}

/// All states, [B, T, K] each.
pub(crate) fn forward(
    threads: &Threads,
    scan: Recurrence<'_>,
    input: (&[f32], Option<&[f32]>),
    states: (&mut [f32], &mut [f32]),
) {
    let Recurrence { extent, decay, carry } = scan;
    let zeros = vec![0.0; extent.k];
    let input = (Steps::new(Some(input.0), &zeros), Steps::new(input.1, &zeros));
    let states = (Disjoint::new(states.0), Disjoint::new(states.1));
    let cost = 0.25 * (extent.t * extent.k.min(TILE)) as f64;
    threads.split(extent.tiles(), 1, cost, |range| {
        for tile in range {
            forward_tile(extent, extent.tile(tile), decay, input, carry, &states);
        }
    });
}

/// What [`backward`] writes.
#[derive(Debug)]
pub(crate) struct Gradients<'a> {
    /// dL/dbeta, [B, T, K] each.
    pub(crate) input: (&'a mut [f32], &'a mut [f32]),
    /// dL/da and dL/dcarry of each sequence: four parts [B, K], all zero at first.
    pub(crate) sums: [&'a mut [f32]; 4],
}

/// The adjoint of [`forward`]. `segment` cuts the flow at each of its multiples.
pub(crate) fn backward(
    threads: &Threads,
    scan: Recurrence<'_>,
    segment: Option<usize>,
    states: Complex<'_>,
    grad: (Option<&[f32]>, Option<&[f32]>),
    out: Gradients<'_>,
) {
    let Recurrence { extent, decay, carry } = scan;
    let zeros = vec![0.0; extent.k];
    let grad = (Steps::new(grad.0, &zeros), Steps::new(grad.1, &zeros));
    let input = (Disjoint::new(out.input.0), Disjoint::new(out.input.1));
    let sums = out.sums.map(Disjoint::new);
    // A segment that the sequence does not reach the end of cuts nothing.
    let segment = segment.unwrap_or(usize::MAX).max(1);
    let cost = 0.5 * (extent.t * extent.k.min(TILE)) as f64;
    threads.split(extent.tiles(), 1, cost, |range| {
        for tile in range.map(|i| extent.tile(i)) {
            let place = tile.b * extent.k + tile.from;
            // SAFETY: each tile is taken by one thread, and tiles do not overlap.
            let sums = sums.each_ref().map(|s| unsafe { s.part(place..place + tile.n) });
            backward_tile(extent, tile, segment, decay, carry, states, grad, &input, sums);
        }
    });
}

simd! {
    /// Adds [B, K] over B in order.
    pub(crate) fn over_sequences(x: &[f32], y: &mut [f32]) {
        y.fill(0.0);
        if y.is_empty() {
            return;
        }
        for x in x.chunks_exact(y.len()) {
            for (y, x) in y.iter_mut().zip(x) {
                *y += *x;
            }
        }
    }
}
