//! The diagonal recurrence c_t = a_t c_{t-1} + beta_t and its gradient: one step of time after another, vectorised over
//! the states, tiles of states shared between threads.
//!
//! The arithmetic of a tile is here for every machine, over arrays of lanes, and in `scan_tile.rs` for AVX-512 and AVX2.
//!
//! A tile's states, its factors and its sums are local from the first step to the last, in registers or in the first
//! cache, so that memory sees each input and each result once. A step's new state waits for the last one's, two fused
//! multiply-adds long; tiles are wide enough that several vectors take turns.

use assay_tensor::{Arguments, Array, Result, Scan, ScanBackward, ScanGradient, TensorError};

use crate::device::Cpu;
use crate::memory::storage::f32s;
use crate::ops::reduce;
#[cfg(target_arch = "x86_64")]
use crate::ops::scan_tile::{self, Lane, LaneMut};
use crate::simd::instructions::simd;
use crate::threads::denormals::FlushGuard;
use crate::threads::split::{Disjoint, Threads};

/// States that a tile of [`scan_forward`] has at most: four vectors of the widest instruction set.
const FORWARD: usize = 64;
/// States that a tile of [`scan_gradients`] has at the baseline, which keeps six numbers a state.
const BACKWARD: usize = 32;

/// The extents of a scan: B sequences of T steps of K states.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) b: usize,
    pub(crate) t: usize,
    pub(crate) k: usize,
}

/// The real and the imaginary part of something.
pub(crate) type Complex<'a> = (&'a [f32], &'a [f32]);

/// Results that threads write different parts of.
type Outputs<'a> = (Disjoint<'a, f32>, Disjoint<'a, f32>);

/// An operand of which each step of each sequence reads a row of K: of its own, or one row for all.
#[derive(Debug, Clone, Copy)]
struct Steps<'a> {
    elements: &'a [f32],
    /// The distance between rows: K, or 0.
    stride: usize,
}

impl<'a> Steps<'a> {
    /// [B, T, K], or zeros where there is none.
    fn or_zeros(elements: Option<&'a [f32]>, zeros: &'a [f32], extent: Extent) -> Steps<'a> {
        elements.map_or(Steps { elements: zeros, stride: 0 }, |elements| Steps { elements, stride: extent.k })
    }

    /// The states of `tile` in row `row` (b T + t).
    #[inline(always)]
    fn row_at<const L: usize>(&self, row: usize, tile: Tile) -> [f32; L] {
        load_lanes(&self.elements[row * self.stride + tile.from..][..tile.n])
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
    fn tile_count(&self, width: usize) -> usize {
        self.b * self.k.div_ceil(width)
    }

    fn tile_at(&self, index: usize, width: usize) -> Tile {
        let across = self.k.div_ceil(width);
        let from = index % across * width;
        Tile { b: index / across, from, n: width.min(self.k - from) }
    }

    fn row_count(&self) -> usize {
        self.b * self.t
    }
}

/// The states of a tile of each direction, if tiles are advanced by `scan_tile.rs`.
fn vector_widths() -> Option<[usize; 2]> {
    #[cfg(target_arch = "x86_64")]
    return scan_tile::tile_widths();
    #[cfg(not(target_arch = "x86_64"))]
    return None;
}

#[cfg(target_arch = "x86_64")]
impl Steps<'_> {
    /// The states of `tile` at all steps of its sequence.
    fn lane_at(&self, extent: Extent, tile: Tile) -> Lane {
        if self.stride == 0 {
            assert!(self.elements.len() >= tile.from + tile.n, "a row of {} states", extent.k);
            return Lane { start: self.elements[tile.from..].as_ptr(), stride: 0 };
        }
        assert!(self.elements.len() >= extent.row_count() * extent.k, "the operand has a row for each step");
        Lane { start: self.elements[tile.b * extent.t * extent.k + tile.from..].as_ptr(), stride: self.stride }
    }

    /// One row for all steps and tiles.
    fn shared_row(&self) -> Lane {
        Lane { start: self.elements.as_ptr(), stride: 0 }
    }
}

#[cfg(target_arch = "x86_64")]
impl Extent {
    /// The states of `tile` in what has one row a sequence.
    fn carry_lane(&self, x: &[f32], tile: Tile) -> Lane {
        assert!(x.len() >= self.b * self.k, "there is a row for each sequence");
        Lane { start: x[tile.b * self.k + tile.from..].as_ptr(), stride: 0 }
    }

    /// [`Steps::lane_at`] of a result.
    fn output_lane(&self, y: &Disjoint<'_, f32>, tile: Tile) -> LaneMut {
        assert!(y.len() >= self.row_count() * self.k, "the result has a row for each step");
        LaneMut { start: y.pointer_at(tile.b * self.t * self.k + tile.from), stride: self.k }
    }

    /// [`Extent::carry_lane`] of a result.
    fn sum_lane(&self, y: &Disjoint<'_, f32>, tile: Tile) -> LaneMut {
        assert!(y.len() >= self.b * self.k, "there is a row for each sequence");
        LaneMut { start: y.pointer_at(tile.b * self.k + tile.from), stride: 0 }
    }
}

/// Up to L elements, and zeros for the rest.
#[inline(always)]
fn load_lanes<const L: usize>(x: &[f32]) -> [f32; L] {
    match x.try_into() {
        Ok(whole) => whole,
        Err(_) => {
            let mut part = [0.0; L];
            part[..x.len()].copy_from_slice(x);
            part
        }
    }
}

/// As many of the elements as there is room for.
#[inline(always)]
fn store_lanes<const L: usize>(x: [f32; L], y: &mut [f32]) {
    match <&mut [f32; L]>::try_from(&mut *y) {
        Ok(whole) => *whole = x,
        Err(_) => y.copy_from_slice(&x[..y.len()]),
    }
}

#[inline(always)]
fn lanes_from<const L: usize>(f: impl Fn(usize) -> f32) -> [f32; L] {
    let mut y = [0.0; L];
    for (i, y) in y.iter_mut().enumerate() {
        *y = f(i);
    }
    y
}

simd! {
    /// All steps of one tile of at most [`FORWARD`] states.
    fn forward_tile(
        extent: Extent, tile: Tile, a: (Steps<'_>, Steps<'_>), input: (Steps<'_>, Option<Steps<'_>>),
        carry: Complex<'_>, states: &Outputs<'_>,
    ) {
        match tile.n {
            0..=16 => forward_lanes::<16>(extent, tile, a, input, carry, states),
            17..=32 => forward_lanes::<32>(extent, tile, a, input, carry, states),
            _ => forward_lanes::<FORWARD>(extent, tile, a, input, carry, states),
        }
    }

    /// All steps of one tile of at most [`BACKWARD`] states, the last first. `sums` get the gradients of the decay (where
    /// it is one for all steps) and of the carry.
    fn backward_tile(
        extent: Extent, tile: Tile, segment: usize, a: (Steps<'_>, Steps<'_>), before: (Complex<'_>, Complex<'_>),
        grad: (Steps<'_>, Steps<'_>), input: &Outputs<'_>, over_time: Option<&Outputs<'_>>, sums: [&mut [f32]; 4],
    ) {
        match tile.n {
            0..=16 => backward_lanes::<16>(extent, tile, segment, a, before, grad, input, over_time, sums),
            _ => backward_lanes::<BACKWARD>(extent, tile, segment, a, before, grad, input, over_time, sums),
        }
    }
}

#[inline(always)]
fn forward_lanes<const L: usize>(
    extent: Extent,
    tile: Tile,
    a: (Steps<'_>, Steps<'_>),
    input: (Steps<'_>, Option<Steps<'_>>),
    carry: Complex<'_>,
    states: &Outputs<'_>,
) {
    let (Extent { t: steps, k, .. }, Tile { b, from, n }) = (extent, tile);
    let first = b * k + from;
    let mut re: [f32; L] = load_lanes(&carry.0[first..][..n]);
    let mut im: [f32; L] = load_lanes(&carry.1[first..][..n]);
    let fixed = a.0.stride == 0;
    let (mut ar, mut ai): ([f32; L], [f32; L]) = (a.0.row_at(0, tile), a.1.row_at(0, tile));
    for row in b * steps..(b + 1) * steps {
        if !fixed {
            (ar, ai) = (a.0.row_at(row, tile), a.1.row_at(row, tile));
        }
        let x: [f32; L] = input.0.row_at(row, tile);
        let y: [f32; L] = match input.1 {
            Some(input) => input.row_at(row, tile),
            None => [0.0; L],
        };
        let next: [f32; L] = lanes_from(|i| ar[i].mul_add(re[i], (-ai[i]).mul_add(im[i], x[i])));
        im = lanes_from(|i| ar[i].mul_add(im[i], ai[i].mul_add(re[i], y[i])));
        re = next;
        let place = row * k + from;
        // SAFETY: each tile is advanced by one thread, and each step of it is taken once.
        let now = unsafe { (states.0.part(place..place + n), states.1.part(place..place + n)) };
        store_lanes(re, now.0);
        store_lanes(im, now.1);
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn backward_lanes<const L: usize>(
    extent: Extent,
    tile: Tile,
    segment: usize,
    a: (Steps<'_>, Steps<'_>),
    (carry, states): (Complex<'_>, Complex<'_>),
    grad: (Steps<'_>, Steps<'_>),
    input: &Outputs<'_>,
    over_time: Option<&Outputs<'_>>,
    sums: [&mut [f32]; 4],
) {
    let (Extent { t: steps, k, .. }, Tile { b, from, n }) = (extent, tile);
    let (mut ar, mut ai): ([f32; L], [f32; L]) = (a.0.row_at(0, tile), a.1.row_at(0, tile));
    // What flows from step t + 1 into the state of step t; and the sum that becomes the gradient of the decay.
    let (mut fr, mut fi) = ([0.0f32; L], [0.0f32; L]);
    let (mut dr, mut di) = ([0.0f32; L], [0.0f32; L]);
    // Steps since the last cut, counted down: a division at each step would cost more than its arithmetic.
    let mut until_cut = steps % segment;
    for step in (0..steps).rev() {
        if until_cut == 0 {
            (fr, fi) = ([0.0; L], [0.0; L]);
            until_cut = segment;
        }
        until_cut -= 1;
        let row = b * steps + step;
        let place = row * k + from;
        let (ur, ui): ([f32; L], [f32; L]) = (grad.0.row_at(row, tile), grad.1.row_at(row, tile));
        let (br, bi): ([f32; L], [f32; L]) = match step {
            0 => (load_lanes(&carry.0[b * k + from..][..n]), load_lanes(&carry.1[b * k + from..][..n])),
            _ => (load_lanes(&states.0[place - k..][..n]), load_lanes(&states.1[place - k..][..n])),
        };
        let gr: [f32; L] = lanes_from(|i| ur[i] + fr[i]);
        let gi: [f32; L] = lanes_from(|i| ui[i] + fi[i]);
        if let Some(decay) = over_time {
            (ar, ai) = (a.0.row_at(row, tile), a.1.row_at(row, tile));
            let (re, im): ([f32; L], [f32; L]) = (
                lanes_from(|i| gr[i].mul_add(br[i], gi[i] * bi[i])),
                lanes_from(|i| gi[i].mul_add(br[i], -(gr[i] * bi[i]))),
            );
            // SAFETY: each tile is taken by one thread, and each step of it once.
            let now = unsafe { (decay.0.part(place..place + n), decay.1.part(place..place + n)) };
            store_lanes(re, now.0);
            store_lanes(im, now.1);
        } else {
            dr = lanes_from(|i| gr[i].mul_add(br[i], gi[i].mul_add(bi[i], dr[i])));
            di = lanes_from(|i| gi[i].mul_add(br[i], (-gr[i]).mul_add(bi[i], di[i])));
        }
        fr = lanes_from(|i| ar[i].mul_add(gr[i], ai[i] * gi[i]));
        fi = lanes_from(|i| ar[i].mul_add(gi[i], -(ai[i] * gr[i])));
        // SAFETY: as above.
        let now = unsafe { (input.0.part(place..place + n), input.1.part(place..place + n)) };
        store_lanes(gr, now.0);
        store_lanes(gi, now.1);
    }
    let [decay_re, decay_im, carry_re, carry_im] = sums;
    store_lanes(dr, decay_re);
    store_lanes(di, decay_im);
    store_lanes(fr, carry_re);
    store_lanes(fi, carry_im);
}

/// The arguments that both directions share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recurrence<'a> {
    pub(crate) extent: Extent,
    /// `[K]`, or [B, T, K] where it changes over time.
    pub(crate) decay: Complex<'a>,
    /// Whether it does.
    pub(crate) over_time: bool,
    /// [B, K]
    pub(crate) carry: Complex<'a>,
}

impl<'a> Recurrence<'a> {
    fn decay_steps(&self) -> (Steps<'a>, Steps<'a>) {
        let stride = if self.over_time { self.extent.k } else { 0 };
        (Steps { elements: self.decay.0, stride }, Steps { elements: self.decay.1, stride })
    }
}

/// All states, [B, T, K] each.
pub(crate) fn scan_forward(
    threads: &Threads,
    scan: Recurrence<'_>,
    input: (&[f32], Option<&[f32]>),
    states: (&mut [f32], &mut [f32]),
) {
    let Recurrence { extent, carry, .. } = scan;
    if extent.row_count() * extent.k == 0 {
        return;
    }
    let steps = |elements| Steps { elements, stride: extent.k };
    let (decay, input) = (scan.decay_steps(), (steps(input.0), input.1.map(steps)));
    let states = (Disjoint::new(states.0), Disjoint::new(states.1));
    let cost = 0.1 * (extent.t * extent.k.min(FORWARD)) as f64;
    let vectors = vector_widths();
    let width = vectors.map_or(FORWARD, |[width, _]| width);
    threads.split_items(extent.tile_count(width), 1, cost, |range| {
        for tile in range.map(|i| extent.tile_at(i, width)) {
            #[cfg(target_arch = "x86_64")]
            if vectors.is_some() {
                let zeros = Steps { elements: &[0.0; FORWARD], stride: 0 };
                let call = scan_tile::Forward {
                    steps: extent.t,
                    decay: [decay.0, decay.1].map(|a| a.lane_at(extent, tile)),
                    input: [
                        input.0.lane_at(extent, tile),
                        input.1.map_or(zeros.shared_row(), |x| x.lane_at(extent, tile)),
                    ],
                    carry: [carry.0, carry.1].map(|c| extent.carry_lane(c, tile)),
                    states: [&states.0, &states.1].map(|y| extent.output_lane(y, tile)),
                };
                // SAFETY: the machine has the vectors; lanes have asserted that the tile lies in their slices; each tile is
                // advanced by one thread.
                unsafe { scan_tile::scan_tile(call, tile.n) };
                continue;
            }
            forward_tile(extent, tile, decay, input, carry, &states);
        }
    });
}

/// What [`scan_gradients`] writes.
#[derive(Debug)]
pub(crate) struct Gradients<'a> {
    /// dL/dbeta, [B, T, K] each.
    pub(crate) input: (&'a mut [f32], &'a mut [f32]),
    /// dL/da of each step, [B, T, K] each, where the decay changes over time.
    pub(crate) decay: Option<(&'a mut [f32], &'a mut [f32])>,
    /// dL/da and dL/dcarry of each sequence: four parts [B, K], all zero at first. The first two stay so where the decay
    /// changes over time.
    pub(crate) sums: [&'a mut [f32]; 4],
}

/// The adjoint of [`scan_forward`]. `segment` cuts the flow at each of its multiples.
pub(crate) fn scan_gradients(
    threads: &Threads,
    scan: Recurrence<'_>,
    segment: Option<usize>,
    states: Complex<'_>,
    grad: (Option<&[f32]>, Option<&[f32]>),
    out: Gradients<'_>,
) {
    let Recurrence { extent, carry, .. } = scan;
    if extent.row_count() * extent.k == 0 {
        return;
    }
    let zeros = vec![0.0; extent.k];
    let decay = scan.decay_steps();
    let grad = (Steps::or_zeros(grad.0, &zeros, extent), Steps::or_zeros(grad.1, &zeros, extent));
    let input = (Disjoint::new(out.input.0), Disjoint::new(out.input.1));
    let over_time = out.decay.map(|(re, im)| (Disjoint::new(re), Disjoint::new(im)));
    let sums = out.sums.map(Disjoint::new);
    // A segment that the sequence does not reach the end of cuts nothing.
    let segment = segment.unwrap_or(usize::MAX).max(1);
    let cost = 0.25 * (extent.t * extent.k.min(BACKWARD)) as f64;
    let vectors = vector_widths();
    let width = vectors.map_or(BACKWARD, |[_, width]| width);
    threads.split_items(extent.tile_count(width), 1, cost, |range| {
        for tile in range.map(|i| extent.tile_at(i, width)) {
            #[cfg(target_arch = "x86_64")]
            if vectors.is_some() {
                let call = scan_tile::Backward {
                    steps: extent.t,
                    segment,
                    decay: [decay.0, decay.1].map(|a| a.lane_at(extent, tile)),
                    carry: [carry.0, carry.1].map(|c| extent.carry_lane(c, tile)),
                    states: [states.0, states.1].map(|c| Steps { elements: c, stride: extent.k }.lane_at(extent, tile)),
                    grad: [grad.0, grad.1].map(|g| g.lane_at(extent, tile)),
                    input: [&input.0, &input.1].map(|y| extent.output_lane(y, tile)),
                    over_time: over_time.as_ref().map(|d| [&d.0, &d.1].map(|y| extent.output_lane(y, tile))),
                    sums: sums.each_ref().map(|y| extent.sum_lane(y, tile)),
                };
                // SAFETY: as in `forward`.
                unsafe { scan_tile::scan_tile_backward(call, tile.n) };
                continue;
            }
            let place = tile.b * extent.k + tile.from;
            // SAFETY: each tile is taken by one thread, and tiles do not overlap.
            let sums = sums.each_ref().map(|s| unsafe { s.part(place..place + tile.n) });
            backward_tile(extent, tile, segment, decay, (carry, states), grad, &input, over_time.as_ref(), sums);
        }
    });
}

impl Cpu {
    /// The operation `diagonal_scan`.
    pub(crate) fn scan_states(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let _flushed = FlushGuard::here();
        let (name, args) = ("diagonal_scan", Scan::of_call(call)?);
        let shape = &args.input_re.shape;
        let (mut re, mut im) = (self.take_block(name, shape)?, self.take_block(name, shape)?);
        let input_im = args.input_im.map(|x| f32s(name, x)).transpose()?;
        let input = (f32s(name, args.input_re)?, input_im);
        scan_forward(&self.threads, recurrence_of(&args)?, input, (&mut re, &mut im));
        Ok(vec![self.f32_array(re, shape), self.f32_array(im, shape)])
    }

    /// The operation `diagonal_scan_backward`.
    pub(crate) fn scan_backward(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let _flushed = FlushGuard::here();
        let name = "diagonal_scan";
        let ScanBackward { scan: args, states, grad } = ScanBackward::of_call(call)?;
        let (shape, carry, decay) = (&args.input_re.shape, &args.carry_re.shape, &args.decay_re.shape);
        let (mut re, mut im) = (self.take_block(name, shape)?, self.take_block(name, shape)?);
        let zeroed = || self.memory.zeroed_block(name, carry.numel());
        let mut sums = [zeroed()?, zeroed()?, zeroed()?, zeroed()?];
        let grad_re = grad.0.map(|x| f32s(name, x)).transpose()?;
        let grad_im = grad.1.map(|x| f32s(name, x)).transpose()?;
        let states = (f32s(name, states.0)?, f32s(name, states.1)?);
        let recurrence = recurrence_of(&args)?;
        let mut over_time = match recurrence.over_time {
            true => Some((self.take_block(name, decay)?, self.take_block(name, decay)?)),
            false => None,
        };
        let out = Gradients {
            input: (&mut re, &mut im),
            decay: over_time.as_mut().map(|(re, im)| (&mut **re, &mut **im)),
            sums: sums.each_mut().map(|sum| &mut **sum),
        };
        scan_gradients(&self.threads, recurrence, args.segment, states, (grad_re, grad_im), out);
        let [decay_re, decay_im, carry_re, carry_im] = sums;
        let over = |parts: &[f32]| {
            let mut total = vec![0.0; decay.numel()];
            reduce::over_sequences(parts, &mut total);
            self.f32_array(total, decay)
        };
        Ok(ScanGradient {
            decay: match over_time {
                Some((re, im)) => (self.f32_array(re, decay), self.f32_array(im, decay)),
                None => (over(&decay_re), over(&decay_im)),
            },
            input: (self.f32_array(re, shape), self.f32_array(im, shape)),
            carry: (self.f32_array(carry_re, carry), self.f32_array(carry_im, carry)),
        }
        .into_values())
    }
}

/// The arguments that both directions of the scan share.
fn recurrence_of<'a>(args: &Scan<'a, Array>) -> Result<Recurrence<'a>> {
    let name = "diagonal_scan";
    let [b, t, k] = *args.input_re.dims() else {
        return Err(TensorError::new(name, "the input should be [B, T, K]").shapes([&args.input_re.shape]));
    };
    Ok(Recurrence {
        extent: Extent { b, t, k },
        decay: (f32s(name, args.decay_re)?, f32s(name, args.decay_im)?),
        over_time: args.decay_re.shape.rank() > 1,
        carry: (f32s(name, args.carry_re)?, f32s(name, args.carry_im)?),
    })
}
