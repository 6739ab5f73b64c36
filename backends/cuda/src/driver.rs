//! One device: its context, its stream, and all that was made in them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, c_void};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fmt, ptr};

use assay_gpu::{
    Address, Argument, DeviceProperties, Driver, DriverError, Function, Graph, Launch, PinnedBlock, Product, Source,
    Staging,
};
use cudarc::driver::sys::{self, CUdevice, CUresult};

use crate::compile::compile_image;
use crate::error::{check_status, error_text};
use crate::product::{Products, WORKSPACE};
use crate::{device, library};

/// Dynamic shared memory that every kernel may be launched with.
const DYNAMIC: u32 = 48 * 1024;
/// CU_STREAM_NON_BLOCKING: nothing waits for the stream that has no name.
const NON_BLOCKING: u32 = 1;

type Result<T = (), E = DriverError> = std::result::Result<T, E>;

/// A CUDA device.
pub struct Cuda {
    properties: DeviceProperties,
    device: CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    images: Option<PathBuf>,
    /// None until the device is open, and again while it is closed.
    products: Option<Products>,
    elapsed: library::Elapsed,
    staging: Mutex<Staging<Pinned>>,
    resources: Mutex<Resources>,
}

/// What is destroyed with the device.
#[derive(Default)]
struct Resources {
    allocations: BTreeSet<u64>,
    modules: BTreeMap<String, sys::CUmodule>,
    graphs: Vec<sys::CUgraphExec>,
    /// Functions that may be launched with more dynamic shared memory than [`DYNAMIC`], and how much.
    dynamic: BTreeMap<u64, u32>,
}

// SAFETY: the driver's handles may be used from any thread that has made the context current, which every call does
// first; cuBLASLt's handle holds no state of a thread. What changes here is behind a lock.
unsafe impl Send for Cuda {}
unsafe impl Sync for Cuda {}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda").field("properties", &self.properties).finish_non_exhaustive()
    }
}

/// The result of a call of the driver, by its name.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: `library.rs` has seen that the function is there; each place below is one of the type that it writes,
        // and each handle is one that the driver gave and that is not destroyed before the device.
        check_status(stringify!($name), unsafe { sys::$name($($argument),*) })
    };
}

impl Cuda {
    /// Opens the device of this index. What is compiled for it is kept in the folder `images`, if there is one.
    ///
    /// # Errors
    /// A fragment, one line long: as [`crate::probe`] gives it, or why the device cannot be opened.
    pub fn open(index: usize, images: Option<PathBuf>) -> Result<Cuda, String> {
        let (device, properties) = device::find_device(index)?;
        let elapsed = library::find_elapsed_time().ok_or("libcuda has no `cuEventElapsedTime`")?;
        let name = properties.name.clone();
        let mut context = ptr::null_mut();
        let failed = |error: DriverError| format!("{name} cannot be opened: {error}");
        call!(cuDevicePrimaryCtxRetain(&raw mut context, device)).map_err(failed)?;
        // From here on, dropping it lets go of the context.
        let stream = ptr::null_mut();
        let (staging, resources) = (Mutex::default(), Mutex::default());
        let mut cuda =
            Cuda { properties, device, context, stream, images, products: None, elapsed, staging, resources };
        cuda.create_resources().map_err(failed)?;
        Ok(cuda)
    }

    fn create_resources(&mut self) -> Result {
        self.make_current()?;
        call!(cuStreamCreate(&raw mut self.stream, NON_BLOCKING))?;
        let workspace = self.allocate(WORKSPACE)?;
        // SAFETY: the context is current, and what is made is dropped before the memory is freed.
        self.products = Some(unsafe { Products::new(workspace.0) }?);
        Ok(())
    }

    /// Makes the context the calling thread's.
    fn make_current(&self) -> Result {
        call!(cuCtxSetCurrent(self.context))
    }

    fn products(&self) -> Result<&Products> {
        let closed = || DriverError::Call { call: "cublasLtMatmul", reason: "the device is not open".into() };
        self.products.as_ref().ok_or_else(closed)
    }

    fn resources(&self) -> MutexGuard<'_, Resources> {
        self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load_module(&self, source: &Source<'_>) -> Result<sys::CUmodule> {
        let key = source.cache_key(&self.properties);
        let mut resources = self.resources();
        if let Some(module) = resources.modules.get(&key) {
            return Ok(*module);
        }
        let image = source.load_or_compile(&key, self.images.as_deref(), || compile_image(source, &self.properties))?;
        let mut module = ptr::null_mut();
        call!(cuModuleLoadData(&raw mut module, image.as_ptr().cast::<c_void>()))?;
        resources.modules.insert(key, module);
        Ok(module)
    }

    /// The device's own error, if it has one, in place of a library's: on an unusable context, products fail without a reason.
    fn find_cause(&self, error: DriverError) -> DriverError {
        match self.synchronize() {
            Err(cause @ (DriverError::Fault(_) | DriverError::Lost(_))) => cause,
            _ => error,
        }
    }

    /// Lets a function be launched with more shared memory than all may have.
    fn allow_shared_memory(&self, function: Function, shared: u32) -> Result {
        let mut resources = self.resources();
        if shared <= DYNAMIC || resources.dynamic.get(&function.0).is_some_and(|&allowed| allowed >= shared) {
            return Ok(());
        }
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        call!(cuFuncSetAttribute(function.0 as sys::CUfunction, attribute, shared as i32))?;
        resources.dynamic.insert(function.0, shared);
        Ok(())
    }
}

/// An event, destroyed when it is dropped.
struct Event(sys::CUevent);

impl Event {
    fn new() -> Result<Event> {
        let mut event = ptr::null_mut();
        call!(cuEventCreate(&raw mut event, 0))?;
        Ok(Event(event))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = call!(cuEventDestroy_v2(self.0));
    }
}

/// Pinned memory whose copies are started on the device's stream; freed when it is dropped.
struct Pinned {
    memory: *mut u8,
    bytes: usize,
    stream: sys::CUstream,
    copied: Event,
}

// SAFETY: nothing else points to the memory, and the driver's handles may be used from any thread.
unsafe impl Send for Pinned {}

impl Pinned {
    fn allocate(bytes: usize, stream: sys::CUstream) -> Result<Pinned> {
        let (copied, mut memory) = (Event::new()?, ptr::null_mut());
        call!(cuMemHostAlloc(&raw mut memory, bytes, 0))?;
        Ok(Pinned { memory: memory.cast(), bytes, stream, copied })
    }
}

impl PinnedBlock for Pinned {
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the driver gave so many bytes, which start as zeros; they are borrowed as the block is.
        unsafe { std::slice::from_raw_parts_mut(self.memory, self.bytes) }
    }

    fn start_copy(&mut self, to: Address, count: usize) -> Result {
        call!(cuMemcpyHtoDAsync_v2(to.0, self.memory.cast::<c_void>(), count.min(self.bytes), self.stream))?;
        call!(cuEventRecord(self.copied.0, self.stream))
    }

    fn wait_for_copy(&self) -> Result {
        call!(cuEventSynchronize(self.copied.0))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = call!(cuMemFreeHost(self.memory.cast::<c_void>()));
    }
}

impl Driver for Cuda {
    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory_info(&self) -> Result<(usize, usize)> {
        self.make_current()?;
        let (mut free, mut total) = (0, 0);
        call!(cuMemGetInfo_v2(&raw mut free, &raw mut total))?;
        Ok((free, total))
    }

    fn allocate(&self, bytes: usize) -> Result<Address> {
        self.make_current()?;
        let mut address = 0;
        match call!(cuMemAlloc_v2(&raw mut address, bytes.max(1))) {
            Ok(()) => {
                self.resources().allocations.insert(address);
                Ok(Address(address))
            }
            Err(DriverError::OutOfMemory { .. }) => {
                let (free, total) = self.memory_info().unwrap_or((0, self.properties.memory));
                Err(DriverError::OutOfMemory { asked: bytes, free, total })
            }
            Err(error) => Err(error),
        }
    }

    fn free(&self, address: Address) -> Result {
        self.make_current()?;
        if !self.resources().allocations.remove(&address.0) {
            let reason = format!("{:#x} is no address that was allocated", address.0);
            return Err(DriverError::Call { call: "cuMemFree_v2", reason });
        }
        call!(cuMemFree_v2(address.0))
    }

    fn copy_to_device(&self, to: Address, bytes: &[u8]) -> Result {
        self.make_current()?;
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        staging.upload(to, bytes, |size| Pinned::allocate(size, self.stream))
    }

    fn copy_to_host(&self, from: Address, bytes: &mut [u8]) -> Result {
        self.make_current()?;
        if bytes.is_empty() {
            return Ok(());
        }
        call!(cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast::<c_void>(), from.0, bytes.len(), self.stream))?;
        call!(cuStreamSynchronize(self.stream))
    }

    fn copy_on_device(&self, to: Address, from: Address, bytes: usize) -> Result {
        self.make_current()?;
        if bytes == 0 {
            return Ok(());
        }
        call!(cuMemcpyDtoDAsync_v2(to.0, from.0, bytes, self.stream))
    }

    fn zero_memory(&self, address: Address, bytes: usize) -> Result {
        self.make_current()?;
        if bytes == 0 {
            return Ok(());
        }
        call!(cuMemsetD8Async(address.0, 0, bytes, self.stream))
    }

    fn compile_kernels(
        &self,
        source: &str,
        headers: &[(&str, &str)],
        options: &[&str],
        names: &[&str],
    ) -> Result<Vec<Function>> {
        self.make_current()?;
        let module = self.load_module(&Source { source, headers, options })?;
        let find = |name: &&str| {
            let text =
                CString::new(*name).map_err(|_| DriverError::Compile { log: "a name has a zero byte".into() })?;
            let mut function = ptr::null_mut();
            // SAFETY: as in `call!`.
            match unsafe { sys::cuModuleGetFunction(&raw mut function, module, text.as_ptr()) } {
                CUresult::CUDA_SUCCESS => Ok(Function(function as u64)),
                CUresult::CUDA_ERROR_NOT_FOUND => {
                    Err(DriverError::Compile { log: format!("the source has no kernel `{name}`") })
                }
                code => {
                    check_status("cuModuleGetFunction", code)?;
                    Err(DriverError::Call { call: "cuModuleGetFunction", reason: error_text(code) })
                }
            }
        };
        names.iter().map(find).collect()
    }

    fn launch_kernel(&self, function: Function, launch: Launch, arguments: &[Argument]) -> Result {
        self.make_current()?;
        self.allow_shared_memory(function, launch.shared)?;
        let mut slots: Vec<u64> = arguments.iter().map(Argument::to_word).collect();
        let mut pointers = Argument::parameter_pointers(arguments, &mut slots);
        let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
        let function = function.0 as sys::CUfunction;
        let (pointers, extra) = (pointers.as_mut_ptr(), ptr::null_mut());
        call!(cuLaunchKernel(function, gx, gy, gz, bx, by, bz, launch.shared, self.stream, pointers, extra))
    }

    fn supports_product(&self, product: &Product) -> Result<bool> {
        self.make_current()?;
        self.products()?.supports(product)
    }

    fn launch_product(&self, product: &Product) -> Result {
        self.make_current()?;
        let products = self.products()?;
        // SAFETY: the context is current; the operands are the caller's.
        unsafe { products.launch(product, self.stream.cast()) }.map_err(|error| self.find_cause(error))
    }

    fn synchronize(&self) -> Result {
        self.make_current()?;
        call!(cuStreamSynchronize(self.stream))
    }

    fn begin_capture(&self) -> Result {
        self.make_current()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        call!(cuStreamBeginCapture_v2(self.stream, mode))
    }

    fn end_capture(&self) -> Result<Graph> {
        self.make_current()?;
        let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
        call!(cuStreamEndCapture(self.stream, &raw mut graph))?;
        let made = call!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
        call!(cuGraphDestroy(graph))?;
        made?;
        self.resources().graphs.push(executable);
        Ok(Graph(executable as u64))
    }

    fn launch_graph(&self, graph: Graph) -> Result {
        self.make_current()?;
        call!(cuGraphLaunch(graph.0 as sys::CUgraphExec, self.stream))
    }

    /// The driver itself waits with this until the graph has run.
    fn destroy_graph(&self, graph: Graph) -> Result {
        self.make_current()?;
        let executable = graph.0 as sys::CUgraphExec;
        self.resources().graphs.retain(|made| *made != executable);
        call!(cuGraphExecDestroy(executable))
    }

    fn measure_time(&self, work: &mut dyn FnMut() -> Result) -> Result<f64> {
        self.make_current()?;
        let (from, to) = (Event::new()?, Event::new()?);
        call!(cuEventRecord(from.0, self.stream))?;
        work()?;
        self.make_current()?;
        call!(cuEventRecord(to.0, self.stream))?;
        call!(cuStreamSynchronize(self.stream))?;
        let mut milliseconds = 0.0;
        // SAFETY: both events were recorded, and the place is for a number.
        match unsafe { (self.elapsed)(&raw mut milliseconds, from.0, to.0) } {
            0 => Ok(f64::from(milliseconds)),
            code => Err(DriverError::Call { call: "cuEventElapsedTime", reason: format!("CUDA error {code}") }),
        }
    }
}

impl Drop for Cuda {
    /// Errors are ignored: after a fault every call fails.
    fn drop(&mut self) {
        let _ = self.make_current();
        let _ = call!(cuStreamSynchronize(self.stream));
        self.products = None;
        *self.staging.get_mut().unwrap_or_else(PoisonError::into_inner) = Staging::default();
        let resources = std::mem::take(&mut *self.resources());
        for graph in resources.graphs {
            let _ = call!(cuGraphExecDestroy(graph));
        }
        for address in resources.allocations {
            let _ = call!(cuMemFree_v2(address));
        }
        for module in resources.modules.into_values() {
            let _ = call!(cuModuleUnload(module));
        }
        if !self.stream.is_null() {
            let _ = call!(cuStreamDestroy_v2(self.stream));
        }
        let _ = call!(cuDevicePrimaryCtxRelease_v2(self.device));
    }
}
