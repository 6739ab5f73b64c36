//! The fused operation `diagonal_scan`: the states of a diagonal linear recurrence over complex numbers.
//!
//! c_t = a_t c_{t-1} + beta_t, c_{-1} = carry. With u_t what arrives at c_t from outside, its gradient is, where a gradient is
//! dL/dRe + i dL/dIm and g_{t+1} counts as 0 where a segment ends between t and t + 1,
//! ```text
//! g_t = u_t + conj(a_{t+1}) g_{t+1}      dbeta_t = g_t      da_t = g_t conj(c_{t-1})      dcarry = conj(a_0) g_0
//! ```
//!
//! | | |
//! |---|---|
//! | inputs | Re and Im a [K] or [B, T, K], Re and Im carry [B, K], Re beta [B, T, K], Im beta where it is complex |
//! | settings | `segment`, see [`Scan::segment`] |
//! | values | Re c, Im c [B, T, K] |
//!
//! `diagonal_scan_backward` is its gradient:
//!
//! | | |
//! |---|---|
//! | inputs | those of `diagonal_scan`; Re c, Im c; the gradient of Re c if there is one; that of Im c if there is one |
//! | settings | `segment`; `complex`, `gradient_re` and `gradient_im`: which of the optional inputs are there |
//! | values | the gradients of Re a, Im a, Re carry, Im carry, Re beta, Im beta; the last is meaningless where beta is real |

use crate::array::Array;
use crate::check;
use crate::error::{Result, TensorError};
use crate::fusion::{
    Arguments, Bf16Operands, Example, ExampleInput, ExampleSize, FusedOp, GradientRule, Setting, Upstreams,
};
use crate::kernels::Kernels;
use crate::math::Math;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// See the module.
pub static DIAGONAL_SCAN: FusedOp = FusedOp {
    name: "diagonal_scan",
    compose: scan_steps,
    gradient: Some(GradientRule { inputs: &[0, 1, 2, 3, 4, 5], values: &[0, 1], outputs: 2, rule: scan_gradient }),
    bf16: Bf16Operands::Converted,
    examples,
};

/// See the module.
pub static DIAGONAL_SCAN_BACKWARD: FusedOp = FusedOp {
    name: "diagonal_scan_backward",
    compose: scan_back,
    gradient: None,
    bf16: Bf16Operands::Converted,
    examples: examples_backward,
};

/// The arguments of [`diagonal_scan`].
pub type ScanArgs<'a> = Scan<'a, Tensor>;

/// The diagonal linear recurrence c_t = a c_{t-1} + beta_t over complex states, c_{-1} = carry.
///
/// `T` is [`crate::Tensor`] for callers and [`crate::Array`] for kernels.
#[derive(Debug)]
pub struct Scan<'a, T> {
    /// Re a, \[K\]; or [B, T, K] where it changes over time: c_t = a_t c_{t-1} + beta_t.
    pub decay_re: &'a T,
    /// Im a, in the shape of Re a.
    pub decay_im: &'a T,
    /// Re beta, \[B, T, K\].
    pub input_re: &'a T,
    /// Im beta, \[B, T, K\]; none where the input is real.
    pub input_im: Option<&'a T>,
    /// Re c_{-1}, \[B, K\].
    pub carry_re: &'a T,
    /// Im c_{-1}, \[B, K\].
    pub carry_im: &'a T,
    /// `Some(C)` cuts the gradient of the state at each multiple of C inside the sequence (truncated backpropagation
    /// through time): c_{C-1} is a constant for c_C. The forward result does not depend on it, and the carry gets the
    /// gradient of the first segment.
    pub segment: Option<usize>,
}

// Written out because a derive would ask for `T: Copy`, which references do not need.
impl<T> Clone for Scan<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Scan<'_, T> {}

impl<'a> Scan<'a, Array> {
    /// The arguments of a call of `diagonal_scan`.
    ///
    /// # Errors
    /// If an operand is missing.
    pub fn of_call(call: Arguments<'a>) -> Result<Scan<'a, Array>> {
        let segment = call.count("segment");
        let [decay_re, decay_im, carry_re, carry_im, input_re] = [0, 1, 2, 3, 4].map(|i| call.input(i));
        Ok(Scan {
            decay_re: decay_re?,
            decay_im: decay_im?,
            input_re: input_re?,
            input_im: call.inputs.get(5).copied(),
            carry_re: carry_re?,
            carry_im: carry_im?,
            segment,
        })
    }

    /// The operands in the order of a call, and the setting.
    fn as_call(&self) -> (Vec<&'a Array>, Vec<Setting>) {
        let mut inputs = vec![self.decay_re, self.decay_im, self.carry_re, self.carry_im, self.input_re];
        inputs.extend(self.input_im);
        (inputs, self.segment.map(|steps| ("segment", steps as f64)).into_iter().collect())
    }

    /// All states, real and imaginary part.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn run(&self, k: &dyn Kernels) -> Result<(Array, Array)> {
        let (inputs, settings) = self.as_call();
        DIAGONAL_SCAN.values(k, Arguments::new(&inputs, &settings)).map(<[Array; 2]>::into)
    }
}

/// The arguments of `diagonal_scan_backward`.
#[derive(Debug, Clone, Copy)]
pub struct ScanBackward<'a> {
    /// Those of the scan.
    pub scan: Scan<'a, Array>,
    /// The states that it gave.
    pub states: (&'a Array, &'a Array),
    /// The gradient of each part of the states; a part without one is none.
    pub grad: (Option<&'a Array>, Option<&'a Array>),
}

impl<'a> ScanBackward<'a> {
    /// The arguments of a call.
    ///
    /// # Errors
    /// If an operand is missing.
    pub fn of_call(call: Arguments<'a>) -> Result<ScanBackward<'a>> {
        let of_scan = if call.setting("complex").is_some() { 6 } else { 5 };
        let Some((inputs, rest)) = call.inputs.split_at_checked(of_scan) else {
            return Err(TensorError::new(DIAGONAL_SCAN_BACKWARD.name, "operands are missing"));
        };
        let rest = Arguments { inputs: rest, ..call };
        let mut next = 1;
        let mut gradient = |name: &str| {
            next += usize::from(call.setting(name).is_some());
            call.setting(name).map(|_| rest.input(next)).transpose()
        };
        Ok(ScanBackward {
            scan: Scan::of_call(Arguments { inputs, ..call })?,
            grad: (gradient("gradient_re")?, gradient("gradient_im")?),
            states: (rest.input(0)?, rest.input(1)?),
        })
    }

    /// The gradients of the scan's inputs.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn run(&self, k: &dyn Kernels) -> Result<ScanGradient> {
        let (mut inputs, mut settings) = self.scan.as_call();
        settings.extend(self.scan.input_im.map(|_| ("complex", 1.0)));
        inputs.extend([self.states.0, self.states.1]);
        inputs.extend(self.grad.0.into_iter().chain(self.grad.1));
        settings.extend(self.grad.0.map(|_| ("gradient_re", 1.0)));
        settings.extend(self.grad.1.map(|_| ("gradient_im", 1.0)));
        let [decay_re, decay_im, carry_re, carry_im, input_re, input_im] =
            DIAGONAL_SCAN_BACKWARD.values(k, Arguments::new(&inputs, &settings))?;
        Ok(ScanGradient { decay: (decay_re, decay_im), input: (input_re, input_im), carry: (carry_re, carry_im) })
    }
}

/// The gradients of a diagonal scan's inputs, each in the shape of its input.
#[derive(Debug, Clone)]
pub struct ScanGradient {
    /// With respect to Re a and Im a.
    pub decay: (Array, Array),
    /// With respect to Re beta and Im beta; the second is meaningless to a caller whose input is real.
    pub input: (Array, Array),
    /// With respect to the real and the imaginary part of the carry.
    pub carry: (Array, Array),
}

impl ScanGradient {
    /// The gradients in the order of the operation's values.
    pub fn into_values(self) -> Vec<Array> {
        let ScanGradient { decay, input, carry } = self;
        vec![decay.0, decay.1, carry.0, carry.1, input.0, input.1]
    }
}

/// All states of the recurrence c_t = a c_{t-1} + beta_t, as real and imaginary parts [B, T, K] each. See [`Scan`]
/// for the arguments and their shapes.
pub fn diagonal_scan(args: ScanArgs<'_>) -> Result<(Tensor, Tensor)> {
    let name = DIAGONAL_SCAN.name;
    let Scan { decay_re, decay_im, input_re, input_im, carry_re, carry_im, segment } = args;
    let mut inputs = vec![decay_re, decay_im, carry_re, carry_im, input_re];
    inputs.extend(input_im);
    check::float_types(name, &inputs)?;
    let [b, _, k] = check::expected_rank(name, "input", input_re, "[B, T, K]")?;
    let fixed = Shape::from(k);
    let decay = if decay_re.rank() == 1 { &fixed } else { input_re.shape() };
    check::expected_shape(name, "real decay", decay_re, decay)?;
    check::expected_shape(name, "imaginary decay", decay_im, decay)?;
    check::expected_shape(name, "real carry", carry_re, &Shape::from([b, k]))?;
    check::expected_shape(name, "imaginary carry", carry_im, &Shape::from([b, k]))?;
    if let Some(im) = input_im {
        check::expected_shape(name, "imaginary input", im, input_re.shape())?;
    }
    if segment == Some(0) {
        return Err(TensorError::new(name, "a segment of 0 steps").hint("segments have one step at least"));
    }
    let settings = segment.map(|steps| ("segment", steps as f64));
    Tensor::fused_values(&DIAGONAL_SCAN, &inputs, settings.as_slice()).map(<[Tensor; 2]>::into)
}

/// The rule.
fn scan_gradient(k: &dyn Kernels, call: Upstreams<'_>) -> Result<Vec<Option<Array>>> {
    let inputs: Vec<&Array> = call.inputs.iter().collect();
    let [re, im] = call.values else {
        return Err(TensorError::new(DIAGONAL_SCAN.name, "the states were not kept"));
    };
    let upstream = |part: usize| call.gradients.get(part).and_then(Option::as_ref);
    let scan = Scan::of_call(Arguments::new(&inputs, call.settings))?;
    let gradient = ScanBackward { scan, states: (re, im), grad: (upstream(0), upstream(1)) }.run(k)?;
    Ok(gradient.into_values().into_iter().take(inputs.len()).map(Some).collect())
}

type Complex = (Array, Array);

/// The definition of `diagonal_scan`, one step of time after another.
fn scan_steps(k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
    let scan = Scan::of_call(call)?;
    let mut state = (scan.carry_re.clone(), scan.carry_im.clone());
    let (mut all_re, mut all_im) = (Vec::new(), Vec::new());
    for t in 0..scan.input_re.dims()[1] {
        state = complex_product(k, &decay_at(k, &scan, t)?, &state, false)?;
        state.0 = add_optional(k, state.0, slice_step(k, Some(scan.input_re), t)?)?;
        state.1 = add_optional(k, state.1, slice_step(k, scan.input_im, t)?)?;
        all_re.push(state.0.clone());
        all_im.push(state.1.clone());
    }
    let shape = &scan.input_re.shape;
    Ok(vec![stack_steps(k, &all_re, shape, scan.input_re)?, stack_steps(k, &all_im, shape, scan.input_re)?])
}

/// The definition of `diagonal_scan_backward`, from the last step to the first.
fn scan_back(k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
    let ScanBackward { scan, states, grad } = ScanBackward::of_call(call)?;
    let m = Math(k);
    let steps = scan.input_re.dims()[1];
    let over_time = scan.decay_re.shape.rank() > 1;
    let zero = k.full(&scan.carry_re.shape, scan.carry_re.dtype, 0.0)?;
    // What flows from step t + 1 into the state of step t; and the sum that becomes the gradient of a.
    let mut flow = (zero.clone(), zero.clone());
    let mut decay = (zero.clone(), zero.clone());
    let (mut all_decay_re, mut all_decay_im) = (Vec::new(), Vec::new());
    let (mut all_re, mut all_im) = (Vec::new(), Vec::new());
    for t in (0..steps).rev() {
        if scan.segment.is_some_and(|c| (t + 1) % c == 0 && t + 1 < steps) {
            flow = (zero.clone(), zero.clone());
        }
        let g =
            (add_optional(k, flow.0, slice_step(k, grad.0, t)?)?, add_optional(k, flow.1, slice_step(k, grad.1, t)?)?);
        let before = match t {
            0 => Some((scan.carry_re.clone(), scan.carry_im.clone())),
            _ => slice_step(k, Some(states.0), t - 1)?.zip(slice_step(k, Some(states.1), t - 1)?),
        };
        if let Some(before) = before {
            let product = complex_product(k, &before, &g, true)?;
            if over_time {
                all_decay_re.push(product.0);
                all_decay_im.push(product.1);
            } else {
                decay = (m.add(&decay.0, &product.0)?, m.add(&decay.1, &product.1)?);
            }
        }
        flow = complex_product(k, &decay_at(k, &scan, t)?, &g, true)?;
        all_re.push(g.0);
        all_im.push(g.1);
    }
    [&mut all_re, &mut all_im, &mut all_decay_re, &mut all_decay_im].into_iter().for_each(|all| all.reverse());
    let shape = &scan.input_re.shape;
    let over_batch = |x: &Array| Ok(m.sum(x, &[0])?.viewed(&scan.decay_re.shape));
    let decay = match over_time {
        true => {
            (stack_steps(k, &all_decay_re, shape, scan.input_re)?, stack_steps(k, &all_decay_im, shape, scan.input_re)?)
        }
        false => (over_batch(&decay.0)?, over_batch(&decay.1)?),
    };
    let input = (stack_steps(k, &all_re, shape, scan.input_re)?, stack_steps(k, &all_im, shape, scan.input_re)?);
    Ok(ScanGradient { decay, input, carry: flow }.into_values())
}

/// The factor of step t: [K], or [B, K] where it changes over time.
fn decay_at(k: &dyn Kernels, scan: &Scan<'_, Array>, t: usize) -> Result<Complex> {
    let (re, im) = (scan.decay_re, scan.decay_im);
    if re.shape.rank() == 1 {
        return Ok((re.clone(), im.clone()));
    }
    let step = |x: &Array| Ok(k.slice(x, 1, t, 1)?.viewed([x.dims()[0], x.dims()[2]]));
    Ok((step(re)?, step(im)?))
}

/// x y, or conj(x) y.
fn complex_product(k: &dyn Kernels, x: &Complex, y: &Complex, conjugate: bool) -> Result<Complex> {
    let m = Math(k);
    let (rr, ii) = (m.mul(&x.0, &y.0)?, m.mul(&x.1, &y.1)?);
    let (ri, ir) = (m.mul(&x.0, &y.1)?, m.mul(&x.1, &y.0)?);
    match conjugate {
        true => Ok((m.add(&rr, &ii)?, m.sub(&ri, &ir)?)),
        false => Ok((m.sub(&rr, &ii)?, m.add(&ri, &ir)?)),
    }
}

/// Step t of [B, T, K], as [B, K].
fn slice_step(k: &dyn Kernels, x: Option<&Array>, t: usize) -> Result<Option<Array>> {
    let Some(x) = x else { return Ok(None) };
    Ok(Some(k.slice(x, 1, t, 1)?.viewed([x.dims()[0], x.dims()[2]])))
}

fn add_optional(k: &dyn Kernels, x: Array, y: Option<Array>) -> Result<Array> {
    match y {
        Some(y) => Math(k).add(&x, &y),
        None => Ok(x),
    }
}

/// Steps [B, K] as one array [B, T, K].
fn stack_steps(k: &dyn Kernels, steps: &[Array], shape: &Shape, like: &Array) -> Result<Array> {
    if steps.is_empty() {
        return k.full(shape, like.dtype, 0.0);
    }
    let viewed: Vec<Array> = steps.iter().map(|x| x.viewed([x.dims()[0], 1, x.dims()[1]])).collect();
    k.concat(&viewed.iter().collect::<Vec<_>>(), 1)
}

/// B sequences, T steps and K states; the decay lies well inside the unit circle, so that long sequences stay comparable.
fn example([b, t, k]: [usize; 3], over_time: bool, complex: bool, segment: Option<usize>) -> Example {
    let decay = || match over_time {
        true => ExampleInput::between(-0.6, 0.6, [b, t, k]),
        false => ExampleInput::between(-0.6, 0.6, k),
    };
    let mut inputs = vec![decay(), decay(), ExampleInput::floats([b, k]), ExampleInput::floats([b, k])];
    inputs.extend(
        [ExampleInput::floats([b, t, k]), ExampleInput::floats([b, t, k])].into_iter().take(1 + usize::from(complex)),
    );
    Example { inputs, settings: segment.map(|steps| ("segment", steps as f64)).into_iter().collect() }
}

fn examples(size: ExampleSize) -> Vec<Example> {
    match size {
        ExampleSize::Small => {
            let sizes = [[1, 1, 1], [2, 5, 3], [1, 4, 17], [2, 0, 3], [0, 2, 2]];
            let both =
                |sizes| [true, false].map(|complex| [false, true].map(|moves| example(sizes, moves, complex, None)));
            sizes.into_iter().flat_map(both).flatten().collect()
        }
        ExampleSize::Medium => {
            let mut all = Vec::from([[1, 100, 3], [2, 67, 70]].map(|sizes| example(sizes, false, true, None)));
            all.extend([None, Some(7), Some(40)].map(|segment| example([1, 100, 3], true, true, segment)));
            all
        }
        ExampleSize::Large => {
            let mut all = Vec::from([[8, 200, 65], [3, 500, 16]].map(|sizes| example(sizes, false, true, None)));
            all.push(example([4, 200, 65], true, true, Some(64)));
            all
        }
    }
}

/// The states need not be those of the operands: the gradient is a function of what it is given.
fn examples_backward(size: ExampleSize) -> Vec<Example> {
    let with_states = |(i, example): (usize, Example)| {
        let Example { mut inputs, mut settings } = example;
        let states = inputs[4].shape.clone();
        settings.extend((inputs.len() == 6).then_some(("complex", 1.0)));
        settings.extend((i % 3 == 0).then_some(("segment", 3.0)));
        inputs.extend([0, 1].map(|_| ExampleInput::floats(states.clone())));
        for (_, name) in ["gradient_re", "gradient_im"].into_iter().enumerate().filter(|(part, _)| i % 4 != part + 1) {
            settings.push((name, 1.0));
            inputs.push(ExampleInput::floats(states.clone()));
        }
        Example { inputs, settings }
    };
    let plain = examples(size).into_iter().map(|example| Example { settings: Vec::new(), ..example });
    plain.enumerate().map(with_states).collect()
}
