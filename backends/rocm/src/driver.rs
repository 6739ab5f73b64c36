//! One device: its stream, and all that was made on it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, c_int, c_void};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fmt, ptr};

use assay_gpu::{
    Address, Argument, DeviceProperties, Driver, DriverError, Element, Epilogue, Function, Graph, Launch, PinnedBlock,
    Product, Source, Staging,
};

use crate::compile::compile_image;
use crate::device;
use crate::error::{NOT_FOUND, check_status, error_text};
use crate::library::{At, Handle, Hip, Libraries};
use crate::product::{BIAS, Products, WORKSPACE};

/// hipStreamNonBlocking: nothing waits for the stream that has no name.
const NON_BLOCKING: u32 = 1;
/// hipStreamCaptureModeThreadLocal
const THREAD_LOCAL: c_int = 1;

type Result<T = (), E = DriverError> = std::result::Result<T, E>;

/// An AMD device.
pub struct Rocm {
    libraries: &'static Libraries,
    properties: DeviceProperties,
    number: c_int,
    stream: Handle,
    images: Option<PathBuf>,
    /// None until the device is open, and again while it is closed; with it, the kernel that adds a bias.
    products: Option<(Products, Function)>,
    staging: Mutex<Staging<Pinned>>,
    resources: Mutex<Resources>,
}

/// What is destroyed with the device.
#[derive(Default)]
struct Resources {
    allocations: BTreeSet<u64>,
    modules: BTreeMap<String, Handle>,
    graphs: Vec<Handle>,
}

// SAFETY: the runtime's handles may be used from any thread that has made the device current, which every call does
// first; rocBLAS's handle is used by one thread at a time on one stream, behind the lock that `product` takes. What
// changes here is behind that lock too.
unsafe impl Send for Rocm {}
unsafe impl Sync for Rocm {}

impl fmt::Debug for Rocm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rocm").field("properties", &self.properties).finish_non_exhaustive()
    }
}

/// The result of a call of the runtime, by its name.
macro_rules! call {
    ($hip:expr, $name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: each place below is one of the type that the function writes, and each handle is one that the runtime
        // gave and that is not destroyed before the device.
        check_status(stringify!($name), unsafe { ($hip.$name)($($argument),*) })
    };
}

impl Rocm {
    /// Opens the device of this index. What is compiled for it is kept in the folder `images`, if there is one.
    ///
    /// # Errors
    /// A fragment, one line long: as [`crate::probe`] gives it, or why the device cannot be opened.
    pub fn open(index: usize, images: Option<PathBuf>) -> Result<Rocm, String> {
        let (libraries, number, properties) = device::find_device(index)?;
        let name = properties.name.clone();
        let (stream, staging, resources) = (ptr::null_mut(), Mutex::default(), Mutex::default());
        let mut rocm = Rocm { libraries, properties, number, stream, images, products: None, staging, resources };
        rocm.create_resources().map_err(|error| format!("{name} cannot be opened: {error}"))?;
        Ok(rocm)
    }

    fn create_resources(&mut self) -> Result {
        self.make_current()?;
        call!(self.hip(), hipStreamCreateWithFlags(&raw mut self.stream, NON_BLOCKING))?;
        let workspace = self.allocate(WORKSPACE)?;
        let bias = self.compile_kernels(BIAS, &[], &[], &["add_bias"])?;
        // SAFETY: the device is current, and what is made is dropped before the memory and the stream are.
        let products = unsafe { Products::new(&self.libraries.blas, self.stream, workspace.0 as At) }?;
        self.products = bias.first().map(|&bias| (products, bias));
        Ok(())
    }

    fn hip(&self) -> &'static Hip {
        &self.libraries.hip
    }

    /// Makes the device the calling thread's.
    fn make_current(&self) -> Result {
        call!(self.hip(), hipSetDevice(self.number))
    }

    fn resources(&self) -> MutexGuard<'_, Resources> {
        self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load_module(&self, source: &Source<'_>) -> Result<Handle> {
        let key = source.cache_key(&self.properties);
        let mut resources = self.resources();
        if let Some(module) = resources.modules.get(&key) {
            return Ok(*module);
        }
        let make = || compile_image(&self.libraries.compiler, source, &self.properties);
        let image = source.load_or_compile(&key, self.images.as_deref(), make)?;
        let mut module = ptr::null_mut();
        call!(self.hip(), hipModuleLoadData(&raw mut module, image.as_ptr().cast::<c_void>()))?;
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

    /// Adds a bias to each row of a product's result.
    fn add_bias(&self, kernel: Function, product: &Product, bias: Address) -> Result {
        let Product { m, n, batch, c, .. } = product;
        let count = (m * n * batch).div_ceil(256).clamp(1, 65_535) as u32;
        let launch = Launch { grid: [count, 1, 1], block: [256, 1, 1], shared: 0 };
        let arguments = [
            Argument::Pointer(Some(c.address)),
            Argument::Pointer(Some(bias)),
            Argument::U32(u32::from(c.element == Element::Bf16)),
            Argument::U64(*m as u64),
            Argument::U64(*n as u64),
            Argument::U64(c.stride as u64),
            Argument::U64(c.batch_stride as u64),
            Argument::U64(*batch as u64),
        ];
        self.launch_kernel(kernel, launch, &arguments)
    }
}

/// An event, destroyed when it is dropped.
struct Event(&'static Hip, Handle);

impl Event {
    fn new(hip: &'static Hip) -> Result<Event> {
        let mut event = ptr::null_mut();
        call!(hip, hipEventCreate(&raw mut event))?;
        Ok(Event(hip, event))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = call!(self.0, hipEventDestroy(self.1));
    }
}

/// Pinned memory whose copies are started on the device's stream; freed when it is dropped.
struct Pinned {
    memory: *mut u8,
    bytes: usize,
    stream: Handle,
    copied: Event,
}

// SAFETY: nothing else points to the memory, and the runtime's handles may be used from any thread.
unsafe impl Send for Pinned {}

impl Pinned {
    fn allocate(hip: &'static Hip, bytes: usize, stream: Handle) -> Result<Pinned> {
        let (copied, mut memory) = (Event::new(hip)?, ptr::null_mut());
        call!(hip, hipHostMalloc(&raw mut memory, bytes, 0))?;
        Ok(Pinned { memory: memory.cast(), bytes, stream, copied })
    }
}

impl PinnedBlock for Pinned {
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the runtime gave so many bytes, which any bits fill; they are borrowed as the block is.
        unsafe { std::slice::from_raw_parts_mut(self.memory, self.bytes) }
    }

    fn start_copy(&mut self, to: Address, count: usize) -> Result {
        let (from, count) = (self.memory.cast::<c_void>(), count.min(self.bytes));
        call!(self.copied.0, hipMemcpyHtoDAsync(to.0 as At, from, count, self.stream))?;
        call!(self.copied.0, hipEventRecord(self.copied.1, self.stream))
    }

    fn wait_for_copy(&self) -> Result {
        call!(self.copied.0, hipEventSynchronize(self.copied.1))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = call!(self.copied.0, hipHostFree(self.memory.cast::<c_void>()));
    }
}

impl Driver for Rocm {
    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory_info(&self) -> Result<(usize, usize)> {
        self.make_current()?;
        let (mut free, mut total) = (0, 0);
        call!(self.hip(), hipMemGetInfo(&raw mut free, &raw mut total))?;
        Ok((free, total))
    }

    fn allocate(&self, bytes: usize) -> Result<Address> {
        self.make_current()?;
        let mut address = ptr::null_mut();
        match call!(self.hip(), hipMalloc(&raw mut address, bytes.max(1))) {
            Ok(()) => {
                self.resources().allocations.insert(address as u64);
                Ok(Address(address as u64))
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
            return Err(DriverError::Call { call: "hipFree", reason });
        }
        call!(self.hip(), hipFree(address.0 as At))
    }

    fn copy_to_device(&self, to: Address, bytes: &[u8]) -> Result {
        self.make_current()?;
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        staging.upload(to, bytes, |size| Pinned::allocate(self.hip(), size, self.stream))
    }

    fn copy_to_host(&self, from: Address, bytes: &mut [u8]) -> Result {
        self.make_current()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let to = bytes.as_mut_ptr().cast::<c_void>();
        call!(self.hip(), hipMemcpyDtoHAsync(to, from.0 as At, bytes.len(), self.stream))?;
        call!(self.hip(), hipStreamSynchronize(self.stream))
    }

    fn copy_on_device(&self, to: Address, from: Address, bytes: usize) -> Result {
        self.make_current()?;
        if bytes == 0 {
            return Ok(());
        }
        call!(self.hip(), hipMemcpyDtoDAsync(to.0 as At, from.0 as At, bytes, self.stream))
    }

    fn zero_memory(&self, address: Address, bytes: usize) -> Result {
        self.make_current()?;
        if bytes == 0 {
            return Ok(());
        }
        call!(self.hip(), hipMemsetD8Async(address.0 as At, 0, bytes, self.stream))
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
            match unsafe { (self.hip().hipModuleGetFunction)(&raw mut function, module, text.as_ptr()) } {
                0 => Ok(Function(function as u64)),
                NOT_FOUND => Err(DriverError::Compile { log: format!("the source has no kernel `{name}`") }),
                code => {
                    check_status("hipModuleGetFunction", code)?;
                    Err(DriverError::Call { call: "hipModuleGetFunction", reason: error_text(code) })
                }
            }
        };
        names.iter().map(find).collect()
    }

    fn launch_kernel(&self, function: Function, launch: Launch, arguments: &[Argument]) -> Result {
        self.make_current()?;
        let mut slots: Vec<u64> = arguments.iter().map(Argument::to_word).collect();
        let mut pointers = Argument::parameter_pointers(arguments, &mut slots);
        let ([gx, gy, gz], [bx, by, bz], shared) = (launch.grid, launch.block, launch.shared);
        let (function, pointers, extra) = (function.0 as Handle, pointers.as_mut_ptr(), ptr::null_mut());
        call!(self.hip(), hipModuleLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, self.stream, pointers, extra))
    }

    fn launch_product(&self, product: &Product) -> Result {
        const CALL: &str = "rocblas_gemm_strided_batched_ex";
        self.make_current()?;
        let Some((products, bias)) = &self.products else {
            return Err(DriverError::Call { call: CALL, reason: "the device is not open".into() });
        };
        if product.m == 0 || product.n == 0 || product.batch == 0 {
            return Ok(());
        }
        if product.k == 0 {
            return Err(DriverError::Call { call: CALL, reason: "a product over no elements".into() });
        }
        let bias_at = match product.epilogue {
            Epilogue::None => None,
            Epilogue::Bias(address) => Some(address),
            Epilogue::Gelu { .. } | Epilogue::GeluGradient { .. } => {
                return Err(DriverError::Call { call: CALL, reason: "a product with GELU".into() });
            }
        };
        let started = {
            let _one_at_a_time = self.resources();
            // SAFETY: the device is current; the operands are the caller's.
            unsafe { products.launch(product) }
        };
        started.map_err(|error| self.find_cause(error))?;
        bias_at.map_or(Ok(()), |address| self.add_bias(*bias, product, address))
    }

    fn synchronize(&self) -> Result {
        self.make_current()?;
        call!(self.hip(), hipStreamSynchronize(self.stream))
    }

    fn begin_capture(&self) -> Result {
        self.make_current()?;
        call!(self.hip(), hipStreamBeginCapture(self.stream, THREAD_LOCAL))
    }

    fn end_capture(&self) -> Result<Graph> {
        self.make_current()?;
        let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
        call!(self.hip(), hipStreamEndCapture(self.stream, &raw mut graph))?;
        let made = call!(self.hip(), hipGraphInstantiateWithFlags(&raw mut executable, graph, 0));
        call!(self.hip(), hipGraphDestroy(graph))?;
        made?;
        self.resources().graphs.push(executable);
        Ok(Graph(executable as u64))
    }

    fn launch_graph(&self, graph: Graph) -> Result {
        self.make_current()?;
        call!(self.hip(), hipGraphLaunch(graph.0 as Handle, self.stream))
    }

    fn destroy_graph(&self, graph: Graph) -> Result {
        self.synchronize()?;
        let executable = graph.0 as Handle;
        self.resources().graphs.retain(|made| *made != executable);
        call!(self.hip(), hipGraphExecDestroy(executable))
    }

    fn measure_time(&self, work: &mut dyn FnMut() -> Result) -> Result<f64> {
        self.make_current()?;
        let (from, to) = (Event::new(self.hip())?, Event::new(self.hip())?);
        call!(self.hip(), hipEventRecord(from.1, self.stream))?;
        work()?;
        self.make_current()?;
        call!(self.hip(), hipEventRecord(to.1, self.stream))?;
        call!(self.hip(), hipStreamSynchronize(self.stream))?;
        let mut milliseconds = 0.0;
        call!(self.hip(), hipEventElapsedTime(&raw mut milliseconds, from.1, to.1))?;
        Ok(f64::from(milliseconds))
    }
}

impl Drop for Rocm {
    /// Errors are ignored: after a fault every call fails.
    fn drop(&mut self) {
        let hip = self.hip();
        let _ = self.make_current();
        let _ = call!(hip, hipStreamSynchronize(self.stream));
        self.products = None;
        *self.staging.get_mut().unwrap_or_else(PoisonError::into_inner) = Staging::default();
        let resources = std::mem::take(&mut *self.resources());
        for graph in resources.graphs {
            let _ = call!(hip, hipGraphExecDestroy(graph));
        }
        for address in resources.allocations {
            let _ = call!(hip, hipFree(address as At));
        }
        for module in resources.modules.into_values() {
            let _ = call!(hip, hipModuleUnload(module));
        }
        if !self.stream.is_null() {
            let _ = call!(hip, hipStreamDestroy(self.stream));
        }
    }
}
