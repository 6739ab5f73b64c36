//! The diagonal recurrence and its gradient: which threads there are, and how time is cut where they are few.

use assay_tensor::{Arguments, Array, Result, Scan, ScanBackward, ScanGradient, Shape, TensorError};

use crate::driver::{Argument, Launch};
use crate::gpu::{Gpu, block_count, checked_extent, count_argument};
use crate::library::Topic;
use crate::reduce::Fold;
use crate::storage::Buffer;

const NAME: &str = "diagonal_scan";
/// Threads of a block: few, so that even small scans reach many multiprocessors.
const THREADS: usize = 64;
/// Threads that keep the memory of a large device busy; below this, time is cut.
const LANES: usize = 32_768;
/// The shortest pieces, in steps.
const SHORTEST: usize = 32;

/// A scan's extents, and how its sequences are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    b: usize,
    t: usize,
    k: usize,
    over_time: bool,
    pieces: usize,
    length: usize,
}

impl Cut {
    fn of(scan: &Scan<'_, Array>) -> Result<Cut> {
        let [b, t, k] = *scan.input_re.dims() else {
            return Err(TensorError::new(NAME, "the input should be [B, T, K]").shapes([&scan.input_re.shape]));
        };
        let over_time = scan.decay_re.shape.rank() > 1;
        let pieces = LANES.div_ceil((b * k).max(1)).min(t / SHORTEST).max(1);
        Ok(Cut { b, t, k, over_time, pieces, length: 1 }.with_length(t.div_ceil(pieces)))
    }

    fn with_length(self, length: usize) -> Cut {
        let length = length.max(1);
        Cut { pieces: self.t.div_ceil(length).max(1), length, ..self }
    }

    /// The cut whose pieces end where segments of `segment` steps do, so that no gradient flows between them.
    fn along(self, segment: usize) -> Cut {
        self.with_length(self.length.div_ceil(segment).saturating_mul(segment))
    }

    /// All pieces of all sequences.
    fn line_count(&self) -> usize {
        self.b * self.pieces
    }

    /// The last arguments of the kernels.
    fn size_arguments(&self) -> Result<[Argument; 6]> {
        let [t, k] = [checked_extent(NAME, self.t)?, checked_extent(NAME, self.k)?];
        let (pieces, lines) = (checked_extent(NAME, self.pieces)?, checked_extent(NAME, self.line_count())?);
        // A length beyond the sequence means the whole of it.
        let length = checked_extent(NAME, self.length.min(self.t.max(1)))?;
        Ok([t, k, pieces, length, lines, u32::from(self.over_time)].map(Argument::U32))
    }

    fn launch_grid(&self) -> Result<Launch> {
        let across = self.k.clamp(1, THREADS).next_power_of_two();
        let down = THREADS / across;
        let blocks = block_count(NAME, self.k.div_ceil(across) * self.line_count().div_ceil(down))?;
        Ok(Launch { grid: [blocks, 1, 1], block: [across as u32, down as u32, 1], shared: 0 })
    }
}

/// A pair of buffers.
type Complex = (Buffer, Buffer);

fn complex_pointers(x: &Complex) -> [Argument; 2] {
    [x.0.pointer(), x.1.pointer()]
}

const NOTHING: Argument = Argument::Pointer(None);

impl Gpu {
    fn scan_kernel(&self, kernel: &str, launch: Launch, arguments: &[Argument]) -> Result<()> {
        self.launch_kernel(NAME, (Topic::Scan, kernel), launch, arguments)
    }

    /// Two buffers of a number for each line and state.
    fn per_line(&self, cut: &Cut) -> Result<Complex> {
        let elements = cut.line_count() * cut.k;
        Ok((self.allocate_scratch(NAME, elements)?, self.allocate_scratch(NAME, elements)?))
    }

    fn allocate_complex(&self, shape: &Shape) -> Result<Complex> {
        Ok((self.allocate_f32(NAME, shape)?, self.allocate_f32(NAME, shape)?))
    }

    /// What flows into each piece, from the carry and the pieces before it; backwards from the pieces behind it.
    fn combine_segments(
        &self,
        cut: &Cut,
        ends: &str,
        arrays: &[Argument],
        carry: [Argument; 2],
        backwards: bool,
    ) -> Result<Complex> {
        let (end, factor, into) = (self.per_line(cut)?, self.per_line(cut)?, self.per_line(cut)?);
        let arguments = [&complex_pointers(&end), &complex_pointers(&factor), arrays].concat();
        self.scan_kernel(ends, cut.launch_grid()?, &arguments)?;
        let lanes = cut.b * cut.k;
        let sizes =
            [checked_extent(NAME, cut.pieces)?, checked_extent(NAME, cut.k)?, u32::from(backwards)].map(Argument::U32);
        let results = [complex_pointers(&into), complex_pointers(&end), complex_pointers(&factor), carry].concat();
        self.scan_kernel(
            "scan_between",
            self.line_grid(4 * lanes),
            &[&results[..], &sizes, &[count_argument(lanes)]].concat(),
        )?;
        Ok(into)
    }

    /// The operation `diagonal_scan`.
    pub(crate) fn scan_states(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let scan = Scan::of_call(call)?;
        let cut = Cut::of(&scan)?;
        let shape = &scan.input_re.shape;
        let (re, im) = self.allocate_complex(shape)?;
        if shape.numel() > 0 {
            let carry = [self.f32_pointer(NAME, scan.carry_re)?, self.f32_pointer(NAME, scan.carry_im)?];
            let arrays = self.scan_arrays(&scan, &cut, (Some(scan.input_re), scan.input_im))?;
            let into = match cut.pieces {
                1 => None,
                _ => Some(self.combine_segments(&cut, "scan_ends", &arrays, carry, false)?),
            };
            let carry = into.as_ref().map_or(carry, complex_pointers);
            let arguments = [&[re.pointer(), im.pointer()], &carry, &arrays[..]].concat();
            self.scan_kernel("scan_states", cut.launch_grid()?, &arguments)?;
        }
        Ok(vec![re.into_array(shape), im.into_array(shape)])
    }

    /// The arguments that all kernels end in: decay, what is scanned, and sizes.
    fn scan_arrays(
        &self,
        scan: &Scan<'_, Array>,
        cut: &Cut,
        (re, im): (Option<&Array>, Option<&Array>),
    ) -> Result<Vec<Argument>> {
        let decay = [self.f32_pointer(NAME, scan.decay_re)?, self.f32_pointer(NAME, scan.decay_im)?];
        let scanned = [self.optional_f32_pointer(NAME, re)?, self.optional_f32_pointer(NAME, im)?];
        Ok([&decay[..], &scanned, &cut.size_arguments()?].concat())
    }

    /// The operation `diagonal_scan_backward`.
    pub(crate) fn scan_backward(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let ScanBackward { scan, states, grad } = ScanBackward::of_call(call)?;
        let whole = Cut::of(&scan)?;
        let segment = scan.segment.filter(|&segment| segment < whole.t);
        let cut = segment.map_or(whole, |segment| whole.along(segment.max(1)));
        let (input, carry, decay) = (&scan.input_re.shape, &scan.carry_re.shape, &scan.decay_re.shape);
        let (dx, dcarry) = (self.allocate_complex(input)?, self.allocate_complex(carry)?);
        // Where the decay is one for all steps, a sum for each line comes first.
        let (da, sums) = match cut.over_time {
            true => (Some(self.allocate_complex(decay)?), None),
            false => (None, Some(self.per_line(&cut)?)),
        };
        if cut.b * cut.k > 0 {
            let arrays = self.scan_arrays(&scan, &cut, grad)?;
            let into = match segment {
                None if cut.pieces > 1 => {
                    Some(self.combine_segments(&cut, "scan_flow_ends", &arrays, [NOTHING; 2], true)?)
                }
                _ => None,
            };
            let or_nothing = |x: Option<&Complex>| x.map_or([NOTHING; 2], complex_pointers);
            let results =
                [complex_pointers(&dx), or_nothing(da.as_ref()), or_nothing(sums.as_ref()), complex_pointers(&dcarry)]
                    .concat();
            let before = [states.0, states.1, scan.carry_re, scan.carry_im];
            let before = before.iter().map(|x| self.f32_pointer(NAME, x)).collect::<Result<Vec<_>>>()?;
            let flow = or_nothing(into.as_ref());
            // A segment that the sequence does not reach the end of cuts nothing.
            let segment = Argument::U32(segment.map_or(u32::MAX, |segment| segment as u32));
            let arguments = [&results[..], &before, &flow, &[segment], &arrays].concat();
            self.scan_kernel("scan_gradient", cut.launch_grid()?, &arguments)?;
        }
        let shaped = |x: Complex, shape: &Shape| (x.0.into_array(shape), x.1.into_array(shape));
        let decay = match (da, sums) {
            (Some(da), _) => shaped(da, decay),
            (None, Some(sums)) => {
                let dims = [1, cut.line_count(), cut.k];
                let total =
                    |x: &Buffer| Ok::<_, TensorError>(self.fold_axis(NAME, Fold::Sum(1.0), x, dims)?.into_array(decay));
                (total(&sums.0)?, total(&sums.1)?)
            }
            (None, None) => return Err(TensorError::new(NAME, "the decay has no gradient")),
        };
        Ok(ScanGradient { decay, input: shaped(dx, input), carry: shaped(dcarry, carry) }.into_values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(b: usize, t: usize, k: usize) -> Cut {
        let pieces = LANES.div_ceil((b * k).max(1)).min(t / SHORTEST).max(1);
        Cut { b, t, k, over_time: false, pieces, length: 1 }.with_length(t.div_ceil(pieces))
    }

    #[test]
    fn time_is_cut_only_where_lanes_are_few() {
        assert_eq!((cut(256, 4096, 128).pieces, cut(256, 4096, 128).length), (1, 4096));
        assert_eq!((cut(8, 2048, 128).pieces, cut(8, 2048, 128).length), (32, 64));
        assert_eq!((cut(1, 70, 3).pieces, cut(1, 70, 3).length), (2, 35));
        assert_eq!((cut(1, 31, 3).pieces, cut(2, 0, 3).pieces, cut(0, 9, 0).pieces), (1, 1, 1));
    }

    #[test]
    fn cuts_along_segments_end_where_segments_do() {
        for segment in [1, 3, 7, 64, 100, 2047] {
            let cut = cut(8, 2048, 128).along(segment);
            assert_eq!(cut.length % segment, 0);
            assert!(cut.pieces * cut.length >= 2048 && (cut.pieces - 1) * cut.length < 2048, "{cut:?}");
        }
    }
}
