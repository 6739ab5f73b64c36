//! A driver that counts calls to another driver.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use assay_gpu::{
    Address, Argument, DeviceProperties, Driver, DriverError, Element, Epilogue, Function, Graph, Launch, Product,
};

type Result<T = (), E = DriverError> = std::result::Result<T, E>;

/// The number of calls of each kind.
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
    /// Called when the capture of a graph has started.
    pub during_capture: Hook,
}

/// An optional callback.
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

/// Another driver with counters.
#[derive(Debug)]
pub struct Counting<D>(pub D, pub Arc<Counts>);

fn add(count: &AtomicUsize) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl<D: Driver> Driver for Counting<D> {
    fn properties(&self) -> &DeviceProperties {
        self.0.properties()
    }

    fn memory_info(&self) -> Result<(usize, usize)> {
        self.0.memory_info()
    }

    fn allocate(&self, bytes: usize) -> Result<Address> {
        add(&self.1.allocations);
        self.0.allocate(bytes)
    }

    fn free(&self, address: Address) -> Result {
        self.0.free(address)
    }

    fn copy_to_device(&self, to: Address, bytes: &[u8]) -> Result {
        self.0.copy_to_device(to, bytes)
    }

    fn copy_to_host(&self, from: Address, bytes: &mut [u8]) -> Result {
        add(&self.1.waits);
        self.0.copy_to_host(from, bytes)
    }

    fn copy_on_device(&self, to: Address, from: Address, bytes: usize) -> Result {
        self.0.copy_on_device(to, from, bytes)
    }

    fn zero_memory(&self, address: Address, bytes: usize) -> Result {
        self.0.zero_memory(address, bytes)
    }

    fn compile_kernels(
        &self,
        source: &str,
        headers: &[(&str, &str)],
        options: &[&str],
        names: &[&str],
    ) -> Result<Vec<Function>> {
        self.0.compile_kernels(source, headers, options, names)
    }

    fn launch_kernel(&self, function: Function, launch: Launch, arguments: &[Argument]) -> Result {
        add(&self.1.launches);
        self.0.launch_kernel(function, launch, arguments)
    }

    fn supports_product(&self, product: &Product) -> Result<bool> {
        self.0.supports_product(product)
    }

    fn launch_product(&self, product: &Product) -> Result {
        add(&self.1.launches);
        if matches!(product.epilogue, Epilogue::Gelu { .. } | Epilogue::GeluGradient { .. }) {
            add(&self.1.gelus);
        }
        if product.a.element == Element::Bf16 {
            add(&self.1.narrow);
        }
        self.0.launch_product(product)
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

    fn launch_graph(&self, graph: Graph) -> Result {
        add(&self.1.replays);
        self.0.launch_graph(graph)
    }

    fn destroy_graph(&self, graph: Graph) -> Result {
        self.0.destroy_graph(graph)
    }

    fn measure_time(&self, work: &mut dyn FnMut() -> Result) -> Result<f64> {
        self.0.measure_time(work)
    }
}
