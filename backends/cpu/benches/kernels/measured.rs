//! The device, and the second table: what each kernel reached of what the machine could do.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

use assay_tensor::{Array, Device, HostData, Kernels, Shape, TensorError};
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};

/// What a kernel has to do at least.
#[derive(Debug, Clone, Copy)]
pub enum Work {
    /// f32 operations.
    Operations(usize),
    /// Bytes read and written.
    Bytes(usize),
}

/// How often the machine's rate is measured before a kernel; the largest counts.
const RATES: usize = 5;

struct Row {
    name: String,
    work: Work,
    /// A second, of the machine at its best, just before.
    best: f64,
    seconds: Vec<f64>,
}

static ROWS: Mutex<Vec<Row>> = Mutex::new(Vec::new());

static DEVICE: LazyLock<Device> =
    LazyLock::new(|| assay_cpu::device(threads()).expect("the system gives a few threads"));

fn threads() -> usize {
    std::env::var("ASSAY_THREADS").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// The kernels of the one device.
pub fn kernels() -> &'static dyn Kernels {
    DEVICE.kernels()
}

/// An array of small numbers of both signs.
pub fn numbers(shape: impl Into<Shape>) -> Array {
    let shape = shape.into();
    let values = (0..shape.numel()).map(|i| (i * 7919 % 2003) as f32 / 2003.0 - 0.5).collect();
    kernels().upload(HostData::F32(values), &shape).expect("enough memory")
}

/// Benches a kernel under a name of the second table.
pub fn bench<T>(
    bencher: Bencher<'_, '_>,
    name: String,
    work: Work,
    mut kernel: impl FnMut() -> Result<T, TensorError>,
) {
    let rate = |_| match work {
        Work::Operations(_) => kernels().arithmetic_rate().unwrap_or(f64::NAN),
        Work::Bytes(_) => assay_cpu::peak::copy_rate(threads()),
    };
    let best = (0..RATES).map(rate).fold(f64::NAN, f64::max);
    let mut seconds = Vec::new();
    let timed = || {
        let began = Instant::now();
        let value = kernel().expect("the shapes fit");
        seconds.push(began.elapsed().as_secs_f64());
        value
    };
    match work {
        Work::Operations(count) => bencher.counter(ItemsCount::new(count)).bench_local(timed),
        Work::Bytes(count) => bencher.counter(BytesCount::new(count)).bench_local(timed),
    }
    ROWS.lock().unwrap_or_else(PoisonError::into_inner).push(Row { name, work, best, seconds });
}

/// Prints the second table.
pub fn print() {
    let mut rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    if rows.iter().all(|row| row.seconds.is_empty()) {
        return;
    }
    println!("\n{:46} {:>12} {:>14} {:>10}", "on the machine's own scale", "median", "rate", "share");
    for row in rows.iter_mut().filter(|row| !row.seconds.is_empty()) {
        row.seconds.sort_unstable_by(f64::total_cmp);
        let median = row.seconds[row.seconds.len() / 2];
        let (amount, unit) = match row.work {
            Work::Operations(count) => (count as f64, "GFLOP/s"),
            Work::Bytes(count) => (count as f64, "GB/s"),
        };
        let rate = amount / median;
        let share = 100.0 * rate / row.best;
        println!("{:46} {:9.1} us {:7.1} {unit:7} {share:7.1} %", row.name, median * 1e6, rate / 1e9);
    }
}
