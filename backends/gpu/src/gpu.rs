//! A device as the kernels' callers see it: memory, checked operands, and launches.

use std::sync::Arc;

use assay_tensor::{Array, DType, Result, Shape, TensorError};

use crate::arena::{Arena, Purpose};
use crate::driver::{Argument, Driver, DriverError, Launch};
use crate::error::to_tensor_error;
use crate::graph_cache::GraphCache;
use crate::library::{Library, Topic};
use crate::recorder::Recorder;
use crate::storage::{self, Buffer};

/// Threads of a block, everywhere: what the kernels are compiled for.
pub(crate) const THREADS: u32 = 256;
/// Blocks along the first axis of a grid, at most, for both vendors.
const MOST_BLOCKS: usize = i32::MAX as usize;
/// Blocks along the second axis.
const MOST_ROWS: usize = 65_535;

/// A device's driver, its memory, and the kernels that have been compiled for it.
#[derive(Debug)]
pub(crate) struct Gpu {
    /// The recorder, as everything but the repetition of work sees it.
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) arena: Arc<Arena>,
    library: Library,
}

impl Gpu {
    pub(crate) fn new(driver: Arc<dyn Driver>) -> Gpu {
        let recorder = Arc::new(Recorder::new(driver));
        let arena = Arc::new(Arena::new(recorder.clone()));
        Gpu { driver: recorder.clone(), recorder, arena, library: Library::default() }
    }

    /// What repeats work on this device.
    pub(crate) fn new_graph_cache(&self) -> GraphCache {
        GraphCache::new(self.recorder.clone(), self.arena.clone())
    }

    /// A buffer for a result of this shape and type, with arbitrary contents: every element must be written.
    pub(crate) fn allocate_buffer(&self, operation: &'static str, shape: &Shape, dtype: DType) -> Result<Buffer> {
        let elements = shape.check_size(operation)?;
        Buffer::new(&self.arena, operation, elements, dtype, Purpose::Work).map_err(|error| error.shapes([shape]))
    }

    /// A buffer of so many f32.
    pub(crate) fn allocate_scratch(&self, operation: &'static str, elements: usize) -> Result<Buffer> {
        Buffer::new(&self.arena, operation, elements, DType::F32, Purpose::Work)
    }

    /// An f32 buffer of this shape.
    pub(crate) fn allocate_f32(&self, operation: &'static str, shape: &Shape) -> Result<Buffer> {
        self.allocate_buffer(operation, shape, DType::F32)
    }

    /// The buffer of an array of any type.
    pub(crate) fn buffer_of<'a>(&self, operation: &'static str, x: &'a Array) -> Result<&'a Buffer> {
        storage::buffer_of(&self.arena, operation, x)
    }

    /// The buffer of an array of this type.
    pub(crate) fn typed_buffer<'a>(&self, operation: &'static str, x: &'a Array, dtype: DType) -> Result<&'a Buffer> {
        storage::typed_buffer(&self.arena, operation, x, dtype)
    }

    /// Where the elements of an f32 array are.
    pub(crate) fn f32_pointer(&self, operation: &'static str, x: &Array) -> Result<Argument> {
        self.typed_buffer(operation, x, DType::F32).map(Buffer::pointer)
    }

    /// The same of an operand that there may not be.
    pub(crate) fn optional_f32_pointer(&self, operation: &'static str, x: Option<&Array>) -> Result<Argument> {
        x.map_or(Ok(Argument::Pointer(None)), |x| self.f32_pointer(operation, x))
    }

    /// A call of the driver, for an operation.
    pub(crate) fn convert_error<T>(&self, operation: &'static str, done: Result<T, DriverError>) -> Result<T> {
        done.map_err(|error| to_tensor_error(operation, error))
    }

    /// Starts a kernel.
    pub(crate) fn launch_kernel(
        &self,
        operation: &'static str,
        (topic, kernel): (Topic, &str),
        launch: Launch,
        arguments: &[Argument],
    ) -> Result<()> {
        let function = self.library.find_kernel(&*self.driver, operation, topic, kernel)?;
        self.convert_error(operation, self.driver.launch_kernel(function, launch, arguments))
    }

    /// Threads along `n` elements, of which each takes four or more.
    pub(crate) fn line_grid(&self, n: usize) -> Launch {
        // Beyond this many blocks each thread takes several turns: the device is full.
        let most = 32 * self.driver.properties().multiprocessors.max(1) as usize;
        let blocks = n.div_ceil(4 * THREADS as usize).clamp(1, most.min(MOST_BLOCKS));
        Launch { grid: [blocks as u32, 1, 1], block: [THREADS, 1, 1], shared: 0 }
    }

    /// A thread for each column of a plane, which walks down its rows.
    pub(crate) fn plane_grid(&self, operation: &'static str, rows: usize, columns: usize) -> Result<Launch> {
        let across = lane_count(columns);
        let down = THREADS / across;
        let blocks = rows.div_ceil(down as usize).clamp(1, MOST_ROWS) as u32;
        let grid = [block_count(operation, columns.div_ceil(across as usize))?, blocks, 1];
        Ok(Launch { grid, block: [across, down, 1], shared: 0 })
    }

    /// Lanes that share a row of `width` elements, and several rows in a block.
    pub(crate) fn row_grid(&self, operation: &'static str, rows: usize, width: usize) -> Result<Launch> {
        let across = lane_count(width);
        let down = THREADS / across;
        let blocks = block_count(operation, rows.div_ceil(down as usize))?;
        Ok(Launch { grid: [blocks, 1, 1], block: [across, down, 1], shared: 0 })
    }
}

/// Lanes for `width` elements: a power of two.
fn lane_count(width: usize) -> u32 {
    width.clamp(1, THREADS as usize).next_power_of_two() as u32
}

/// The blocks of a launch. Errors where there are more than a grid has.
pub(crate) fn block_count(operation: &'static str, blocks: usize) -> Result<u32> {
    match u32::try_from(blocks) {
        Ok(count) if blocks <= MOST_BLOCKS => Ok(count),
        _ => Err(TensorError::new(operation, format!("{blocks} blocks are more than one launch has"))
            .hint("use a smaller batch or sequence")),
    }
}

/// An extent as kernels take it. Errors where it is beyond 31 bits.
pub(crate) fn checked_extent(operation: &'static str, value: usize) -> Result<u32> {
    u32::try_from(value).ok().filter(|&value| value <= i32::MAX as u32).ok_or_else(|| {
        TensorError::new(operation, format!("an extent of {value} is beyond what this backend counts"))
            .hint("use a smaller batch or sequence")
    })
}

/// A count as an argument of a kernel.
pub(crate) fn count_argument(value: usize) -> Argument {
    Argument::U64(value as u64)
}
