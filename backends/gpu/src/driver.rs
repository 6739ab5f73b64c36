//! The boundary to a vendor: what CUDA and HIP both have, in one vocabulary.

use std::ffi::c_void;
use std::fmt;

/// An address in the device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

/// A kernel of a compiled source, valid as long as its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Function(pub u64);

/// A captured graph of calls, valid until it is destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Graph(pub u64);

/// The architecture that code is compiled for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// NVIDIA: the compute capability, such as 9.0.
    Cuda(u32, u32),
    /// AMD: the target, such as `gfx942`.
    Hip(String),
}

/// The properties of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceProperties {
    /// The device's name as its driver reports it.
    pub name: String,
    /// The architecture that kernels are compiled for.
    pub architecture: Architecture,
    /// The version of the driver, as text.
    pub driver: String,
    /// The version of the runtime's compiler, as text.
    pub compiler: String,
    /// Threads that advance together: 32, or 64 on some AMD devices.
    pub wave: u32,
    /// Streaming multiprocessors, or compute units.
    pub multiprocessors: u32,
    /// Shared memory that a block may use, in bytes.
    pub shared: usize,
    /// All memory of the device, in bytes.
    pub memory: usize,
}

/// A failed call, by the classes that a run distinguishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverError {
    /// The device has too little free memory.
    OutOfMemory {
        /// Bytes requested.
        asked: usize,
        /// Bytes free at that time.
        free: usize,
        /// All bytes of the device.
        total: usize,
    },
    /// A kernel accessed memory out of bounds, or trapped. The context is unusable from then on.
    Fault(String),
    /// The device is lost: fallen off the bus, reset, or removed. The context is unusable from then on.
    Lost(String),
    /// A kernel's source does not compile.
    Compile {
        /// The compiler's log.
        log: String,
    },
    /// Any other error.
    Call {
        /// The call, by its vendor's name.
        call: &'static str,
        /// The vendor's code and text.
        reason: String,
    },
}

/// An argument of a kernel. Its C++ parameter has the type of the same name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Argument {
    /// A pointer into the device's memory, or null.
    Pointer(Option<Address>),
    /// `unsigned int`
    U32(u32),
    /// `unsigned long long`
    U64(u64),
    /// `float`
    F32(f32),
    /// What follows in a struct, whose first member is the last argument before it that does not follow: a pointer, or null.
    ThenPointer(Option<Address>),
    /// The same: two words of 32 bits, or `unsigned long long`.
    ThenU64(u64),
}

impl Argument {
    /// A word whose first bytes are the argument's, for calls that take pointers to arguments: that is where a
    /// little-endian machine has them, which all that the vendors run on are.
    pub fn to_word(&self) -> u64 {
        match *self {
            Argument::Pointer(address) | Argument::ThenPointer(address) => address.map_or(0, |address| address.0),
            Argument::U32(value) => u64::from(value),
            Argument::U64(value) | Argument::ThenU64(value) => value,
            Argument::F32(value) => u64::from(value.to_bits()),
        }
    }

    /// Pointers to a kernel's parameters, given the slots of all its arguments: one that is a struct is several slots.
    pub fn parameter_pointers(arguments: &[Argument], slots: &mut [u64]) -> Vec<*mut c_void> {
        let follows = |argument: &Argument| matches!(argument, Argument::ThenPointer(_) | Argument::ThenU64(_));
        let first = slots.as_mut_ptr();
        let starts = (0..arguments.len().min(slots.len())).filter(|&at| !follows(&arguments[at]));
        starts.map(|at| first.wrapping_add(at).cast()).collect()
    }
}

/// The grid of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
}

/// The elements of a product's operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    /// 32-bit floating point; products are in true f32, not in TF32.
    F32,
    /// bfloat16, with f32 accumulation.
    Bf16,
}

/// A matrix of a product, or a batch of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    /// The first element of the first matrix.
    pub address: Address,
    /// The elements' type.
    pub element: Element,
    /// Elements from one row, as it lies in memory, to the next.
    pub stride: usize,
    /// Elements from one matrix of the batch to the next; 0 repeats one matrix.
    pub batch_stride: usize,
    /// Whether the product takes the transpose of what lies in memory. Never set for the result.
    pub transposed: bool,
}

/// The operation that is fused to a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epilogue {
    /// Nothing.
    None,
    /// A bias of n elements, of the result's type, is added to each row.
    Bias(Address),
    /// The same; what comes of it is stored as `argument`, and its GELU, in the tanh form, is the result.
    Gelu {
        /// n elements, of the result's type.
        bias: Address,
        /// Of the result's type, [m, n] of each matrix, one row right after the other. Written.
        argument: Address,
    },
    /// The product is the gradient of GELU's value; the result is that of its argument.
    GeluGradient {
        /// As [`Epilogue::Gelu`] stores it. Read.
        argument: Address,
    },
}

/// c = a b + base, with the epilogue, for each matrix of a batch. Row-major: c is [m, n], a as taken [m, k], b as taken [k, n].
/// The same product gives the same bits every time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Product {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// The extent that is summed over.
    pub k: usize,
    /// How many such products.
    pub batch: usize,
    /// The left side.
    pub a: Operand,
    /// The right side.
    pub b: Operand,
    /// The result. It may be bf16 where both sides are: sums are f32, and each is rounded once.
    pub c: Operand,
    /// What is added to the product, if anything: matrices that lie as those of `c` do, or `c` itself.
    pub base: Option<Address>,
    /// What is done before storing.
    pub epilogue: Epilogue,
}

/// A vendor's device: one context and one stream, on which everything happens in the order of the calls.
///
/// Calls may come from any thread. A call that fails leaves the driver usable, unless its error says otherwise. Dropping
/// the driver frees what is left.
pub trait Driver: fmt::Debug + Send + Sync + 'static {
    /// The properties of the device.
    fn properties(&self) -> &DeviceProperties;
    /// Bytes free, and in all.
    fn memory_info(&self) -> Result<(usize, usize), DriverError>;
    /// Memory of at least one byte, aligned to 256.
    fn allocate(&self, bytes: usize) -> Result<Address, DriverError>;
    /// Frees memory, after the calls made before have finished.
    fn free(&self, address: Address) -> Result<(), DriverError>;
    /// Copies from host to device. The bytes may be reused when it returns.
    fn copy_to_device(&self, to: Address, bytes: &[u8]) -> Result<(), DriverError>;
    /// Copies from device to host, and waits for the copy.
    fn copy_to_host(&self, from: Address, bytes: &mut [u8]) -> Result<(), DriverError>;
    /// Copies on the device; the two ranges do not overlap.
    fn copy_on_device(&self, to: Address, from: Address, bytes: usize) -> Result<(), DriverError>;
    /// Sets all bytes to zero.
    fn zero_memory(&self, address: Address, bytes: usize) -> Result<(), DriverError>;
    /// Compiles a source, or loads it from a cache, and gives its kernels of these `extern "C"` names. It includes only `headers`, which
    /// are names and texts.
    fn compile_kernels(
        &self,
        source: &str,
        headers: &[(&str, &str)],
        options: &[&str],
        names: &[&str],
    ) -> Result<Vec<Function>, DriverError>;
    /// Launches a kernel.
    fn launch_kernel(&self, function: Function, launch: Launch, arguments: &[Argument]) -> Result<(), DriverError>;
    /// Whether [`Driver::launch_product`] can compute this product with its epilogue. The answer depends on extents, types and the
    /// alignment of addresses alone. By default, all but those with GELU.
    fn supports_product(&self, product: &Product) -> Result<bool, DriverError> {
        Ok(matches!(product.epilogue, Epilogue::None | Epilogue::Bias(_)))
    }
    /// Launches a matrix product that is [supported](Driver::supports_product).
    fn launch_product(&self, product: &Product) -> Result<(), DriverError>;
    /// Waits for all calls, and returns the error of one that failed on the device.
    fn synchronize(&self) -> Result<(), DriverError>;
    /// Begins to capture calls instead of executing them, until [`Driver::end_capture`]. Only launches, products, copies on the device
    /// and `zero_memory` are allowed in between.
    fn begin_capture(&self) -> Result<(), DriverError>;
    /// The graph of the calls since [`Driver::begin_capture`].
    fn end_capture(&self) -> Result<Graph, DriverError>;
    /// Launches a captured graph.
    fn launch_graph(&self, graph: Graph) -> Result<(), DriverError>;
    /// Destroys a captured graph, after its last launch has finished.
    fn destroy_graph(&self, graph: Graph) -> Result<(), DriverError>;
    /// Milliseconds that `work` takes on the stream, measured by events of the device.
    fn measure_time(&self, work: &mut dyn FnMut() -> Result<(), DriverError>) -> Result<f64, DriverError>;
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Architecture::Cuda(major, minor) => write!(f, "sm_{major}{minor}"),
            Architecture::Hip(target) => f.write_str(target),
        }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: f64 = 1024.0 * 1024.0;
        match self {
            DriverError::OutOfMemory { asked, free, total } => {
                let [asked, free, total] = [*asked, *free, *total].map(|bytes| bytes as f64 / MIB);
                write!(f, "out of device memory: {asked:.1} MiB were requested, {free:.1} of {total:.1} MiB are free")
            }
            DriverError::Fault(what) => write!(f, "a kernel failed on the device: {what}"),
            DriverError::Lost(what) => write!(f, "the device was lost: {what}"),
            DriverError::Compile { log } => write!(f, "a kernel does not compile: {log}"),
            DriverError::Call { call, reason } => write!(f, "{call} failed: {reason}"),
        }
    }
}

impl std::error::Error for DriverError {}
