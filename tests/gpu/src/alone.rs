//! What the launches of a step take when each has the device to itself, to compare the step with.

use std::sync::{Arc, Mutex, PoisonError};

use assay_gpu::{Address, Argument, Driver, DriverError, Facts, Function, Graph, Launch, Product};

type Result<T = (), E = DriverError> = std::result::Result<T, E>;

/// A driver that, where it is asked to, waits for each piece of work and adds up what they take.
#[derive(Debug)]
pub struct Alone {
    inner: Arc<dyn Driver>,
    /// Milliseconds so far; none while nothing is added up.
    sum: Mutex<Option<f64>>,
    /// What is measured where there is no work.
    nothing: f64,
}

impl Alone {
    /// # Errors
    /// If the device fails.
    pub fn new(inner: Arc<dyn Driver>) -> Result<Alone> {
        let mut empty = (0..21).map(|_| inner.time(&mut || Ok(()))).collect::<Result<Vec<f64>>>()?;
        empty.sort_by(f64::total_cmp);
        Ok(Alone { inner, sum: Mutex::new(None), nothing: empty[10] })
    }

    fn add(&self, milliseconds: Option<f64>) -> Option<f64> {
        let mut sum = self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        match milliseconds {
            Some(more) => sum.as_mut().map(|sum| {
                *sum += more;
                *sum
            }),
            None => *sum,
        }
    }

    /// Milliseconds of all that `work` starts, one piece after the other.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn sum_of<E>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
        let set = |to| std::mem::replace(&mut *self.sum.lock().unwrap_or_else(PoisonError::into_inner), to);
        set(Some(0.0));
        let done = work();
        let sum = set(None).unwrap_or(0.0);
        done.map(|()| sum)
    }

    fn piece(&self, mut work: impl FnMut() -> Result) -> Result {
        if self.add(None).is_none() {
            return work();
        }
        let taken = self.inner.time(&mut work)?;
        self.add(Some((taken - self.nothing).max(0.0)));
        Ok(())
    }
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
        self.piece(|| self.inner.copy(to, from, bytes))
    }
    fn clear(&self, address: Address, bytes: usize) -> Result {
        self.piece(|| self.inner.clear(address, bytes))
    }
    fn compile(
        &self,
        source: &str,
        headers: &[(&str, &str)],
        options: &[&str],
        names: &[&str],
    ) -> Result<Vec<Function>> {
        self.inner.compile(source, headers, options, names)
    }
    fn launch(&self, function: Function, launch: Launch, arguments: &[Argument]) -> Result {
        self.piece(|| self.inner.launch(function, launch, arguments))
    }
    fn offers(&self, product: &Product) -> Result<bool> {
        self.inner.offers(product)
    }
    fn product(&self, product: &Product) -> Result {
        self.piece(|| self.inner.product(product))
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
        self.piece(|| self.inner.replay(graph))
    }
    fn forget(&self, graph: Graph) -> Result {
        self.inner.forget(graph)
    }
    fn time(&self, work: &mut dyn FnMut() -> Result) -> Result<f64> {
        self.inner.time(work)
    }
}
