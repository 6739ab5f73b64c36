//! The time of each launch of a step when it has the device to itself: the sum, for comparison with the step, and each
//! kernel's share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use assay_gpu::{
    Address, Argument, DeviceProperties, Driver, DriverError, Epilogue, Function, Graph, Launch, Operand, Product,
};

type Result<T = (), E = DriverError> = std::result::Result<T, E>;

/// A driver that, if enabled, waits for each launch and adds up the times.
#[derive(Debug)]
pub struct Alone {
    inner: Arc<dyn Driver>,
    /// The launches so far; `None` if times are not added up.
    profile: Mutex<Option<Profile>>,
    /// The names of the kernels that were compiled.
    names: Mutex<BTreeMap<u64, String>>,
    /// The measured milliseconds without a launch.
    overhead: f64,
}

/// The times of launches, by kernel.
#[derive(Debug, Clone, Default)]
pub struct Profile(BTreeMap<String, Cost>);

/// The launches of one kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    pub launches: usize,
    pub milliseconds: f64,
}

impl Profile {
    /// Milliseconds of all launches.
    pub fn total(&self) -> f64 {
        self.0.values().map(|cost| cost.milliseconds).sum()
    }

    /// The kernels, the most expensive first.
    pub fn by_cost(&self) -> Vec<(&str, Cost)> {
        let mut list: Vec<_> = self.0.iter().map(|(name, &cost)| (name.as_str(), cost)).collect();
        list.sort_by(|a, b| b.1.milliseconds.total_cmp(&a.1.milliseconds));
        list
    }
}

impl Alone {
    /// # Errors
    /// If the device fails.
    pub fn new(inner: Arc<dyn Driver>) -> Result<Alone> {
        let mut empty = (0..21).map(|_| inner.measure_time(&mut || Ok(()))).collect::<Result<Vec<f64>>>()?;
        empty.sort_by(f64::total_cmp);
        Ok(Alone { inner, profile: Mutex::default(), names: Mutex::default(), overhead: empty[10] })
    }

    fn profile(&self) -> MutexGuard<'_, Option<Profile>> {
        self.profile.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<u64, String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of all launches of `work`, one after the other.
    ///
    /// # Errors
    /// The errors of `work`.
    pub fn profile_of<E>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<Profile, E> {
        *self.profile() = Some(Profile::default());
        let done = work();
        let profile = self.profile().take().unwrap_or_default();
        done.map(|()| profile)
    }

    /// Performs `work`, and adds its time to the kernel with this name if times are added up.
    fn measure(&self, name: impl FnOnce() -> String, mut work: impl FnMut() -> Result) -> Result {
        if self.profile().is_none() {
            return work();
        }
        let milliseconds = (self.inner.measure_time(&mut work)? - self.overhead).max(0.0);
        if let Some(profile) = self.profile().as_mut() {
            let cost = profile.0.entry(name()).or_default();
            cost.launches += 1;
            cost.milliseconds += milliseconds;
        }
        Ok(())
    }
}

/// A product by its extents and types.
fn product_name(product: &Product) -> String {
    let Product { m, n, k, batch, a, b, c, base, epilogue } = product;
    let side = |operand: &Operand| format!("{:?}{}", operand.element, if operand.transposed { "^T" } else { "" });
    let (a, b, onto) = (side(a), side(b), if base.is_none() { "" } else { ", added" });
    let epilogue = match epilogue {
        Epilogue::None => "",
        Epilogue::Bias(_) => ", bias",
        Epilogue::Gelu { .. } => ", GELU",
        Epilogue::GeluGradient { .. } => ", GELU gradient",
    };
    format!("product {batch} x [{m}, {n}, {k}] {a} {b} to {:?}{epilogue}{onto}", c.element)
}

impl Driver for Alone {
    fn properties(&self) -> &DeviceProperties {
        self.inner.properties()
    }
    fn memory_info(&self) -> Result<(usize, usize)> {
        self.inner.memory_info()
    }
    fn allocate(&self, bytes: usize) -> Result<Address> {
        self.inner.allocate(bytes)
    }
    fn free(&self, address: Address) -> Result {
        self.inner.free(address)
    }
    fn copy_to_device(&self, to: Address, bytes: &[u8]) -> Result {
        self.inner.copy_to_device(to, bytes)
    }
    fn copy_to_host(&self, from: Address, bytes: &mut [u8]) -> Result {
        self.inner.copy_to_host(from, bytes)
    }
    fn copy_on_device(&self, to: Address, from: Address, bytes: usize) -> Result {
        self.measure(|| "copy".to_owned(), || self.inner.copy_on_device(to, from, bytes))
    }
    fn zero_memory(&self, address: Address, bytes: usize) -> Result {
        self.measure(|| "clear".to_owned(), || self.inner.zero_memory(address, bytes))
    }
    fn compile_kernels(
        &self,
        source: &str,
        headers: &[(&str, &str)],
        options: &[&str],
        names: &[&str],
    ) -> Result<Vec<Function>> {
        let functions = self.inner.compile_kernels(source, headers, options, names)?;
        self.names().extend(functions.iter().map(|function| function.0).zip(names.iter().map(|&name| name.to_owned())));
        Ok(functions)
    }
    fn launch_kernel(&self, function: Function, launch: Launch, arguments: &[Argument]) -> Result {
        let name = || self.names().get(&function.0).cloned().unwrap_or_default();
        self.measure(name, || self.inner.launch_kernel(function, launch, arguments))
    }
    fn supports_product(&self, product: &Product) -> Result<bool> {
        self.inner.supports_product(product)
    }
    fn launch_product(&self, product: &Product) -> Result {
        self.measure(|| product_name(product), || self.inner.launch_product(product))
    }
    fn synchronize(&self) -> Result {
        self.inner.synchronize()
    }
    fn begin_capture(&self) -> Result {
        self.inner.begin_capture()
    }
    fn end_capture(&self) -> Result<Graph> {
        self.inner.end_capture()
    }
    fn launch_graph(&self, graph: Graph) -> Result {
        self.measure(|| "graph".to_owned(), || self.inner.launch_graph(graph))
    }
    fn destroy_graph(&self, graph: Graph) -> Result {
        self.inner.destroy_graph(graph)
    }
    fn measure_time(&self, work: &mut dyn FnMut() -> Result) -> Result<f64> {
        self.inner.measure_time(work)
    }
}
