//! What the launches of a step take when each has the device to itself: their sum, to compare the step with, and each
//! kernel's share of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use assay_gpu::{Address, Argument, Driver, DriverError, Epilogue, Facts, Function, Graph, Launch, Operand, Product};

type Result<T = (), E = DriverError> = std::result::Result<T, E>;

/// A driver that, where it is asked to, waits for each launch and adds up what they take.
#[derive(Debug)]
pub struct Alone {
    inner: Arc<dyn Driver>,
    /// What was launched so far; none while nothing is added up.
    profile: Mutex<Option<Profile>>,
    /// The names of the kernels that were compiled.
    names: Mutex<BTreeMap<u64, String>>,
    /// Milliseconds that are measured where nothing is launched.
    overhead: f64,
}

/// What launches took, by kernel.
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
        let mut empty = (0..21).map(|_| inner.time(&mut || Ok(()))).collect::<Result<Vec<f64>>>()?;
        empty.sort_by(f64::total_cmp);
        Ok(Alone { inner, profile: Mutex::default(), names: Mutex::default(), overhead: empty[10] })
    }

    fn profile(&self) -> MutexGuard<'_, Option<Profile>> {
        self.profile.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<u64, String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What everything that `work` launches takes, one launch after the other.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn profile_of<E>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<Profile, E> {
        *self.profile() = Some(Profile::default());
        let done = work();
        let profile = self.profile().take().unwrap_or_default();
        done.map(|()| profile)
    }

    /// Does `work`, and adds what it takes to the kernel of this name if costs are added up.
    fn measure(&self, name: impl FnOnce() -> String, mut work: impl FnMut() -> Result) -> Result {
        if self.profile().is_none() {
            return work();
        }
        let milliseconds = (self.inner.time(&mut work)? - self.overhead).max(0.0);
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
    fn facts(&self) -> &Facts {
        self.inner.facts()
    }
    fn memory(&self) -> Result<(usize, usize)> {
        self.inner.memory()
    }
    fn allocate(&self, bytes: usize) -> Result<Address> {
        self.inner.allocate(bytes)
    }
    fn free(&self, address: Address) -> Result {
        self.inner.free(address)
    }
    fn copy_in(&self, to: Address, bytes: &[u8]) -> Result {
        self.inner.copy_in(to, bytes)
    }
    fn copy_out(&self, from: Address, bytes: &mut [u8]) -> Result {
        self.inner.copy_out(from, bytes)
    }
    fn copy(&self, to: Address, from: Address, bytes: usize) -> Result {
        self.measure(|| "copy".to_owned(), || self.inner.copy(to, from, bytes))
    }
    fn clear(&self, address: Address, bytes: usize) -> Result {
        self.measure(|| "clear".to_owned(), || self.inner.clear(address, bytes))
    }
    fn compile(
        &self,
        source: &str,
        headers: &[(&str, &str)],
        options: &[&str],
        names: &[&str],
    ) -> Result<Vec<Function>> {
        let functions = self.inner.compile(source, headers, options, names)?;
        self.names().extend(functions.iter().map(|function| function.0).zip(names.iter().map(|&name| name.to_owned())));
        Ok(functions)
    }
    fn launch(&self, function: Function, launch: Launch, arguments: &[Argument]) -> Result {
        let name = || self.names().get(&function.0).cloned().unwrap_or_default();
        self.measure(name, || self.inner.launch(function, launch, arguments))
    }
    fn offers(&self, product: &Product) -> Result<bool> {
        self.inner.offers(product)
    }
    fn product(&self, product: &Product) -> Result {
        self.measure(|| product_name(product), || self.inner.product(product))
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
    fn replay(&self, graph: Graph) -> Result {
        self.measure(|| "graph".to_owned(), || self.inner.replay(graph))
    }
    fn forget(&self, graph: Graph) -> Result {
        self.inner.forget(graph)
    }
    fn time(&self, work: &mut dyn FnMut() -> Result) -> Result<f64> {
        self.inner.time(work)
    }
}
