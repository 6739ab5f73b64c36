//! Every kernel against the reference backend's loops in f64, and against itself on other numbers of threads.
//!
//! In tests all work is split between threads, however small it is (see `threads/split.rs`).

mod deferred;
mod fused;
mod primitives;
mod refusals;
mod stolen;
mod threads;

use assay_tensor::{Array, DType, Device, HostData, Kernels, Result, Shape};

/// Makes the same operands on any backend: floats in the type that it computes in.
struct Operands<'a> {
    kernels: &'a dyn Kernels,
    float: DType,
    state: u64,
}

impl Operands<'_> {
    /// A number in [-1, 1) that f32 holds exactly.
    fn next_number(&mut self) -> f64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from((self.state >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
    }

    fn upload_array(&self, data: HostData, shape: &Shape) -> Array {
        self.kernels.upload(data, shape).unwrap()
    }

    /// Floats between `low` and `high`.
    fn numbers_between(&mut self, low: f64, high: f64, shape: impl Into<Shape>) -> Array {
        let shape = shape.into();
        let number = |x: f64| f64::from((low + (high - low) * (x + 1.0) / 2.0) as f32);
        let values: Vec<f64> = (0..shape.numel()).map(|_| number(self.next_number())).collect();
        self.upload_array(HostData::from_f64(&values, self.float), &shape)
    }

    /// Floats between -2 and 2.
    fn random_floats(&mut self, shape: impl Into<Shape>) -> Array {
        self.numbers_between(-2.0, 2.0, shape)
    }

    /// u32 below `limit`.
    fn random_ids(&mut self, limit: usize, shape: impl Into<Shape>) -> Array {
        let shape = shape.into();
        let id = |x: f64| ((x + 1.0) / 2.0 * limit as f64) as u32;
        let ids = (0..shape.numel()).map(|_| id(self.next_number())).collect();
        self.upload_array(HostData::U32(ids), &shape)
    }

    /// i8 over the whole range.
    fn random_bytes(&mut self, shape: impl Into<Shape>) -> Array {
        let shape = shape.into();
        let bytes = (0..shape.numel()).map(|_| (self.next_number() * 128.0) as i8).collect();
        self.upload_array(HostData::I8(bytes), &shape)
    }
}

type Values = Vec<(Shape, HostData)>;
type Work<'a> = &'a dyn Fn(&dyn Kernels, &mut Operands<'_>) -> Result<Vec<Array>>;

fn run_work(device: &Device, float: DType, work: Work<'_>) -> Values {
    let kernels = device.kernels();
    let mut operands = Operands { kernels, float, state: 7 };
    let arrays = work(kernels, &mut operands).unwrap();
    arrays.iter().map(|x| (x.shape.clone(), kernels.download(x).unwrap())).collect()
}

/// Runs `work` here and on the reference backend, and compares: within `tolerance` relative to the larger of 1 and the
/// value; and bit by bit on one, two and three threads.
fn check_operation(what: &str, tolerance: f64, work: impl Fn(&dyn Kernels, &mut Operands<'_>) -> Result<Vec<Array>>) {
    let expected = run_work(&assay_reference::device(), DType::F64, &work);
    let found = run_work(&crate::device(1).unwrap(), DType::F32, &work);
    assert_eq!(found.len(), expected.len(), "{what}");
    for (part, ((shape, found), (wanted_shape, wanted))) in found.iter().zip(&expected).enumerate() {
        assert_eq!(shape, wanted_shape, "{what}, part {part}");
        for (i, (a, b)) in found.to_f64().iter().zip(wanted.to_f64()).enumerate() {
            let right = (a - b).abs() <= tolerance * b.abs().max(1.0) || (a.is_nan() && b.is_nan());
            assert!(right, "{what} of {shape}, part {part}, element {i}: {a}, not {b}");
        }
    }
    for threads in [2, 3] {
        let again = run_work(&crate::device(threads).unwrap(), DType::F32, &work);
        for ((_, one), (_, many)) in found.iter().zip(&again) {
            let bits = |x: &HostData| x.to_f64().into_iter().map(f64::to_bits).collect::<Vec<_>>();
            assert_eq!(bits(one), bits(many), "{what} on {threads} threads");
        }
    }
}
