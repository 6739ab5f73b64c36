//! A driver that counts what is asked of another.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use assay_gpu::{Address, Argument, Driver, DriverError, Element, Epilogue, Facts, Function, Graph, Launch, Product};

type Result<T = (), E = DriverError> = std::result::Result<T, E>;

/// How often each kind of call was made.
#[derive(Debug, Default)]
pub struct Counts {
    pub allocations: AtomicUsize,
    pub launches: AtomicUsize,
    /// Products with GELU or its gradient.
    pub gelus: AtomicUsize,
    /// Products of bf16.
    pub narrow: AtomicUsize,
    /// Calls that wait for the device.
    pub waits: AtomicUsize,
    /// Graphs that were started.
    pub replays: AtomicUsize,
    /// What happens when the capture of a graph has begun.
    pub during_capture: Hook,
}

/// Something to be called, if anything.
#[derive(Default)]
pub struct Hook(pub Mutex<Option<Box<dyn Fn() + Send>>>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

impl Counts {
    /// Allocations, launches (products among them) and waits.
    pub fn now(&self) -> [usize; 3] {
        [&self.allocations, &self.launches, &self.waits].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Another driver, counted.
#[derive(Debug)]
pub struct Counting<D>(pub D, pub Arc<Counts>);

fn add(count: &AtomicUsize) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl<D: Driver> Driver for Counting<D> {
    fn facts(&self) -> &Facts {
        self.0.facts()
    }

    fn memory(&self) -> Result<(usize, usize)> {
        self.0.memory()
    }

    fn allocate(&self, bytes: usize) -> Result<Address> {
        add(&self.1.allocations);
        self.0.allocate(bytes)
    }

    fn free(&self, address: Address) -> Result {
        self.0.free(address)
    }

    fn copy_in(&self, to: Address, bytes: &[u8]) -> Result {
        self.0.copy_in(to, bytes)
    }

    fn copy_out(&self, from: Address, bytes: &mut [u8]) -> Result {
        add(&self.1.waits);
        self.0.copy_out(from, bytes)
    }

    fn copy(&self, to: Address, from: Address, bytes: usize) -> Result {
        self.0.copy(to, from, bytes)
    }

    fn clear(&self, address: Address, bytes: usize) -> Result {
        self.0.clear(address, bytes)
    }

    fn compile(
        &self,
        source: &str,
        headers: &[(&str, &str)],
        options: &[&str],
        names: &[&str],
    ) -> Result<Vec<Function>> {
        self.0.compile(source, headers, options, names)
    }

    fn launch(&self, function: Function, launch: Launch, arguments: &[Argument]) -> Result {
        add(&self.1.launches);
        self.0.launch(function, launch, arguments)
    }

    fn offers(&self, product: &Product) -> Result<bool> {
        self.0.offers(product)
    }

    fn product(&self, product: &Product) -> Result {
        add(&self.1.launches);
        if matches!(product.epilogue, Epilogue::Gelu { .. } | Epilogue::GeluGradient { .. }) {
            add(&self.1.gelus);
        }
        if product.a.element == Element::Bf16 {
            add(&self.1.narrow);
        }
        self.0.product(product)
    }

    fn synchronize(&self) -> Result {
        add(&self.1.waits);
        self.0.synchronize()
    }

    fn begin_capture(&self) -> Result {
        self.0.begin_capture()?;
        if let Some(hook) = &*self.1.during_capture.0.lock().unwrap() {
            hook();
        }
        Ok(())
    }

    fn end_capture(&self) -> Result<Graph> {
        self.0.end_capture()
    }

    fn replay(&self, graph: Graph) -> Result {
        add(&self.1.replays);
        self.0.replay(graph)
    }

    fn forget(&self, graph: Graph) -> Result {
        self.0.forget(graph)
    }

    fn time(&self, work: &mut dyn FnMut() -> Result) -> Result<f64> {
        self.0.time(work)
    }
}
