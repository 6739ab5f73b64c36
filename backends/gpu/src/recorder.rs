//! Records the calls of a driver, so that they can be captured as one graph.
//!
//! While calls are recorded, they are executed as always: each goes to the vendor's driver, and a copy of it is kept here.
//! [`Capture::digest`] identifies the recorded calls except for addresses, so that two runs can be compared;
//! [`Capture::rejection`] names a call that a graph cannot contain.
//!
//! Only the thread that began the recording is recorded. While a graph is captured, the calls of other threads wait: all share one
//! stream, and a call that reached it then would become a part of the graph instead of being executed.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::ThreadId;

use assay_tensor::Array;

use crate::driver::{
    Address, Argument, DeviceProperties, Driver, DriverError, Epilogue, Function, Graph, Launch, Operand, Product,
};

type Result<T = (), E = DriverError> = std::result::Result<T, E>;

/// A call that a graph can contain.
#[derive(Debug, Clone)]
enum Call {
    Launch(Function, Launch, Vec<Argument>),
    Product(Product),
    Copy { to: Address, from: Address, bytes: usize },
    Clear { address: Address, bytes: usize },
}

/// The recorded calls.
pub(crate) struct Capture {
    calls: Vec<Call>,
    digest: DefaultHasher,
    rejection: Option<String>,
    /// Uploads that the calls read: their memory must stay unchanged as long as the graph exists.
    uploads: Vec<Array>,
}

/// A driver whose calls can be recorded.
pub(crate) struct Recorder {
    driver: Arc<dyn Driver>,
    recording: Mutex<Option<(ThreadId, Capture)>>,
    /// Held for writing while a graph is captured, and for reading by every other call of the driver.
    capture: RwLock<()>,
}

impl Recorder {
    pub(crate) fn new(driver: Arc<dyn Driver>) -> Recorder {
        Recorder { driver, recording: Mutex::default(), capture: RwLock::default() }
    }

    /// Begins to record the calls of this thread. An unfinished recording is dropped.
    pub(crate) fn begin_recording(&self) {
        let capture = Capture { calls: Vec::new(), digest: DefaultHasher::new(), rejection: None, uploads: Vec::new() };
        // The dropped one frees its memory after the lock is released.
        let _before = self.lock_capture().replace((std::thread::current().id(), capture));
    }

    /// Ends the recording, if there is one.
    pub(crate) fn end_recording(&self) -> Option<Capture> {
        self.lock_capture().take().map(|(_, capture)| capture)
    }

    /// Keeps an upload that recorded calls read.
    pub(crate) fn keep_upload(&self, upload: &Array) {
        self.update_capture(|capture| capture.uploads.push(upload.clone()));
    }

    /// Captures the recorded calls as a graph. An error leaves the device as it was.
    pub(crate) fn capture_graph(&self, capture: &Capture) -> Result<Graph> {
        let _alone = self.capture.write().unwrap_or_else(PoisonError::into_inner);
        self.driver.begin_capture()?;
        let asked = capture.calls.iter().try_for_each(|call| match call {
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

    fn lock_capture(&self) -> MutexGuard<'_, Option<(ThreadId, Capture)>> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the capture, if this thread is being recorded.
    fn update_capture(&self, change: impl FnOnce(&mut Capture)) {
        if let Some((thread, capture)) = &mut *self.lock_capture()
            && *thread == std::thread::current().id()
        {
            change(capture);
        }
    }

    /// Records a call; `what` hashes everything but its addresses.
    fn record_call(&self, call: impl FnOnce() -> Call, what: impl FnOnce(&mut DefaultHasher)) {
        self.update_capture(|capture| {
            what(&mut capture.digest);
            capture.calls.push(call());
        });
    }

    fn reject_capture(&self, why: &str) {
        self.update_capture(|capture| {
            capture.rejection.get_or_insert_with(|| why.to_owned());
        });
    }
}

impl Capture {
    /// Equal for equal calls, whatever their addresses.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// Why it cannot become a graph.
    pub(crate) fn rejection(&self) -> Option<&str> {
        self.rejection.as_deref()
    }

    /// The uploads that its calls read.
    pub(crate) fn into_uploads(self) -> Vec<Array> {
        self.uploads
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

    /// Not a part of a graph: the copied bytes stay on the device, see [`Recorder::keep_upload`].
    fn copy_to_device(&self, to: Address, bytes: &[u8]) -> Result {
        self.update_capture(|capture| ("copy in", blake3::hash(bytes).as_bytes()).hash(&mut capture.digest));
        self.with_driver(|driver| driver.copy_to_device(to, bytes))
    }

    fn copy_to_host(&self, from: Address, bytes: &mut [u8]) -> Result {
        self.reject_capture("it reads from the device before it ends");
        self.with_driver(|driver| driver.copy_to_host(from, bytes))
    }

    fn copy_on_device(&self, to: Address, from: Address, bytes: usize) -> Result {
        self.record_call(|| Call::Copy { to, from, bytes }, |state| ("copy", bytes).hash(state));
        self.with_driver(|driver| driver.copy_on_device(to, from, bytes))
    }

    fn zero_memory(&self, address: Address, bytes: usize) -> Result {
        self.record_call(|| Call::Clear { address, bytes }, |state| ("clear", bytes).hash(state));
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
        self.record_call(
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
        self.record_call(
            || Call::Product(*product),
            |state| {
                "product".hash(state);
                hash_product(product, state);
            },
        );
        self.with_driver(|driver| driver.launch_product(product))
    }

    fn synchronize(&self) -> Result {
        self.reject_capture("it waits for the device before it ends");
        self.with_driver(|driver| driver.synchronize())
    }

    fn begin_capture(&self) -> Result {
        self.reject_capture("it captures a graph of its own");
        self.driver.begin_capture()
    }

    fn end_capture(&self) -> Result<Graph> {
        self.driver.end_capture()
    }

    fn launch_graph(&self, graph: Graph) -> Result {
        self.reject_capture("it replays a graph of its own");
        self.with_driver(|driver| driver.launch_graph(graph))
    }

    fn destroy_graph(&self, graph: Graph) -> Result {
        self.with_driver(|driver| driver.destroy_graph(graph))
    }

    fn measure_time(&self, work: &mut dyn FnMut() -> Result) -> Result<f64> {
        self.reject_capture("its time is measured");
        self.driver.measure_time(work)
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.driver.fmt(f)
    }
}
