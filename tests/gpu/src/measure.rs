//! Kernels compared with their bounds: copies on the device, and matrix products.

use assay_gpu::{Address, Driver, DriverError, Element, Epilogue, Operand, Product};
use assay_tensor::{
    Arguments, Array, Attention, AttentionBackward, AttentionKind, AttentionOptions, DType, Device, LINEAR_GELU,
    LINEAR_GELU_BACKWARD, Linear, Scan, ScanBackward, Tensor, Unary, bf16,
};

use crate::Failure;
use crate::report::GpuReport;

/// The sizes of all measurements.
pub struct Sizes {
    /// The size of a copy in bytes.
    pub copy: usize,
    /// The side of the square matrices.
    pub side: usize,
    /// B, T, K of the scan.
    pub scan: [usize; 3],
    /// B, T, D, K of TEN's layer, compared with the published form.
    pub layer: [usize; 4],
    /// The number of steps between cuts of its gradient.
    pub chunk: usize,
    /// B, H, T, Dh of attention.
    pub attention: [usize; 4],
    /// Whether the models are trained in their real sizes.
    pub real: bool,
    /// Pairs of samples.
    pub pairs: usize,
}

impl Sizes {
    /// The sizes of the targets.
    pub fn real() -> Sizes {
        Sizes {
            copy: 1 << 30,
            side: 8192,
            scan: [32, 2048, 1024],
            layer: [32, 1024, 1024, 128],
            chunk: 64,
            attention: [8, 16, 2048, 64],
            real: true,
            pairs: 15,
        }
    }

    /// A second or two on an emulated device.
    pub fn tiny() -> Sizes {
        let (layer, chunk, attention) = ([2, 8, 8, 4], 4, [1, 1, 8, 8]);
        Sizes { copy: 1 << 12, side: 16, scan: [2, 8, 16], layer, chunk, attention, real: false, pairs: 6 }
    }
}

/// Samples of two kinds of work alternately, in units per second according to `driver`, after one unmeasured sample of
/// each.
pub fn in_turns(
    driver: &dyn Driver,
    pairs: usize,
    mut first: (f64, impl FnMut() -> Result<(), DriverError>),
    mut second: (f64, impl FnMut() -> Result<(), DriverError>),
) -> Result<(Vec<f64>, Vec<f64>), Failure> {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for pair in 0..=pairs {
        let milliseconds = [driver.measure_time(&mut first.1)?, driver.measure_time(&mut second.1)?];
        // An emulated device may take no measurable time.
        let rates = [first.0, second.0].map(|units| units * 1e3);
        if pair > 0 {
            left.push(rates[0] / milliseconds[0].max(1e-6));
            right.push(rates[1] / milliseconds[1].max(1e-6));
        }
    }
    Ok((left, right))
}

/// The elements of a matrix: random numbers in [-1, 1).
fn random_bytes(count: usize, element: Element) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    match element {
        Element::F32 => (0..count).flat_map(|_| next().to_le_bytes()).collect(),
        Element::Bf16 => (0..count).flat_map(|_| bf16::from_f32(next()).to_le_bytes()).collect(),
    }
}

/// A square product of two matrices in separate memory.
pub struct Multiply<'a> {
    driver: &'a dyn Driver,
    product: Product,
    places: [Address; 3],
}

impl<'a> Multiply<'a> {
    /// Of matrices with this side; the result is f32. They contain random numbers: products of zeros are faster, since the
    /// device draws less power.
    pub fn new(driver: &'a dyn Driver, side: usize, element: Element) -> Result<Self, DriverError> {
        let bytes = side * side * 4;
        let places = [driver.allocate(bytes)?, driver.allocate(bytes)?, driver.allocate(bytes)?];
        let content = random_bytes(side * side, element);
        for place in &places[..2] {
            driver.copy_to_device(*place, &content)?;
        }
        let operand = |address, element| Operand { address, element, stride: side, batch_stride: 0, transposed: false };
        let product = Product {
            m: side,
            n: side,
            k: side,
            batch: 1,
            a: operand(places[0], element),
            b: operand(places[1], element),
            c: operand(places[2], Element::F32),
            base: None,
            epilogue: Epilogue::None,
        };
        Ok(Multiply { driver, product, places })
    }

    /// Operations of one product.
    pub fn operations(&self) -> f64 {
        2.0 * (self.product.m as f64).powi(3)
    }

    /// Starts the product.
    pub fn run(&self) -> Result<(), DriverError> {
        self.driver.launch_product(&self.product)
    }
}

impl Drop for Multiply<'_> {
    fn drop(&mut self) {
        for place in self.places {
            // If the device was lost, there is nothing to free.
            let _ = self.driver.free(place);
        }
    }
}

/// Copies within the device.
struct Copy<'a> {
    driver: &'a dyn Driver,
    bytes: usize,
    places: [Address; 2],
}

impl<'a> Copy<'a> {
    fn new(driver: &'a dyn Driver, bytes: usize) -> Result<Self, DriverError> {
        let places = [driver.allocate(bytes)?, driver.allocate(bytes)?];
        driver.zero_memory(places[1], bytes)?;
        Ok(Copy { driver, bytes, places })
    }

    /// Gigabytes read and written.
    fn gigabytes(&self) -> f64 {
        2e-9 * self.bytes as f64
    }

    fn run(&self) -> Result<(), DriverError> {
        self.driver.copy_on_device(self.places[0], self.places[1], self.bytes)
    }
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        for place in self.places {
            let _ = self.driver.free(place);
        }
    }
}

/// Measures all kernels.
///
/// # Errors
/// If the device fails.
pub fn all(driver: &dyn Driver, device: &Device, sizes: &Sizes, report: &mut GpuReport) -> Result<(), Failure> {
    eprintln!("kernels");
    products(driver, sizes, report)?;
    gelu(driver, device, sizes, report)?;
    scan(driver, device, sizes, report)?;
    attention(driver, device, sizes, report)
}

fn products(driver: &dyn Driver, sizes: &Sizes, report: &mut GpuReport) -> Result<(), Failure> {
    let wide = Multiply::new(driver, sizes.side, Element::F32)?;
    let narrow = Multiply::new(driver, sizes.side, Element::Bf16)?;
    let tera = wide.operations() * 1e-12;
    let (f32s, bf16s) = in_turns(driver, sizes.pairs, (tera, || wide.run()), (tera, || narrow.run()))?;
    report.rate(&format!("matmul f32 {}", sizes.side), "TFLOP/s", &f32s)?;
    report.rate(&format!("matmul bf16 {}", sizes.side), "TFLOP/s", &bf16s)
}

/// A layer with GELU as one operation, compared with separate operations: the benefit of the library's epilogue, if it has
/// one.
fn gelu(driver: &dyn Driver, device: &Device, sizes: &Sizes, report: &mut GpuReport) -> Result<(), Failure> {
    let ([b, t, d, _], kernels) = (sizes.layer, device.kernels());
    let (rows, wide) = (b * t, 4 * d);
    let (x, up) = (numbers(device, &[rows, d], 1.0)?, numbers(device, &[wide, d], 0.1)?);
    let (bias, down) = (numbers(device, &[wide], 0.1)?, numbers(device, &[d, wide], 0.1)?);
    let tera = 2e-12 * (rows * wide * d) as f64;
    let mut failed = (None, None);
    let inputs = [&x, &up, &bias];
    let one = (tera, || work(&mut failed.0, LINEAR_GELU.run(kernels, Arguments::new(&inputs, &[]))));
    let linear = Linear { x: &x, weight: &up, bias: Some(&bias), base: None };
    let apart = (tera, || {
        let both = linear.run(kernels).and_then(|z| kernels.unary(Unary::Gelu, &z));
        work(&mut failed.1, both)
    });
    let (rate, beside) = in_turns(driver, sizes.pairs, one, apart)?;
    let what = format!("linear with GELU [{rows}, {d}] [{wide}, {d}]");
    report.bounded(&what, "TFLOP/s", &rate, ("one after the other", &beside))?;
    let (z, grad) = (linear.run(kernels)?, &x);
    let inputs = [grad, &down, &z];
    let one = (tera, || work(&mut failed.0, LINEAR_GELU_BACKWARD.run(kernels, Arguments::new(&inputs, &[]))));
    let apart = (tera, || {
        let slope = kernels.matmul(grad, &down, false, false).and_then(|y| kernels.unary_backward(Unary::Gelu, &z, &y));
        work(&mut failed.1, slope.and_then(|_| kernels.unary(Unary::Gelu, &z)))
    });
    let (rate, beside) = in_turns(driver, sizes.pairs, one, apart)?;
    report.bounded(&format!("its gradient [{rows}, {wide}]"), "TFLOP/s", &rate, ("one after the other", &beside))?;
    failed.0.or(failed.1).map_or(Ok(()), |error| Err(error.into()))
}

/// Pseudorandom numbers, at most `scale` in magnitude; `peers.py` generates the same.
pub fn tensor(device: &Device, dims: &[usize], scale: f32) -> Result<Tensor, Failure> {
    let count: usize = dims.iter().product();
    let values = (0..count).map(|i| ((i * 7919 % 2003) as f32 / 1001.5 - 1.0) * scale).collect();
    Ok(Tensor::from_f32(device, values, dims)?)
}

fn numbers(device: &Device, dims: &[usize], scale: f32) -> Result<Array, Failure> {
    Ok(tensor(device, dims, scale)?.array().clone())
}

/// Performs an operation whose time is measured, and stores its error.
pub fn work<T>(failed: &mut Option<String>, operation: assay_tensor::Result<T>) -> Result<(), DriverError> {
    if let Err(error) = operation {
        *failed = Some(error.to_string());
    }
    Ok(())
}

fn scan(driver: &dyn Driver, device: &Device, sizes: &Sizes, report: &mut GpuReport) -> Result<(), Failure> {
    let ([b, t, k], kernels) = (sizes.scan, device.kernels());
    let (decay_re, decay_im) = (numbers(device, &[k], 0.7)?, numbers(device, &[k], 0.7)?);
    let (input_re, carry) = (numbers(device, &[b, t, k], 1.0)?, numbers(device, &[b, k], 1.0)?);
    let call = Scan {
        decay_re: &decay_re,
        decay_im: &decay_im,
        input_re: &input_re,
        input_im: None,
        carry_re: &carry,
        carry_im: &carry,
        segment: None,
    };
    let states = call.run(kernels)?;
    let copy = Copy::new(driver, sizes.copy)?;
    let elements = (b * t * k) as f64;
    let mut failed = None;
    // Reads beta, writes both parts of the states.
    let forward = (12e-9 * elements, || work(&mut failed, call.run(kernels)));
    let (rate, bound) = in_turns(driver, sizes.pairs, forward, (copy.gigabytes(), || copy.run()))?;
    report.rate("copy on the device", "GB/s", &bound)?;
    report.bounded(&format!("scan forward [{b}, {t}, {k}]"), "GB/s", &rate, ("the copy", &bound))?;
    // Reads the gradients of both parts and the states, writes the gradients of both parts of beta.
    let backward = (24e-9 * elements, || {
        let grads = (Some(&states.0), Some(&states.1));
        work(&mut failed, ScanBackward { scan: call, states: (&states.0, &states.1), grad: grads }.run(kernels))
    });
    let (rate, bound) = in_turns(driver, sizes.pairs, backward, (copy.gigabytes(), || copy.run()))?;
    report.bounded(&format!("scan backward [{b}, {t}, {k}]"), "GB/s", &rate, ("the copy", &bound))?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

fn attention(driver: &dyn Driver, device: &Device, sizes: &Sizes, report: &mut GpuReport) -> Result<(), Failure> {
    let ([b, h, t, d], kernels) = (sizes.attention, device.kernels());
    let [q, k, v] = [0.5, 0.6, 0.7].map(|scale| numbers(device, &[b, h, t, d], scale));
    let (q, k, v) = (q?, k?, v?);
    let narrow = |x: &Array| kernels.cast(x, DType::Bf16);
    let (q16, k16, v16) = (narrow(&q)?, narrow(&k)?, narrow(&v)?);
    let options = AttentionOptions { causal: true, scale: (d as f64).sqrt().recip(), kind: AttentionKind::Flash };
    // Two products over the half of all pairs that causal queries attend to.
    let tera = 2e-12 * (b * h * t * t * d) as f64;
    let mut failed = None;
    let wide = Attention { q: &q, k: &k, v: &v, options };
    let narrow = Attention { q: &q16, k: &k16, v: &v16, options };
    let (out, lse) = narrow.run(kernels)?;
    for (name, element) in [("f32", Element::F32), ("bf16", Element::Bf16)] {
        let multiply = Multiply::new(driver, sizes.side, element)?;
        let product = || (multiply.operations() * 1e-12, || multiply.run());
        let of = if element == Element::F32 { wide } else { narrow };
        let forward = || work(&mut failed, of.run(kernels));
        let (rate, bound) = in_turns(driver, sizes.pairs, (tera, forward), product())?;
        let what = format!("flash attention forward, {name}, causal [{b}, {h}, {t}, {d}]");
        report.bounded(&what, "TFLOP/s", &rate, (&format!("matmul {name}"), &bound))?;
        let back = AttentionBackward { of, out: &out, lse: &lse, grad: &q };
        let backward = || work(&mut failed, back.run(kernels));
        // Five products instead of two, by the usual count: the scores are recomputed once.
        let (rate, bound) = in_turns(driver, sizes.pairs, (2.5 * tera, backward), product())?;
        let what = format!("flash attention backward, {name}, causal [{b}, {h}, {t}, {d}]");
        report.bounded(&what, "TFLOP/s", &rate, (&format!("matmul {name}"), &bound))?;
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}
