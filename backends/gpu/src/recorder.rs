//! Notes what is asked of a driver, so that it can be asked for again as one graph.
//!
//! While a piece of work is noted, it is carried out as always: its calls go on to the vendor's driver, and a copy of each
//! stays here. Whether the work may be repeated shows afterwards: [`Noted::digest`] says what it asked for, but for
//! where in memory, so that two runs can be compared; and whatever a graph cannot do is the [`Noted::refusal`].
//!
//! Only the thread that asked for it is noted. What others do at the same time is their own. While a graph is captured, the
//! calls of other threads wait: all share one stream, and a call that reached it then would become a part of the graph
//! instead of being carried out.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::ThreadId;

use assay_tensor::Array;

use crate::driver::{
    Address, Argument, DeviceProperties, Driver, DriverError, Epilogue, Function, Graph, Launch, Operand, Product,
};

type Result<T = (), E = DriverError> = std::result::Result<T, E>;

/// A call that a graph can make.
#[derive(Debug, Clone)]
enum Call {
    Launch(Function, Launch, Vec<Argument>),
    Product(Product),
    Copy { to: Address, from: Address, bytes: usize },
    Clear { address: Address, bytes: usize },
}

/// What a piece of work asked for.
pub(crate) struct Noted {
    calls: Vec<Call>,
    digest: DefaultHasher,
    refusal: Option<String>,
    /// What was uploaded on the way, which the calls read: as long as they may be made again, its memory stays as it is.
    kept: Vec<Array>,
}

/// A driver whose calls are noted when it is told to.
pub(crate) struct Recorder {
    driver: Arc<dyn Driver>,
    noting: Mutex<Option<(ThreadId, Noted)>>,
    /// Held for writing while a graph is captured, and for reading by every other call of the driver.
    capture: RwLock<()>,
}

impl Recorder {
    pub(crate) fn new(driver: Arc<dyn Driver>) -> Recorder {
        Recorder { driver, noting: Mutex::default(), capture: RwLock::default() }
    }

    /// From here on the calls of this thread are noted. What was being noted is forgotten.
    pub(crate) fn start(&self) {
        let noted = Noted { calls: Vec::new(), digest: DefaultHasher::new(), refusal: None, kept: Vec::new() };
        // What is forgotten gives its memory back, after the lock is.
        let _before = self.lock().replace((std::thread::current().id(), noted));
    }

    /// What was noted, if anything was.
    pub(crate) fn stop(&self) -> Option<Noted> {
        self.lock().take().map(|(_, noted)| noted)
    }

    /// Keeps an upload of the noted work.
    pub(crate) fn keep(&self, upload: &Array) {
        self.note(|noted| noted.kept.push(upload.clone()));
    }

    /// The graph of what was noted. The device is as before where that fails.
    pub(crate) fn graph(&self, noted: &Noted) -> Result<Graph> {
        let _alone = self.capture.write().unwrap_or_else(PoisonError::into_inner);
        self.driver.begin_capture()?;
        let asked = noted.calls.iter().try_for_each(|call| match call {
            Call::Launch(function, launch, arguments) => self.driver.launch_kernel(*function, *launch, arguments),
            Call::Product(product) => self.driver.launch_product(product),
            Call::Copy { to, from, bytes } => self.driver.copy_on_device(*to, *from, *bytes),
            Call::Clear { address, bytes } => self.driver.zero_memory(*address, *bytes),
        });
        // The capture ends in any case; its own error would only repeat the first one.
        let graph = self.driver.end_capture();
        match (asked, graph) {
            (Ok(()), graph) => graph,
            (Err(error), Ok(graph)) => self.driver.destroy_graph(graph).and(Err(error)),
            (Err(error), Err(_)) => Err(error),
        }
    }

    /// The driver for one call, which waits while a graph is captured.
    fn with_driver<T>(&self, call: impl FnOnce(&dyn Driver) -> T) -> T {
        let _shared = self.capture.read().unwrap_or_else(PoisonError::into_inner);
        call(&*self.driver)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(ThreadId, Noted)>> {
        self.noting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to what is noted, if this thread is.
    fn note(&self, change: impl FnOnce(&mut Noted)) {
        if let Some((thread, noted)) = &mut *self.lock()
            && *thread == std::thread::current().id()
        {
            change(noted);
        }
    }

    /// Notes a call; `what` tells it from others, but for where in memory.
    fn call(&self, call: impl FnOnce() -> Call, what: impl FnOnce(&mut DefaultHasher)) {
        self.note(|noted| {
            what(&mut noted.digest);
            noted.calls.push(call());
        });
    }

    fn refuse(&self, why: &str) {
        self.note(|noted| {
            noted.refusal.get_or_insert_with(|| why.to_owned());
        });
    }
}

impl Noted {
    /// Equal for two pieces of work that asked for the same, wherever in memory it was.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// Why it cannot be repeated.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// What its calls read and did not make.
    pub(crate) fn into_kept(self) -> Vec<Array> {
        self.kept
    }
}

/// All of an operand but its address.
fn hash_operand(operand: &Operand, state: &mut DefaultHasher) {
    let Operand { address: _, element, stride, batch_stride, transposed } = *operand;
    (element, stride, batch_stride, transposed).hash(state);
}

fn hash_product(product: &Product, state: &mut DefaultHasher) {
    let Product { m, n, k, batch, a, b, c, base, epilogue } = product;
    (m, n, k, batch, base.is_some()).hash(state);
    [a, b, c].iter().for_each(|operand| hash_operand(operand, state));
    std::mem::discriminant::<Epilogue>(epilogue).hash(state);
}

fn hash_argument(argument: &Argument, state: &mut DefaultHasher) {
    std::mem::discriminant(argument).hash(state);
    match argument {
        Argument::Pointer(address) | Argument::ThenPointer(address) => address.is_some().hash(state),
        other => other.to_word().hash(state),
    }
}

impl Driver for Recorder {
    fn properties(&self) -> &DeviceProperties {
        self.driver.properties()
    }

    fn memory_info(&self) -> Result<(usize, usize)> {
        self.with_driver(|driver| driver.memory_info())
    }

    fn allocate(&self, bytes: usize) -> Result<Address> {
        self.with_driver(|driver| driver.allocate(bytes))
    }

    fn free(&self, address: Address) -> Result {
        self.with_driver(|driver| driver.free(address))
    }

    /// Not a call of a graph: what is copied in stays there, see [`Recorder::keep`].
    fn copy_to_device(&self, to: Address, bytes: &[u8]) -> Result {
        self.note(|noted| ("copy in", blake3::hash(bytes).as_bytes()).hash(&mut noted.digest));
        self.with_driver(|driver| driver.copy_to_device(to, bytes))
    }

    fn copy_to_host(&self, from: Address, bytes: &mut [u8]) -> Result {
        self.refuse("it reads from the device before it is done");
        self.with_driver(|driver| driver.copy_to_host(from, bytes))
    }

    fn copy_on_device(&self, to: Address, from: Address, bytes: usize) -> Result {
        self.call(|| Call::Copy { to, from, bytes }, |state| ("copy", bytes).hash(state));
        self.with_driver(|driver| driver.copy_on_device(to, from, bytes))
    }

    fn zero_memory(&self, address: Address, bytes: usize) -> Result {
        self.call(|| Call::Clear { address, bytes }, |state| ("clear", bytes).hash(state));
        self.with_driver(|driver| driver.zero_memory(address, bytes))
    }

    fn compile_kernels(
        &self,
        source: &str,
        headers: &[(&str, &str)],
        options: &[&str],
        names: &[&str],
    ) -> Result<Vec<Function>> {
        self.with_driver(|driver| driver.compile_kernels(source, headers, options, names))
    }

    fn launch_kernel(&self, function: Function, launch: Launch, arguments: &[Argument]) -> Result {
        self.call(
            || Call::Launch(function, launch, arguments.to_vec()),
            |state| {
                ("launch", function, launch.grid, launch.block, launch.shared).hash(state);
                arguments.iter().for_each(|argument| hash_argument(argument, state));
            },
        );
        self.with_driver(|driver| driver.launch_kernel(function, launch, arguments))
    }

    fn supports_product(&self, product: &Product) -> Result<bool> {
        self.with_driver(|driver| driver.supports_product(product))
    }

    fn launch_product(&self, product: &Product) -> Result {
        self.call(
            || Call::Product(*product),
            |state| {
                "product".hash(state);
                hash_product(product, state);
            },
        );
        self.with_driver(|driver| driver.launch_product(product))
    }

    fn synchronize(&self) -> Result {
        self.refuse("it waits for the device before it is done");
        self.with_driver(|driver| driver.synchronize())
    }

    fn begin_capture(&self) -> Result {
        self.refuse("it captures a graph of its own");
        self.driver.begin_capture()
    }

    fn end_capture(&self) -> Result<Graph> {
        self.driver.end_capture()
    }

    fn launch_graph(&self, graph: Graph) -> Result {
        self.refuse("it replays a graph of its own");
        self.with_driver(|driver| driver.launch_graph(graph))
    }

    fn destroy_graph(&self, graph: Graph) -> Result {
        self.with_driver(|driver| driver.destroy_graph(graph))
    }

    fn measure_time(&self, work: &mut dyn FnMut() -> Result) -> Result<f64> {
        self.refuse("it is timed");
        self.driver.measure_time(work)
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.driver.fmt(f)
    }
}
