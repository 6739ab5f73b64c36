//! Movement of elements of any type: orders, pieces, rows by id; constants; and conversions between types.

use assay_tensor::{Array, DType, HostData, Result, Shape, TensorError, bf16};

use crate::arena::Purpose;
use crate::driver::{Address, Argument};
use crate::gpu::{Gpu, count_argument};
use crate::library::Topic;
use crate::storage::{Buffer, UNKNOWN, host_bytes, host_bytes_mut, host_zeros};
use crate::strides::Walk;

/// The refusal of a type that the backend does not hold.
fn no_type(operation: &'static str, dtype: DType) -> TensorError {
    TensorError::new(operation, format!("this backend holds no {dtype}"))
        .hint("use f32, or the reference backend for f64")
}

/// The widest word that divides all of these bytes.
fn word_size(bytes: &[usize]) -> usize {
    [16, 4, 2].into_iter().find(|word| bytes.iter().all(|bytes| bytes % word == 0)).unwrap_or(1)
}

/// Rows in an array: where the first starts, and how far the next is, in bytes.
#[derive(Debug, Clone, Copy)]
struct Rows {
    start: usize,
    stride: usize,
}

impl Gpu {
    fn launch_movement(&self, operation: &'static str, kernel: &str, n: usize, arguments: &[Argument]) -> Result<()> {
        self.launch_kernel(operation, (Topic::Movement, kernel), self.line_grid(n), arguments)
    }

    pub(crate) fn copy_in(&self, data: &HostData, shape: &Shape) -> Result<Array> {
        let name = "upload";
        if data.len() != shape.check_size(name)? {
            return Err(TensorError::new(name, format!("there are {} elements", data.len())).shapes([shape]));
        }
        let bytes = host_bytes(data).ok_or_else(|| no_type(name, data.dtype()))?;
        let bound = match data {
            HostData::U32(ids) => ids.iter().max().map_or(0, |&largest| u64::from(largest) + 1),
            _ => UNKNOWN,
        };
        let y = Buffer::new(&self.arena, name, data.len(), data.dtype(), Purpose::Upload)
            .map_err(|error| error.shapes([shape]))?
            .with_id_bound(bound);
        if let Some(address) = y.address() {
            self.convert_error(name, self.driver.copy_to_device(address, bytes))?;
        }
        let y = y.into_array(shape);
        self.recorder.keep_upload(&y);
        Ok(y)
    }

    pub(crate) fn copy_out(&self, x: &Array) -> Result<HostData> {
        let name = "download";
        let from = self.buffer_of(name, x)?;
        let mut data = host_zeros(x.dtype, x.numel()).ok_or_else(|| no_type(name, x.dtype))?;
        if let (Some(address), Some(bytes)) = (from.address(), host_bytes_mut(&mut data)) {
            self.convert_error(name, self.driver.copy_to_host(address, bytes))?;
        }
        Ok(data)
    }

    /// A buffer of zeros, which is what zero bits are in every type.
    pub(crate) fn allocate_zeros(&self, operation: &'static str, shape: &Shape) -> Result<Buffer> {
        let y = self.allocate_f32(operation, shape)?;
        self.zero_buffer(operation, &y)?;
        Ok(y)
    }

    pub(crate) fn zero_buffer(&self, operation: &'static str, y: &Buffer) -> Result<()> {
        match y.address() {
            Some(address) => self.convert_error(operation, self.driver.zero_memory(address, y.bytes())),
            None => Ok(()),
        }
    }

    pub(crate) fn fill_constant(&self, shape: &Shape, dtype: DType, value: f64) -> Result<Array> {
        let name = "full";
        let (bits, bound) = match dtype {
            DType::F32 => ((value as f32).to_bits(), UNKNOWN),
            DType::Bf16 => (u32::from(bf16::from_f32(value as f32).to_bits()), UNKNOWN),
            DType::U32 => (value as u32, u64::from(value as u32) + 1),
            DType::I8 => (u32::from((value as i8).cast_unsigned()), UNKNOWN),
            DType::F64 => return Err(no_type(name, dtype)),
        };
        let y = self.allocate_buffer(name, shape, dtype)?.with_id_bound(bound);
        let n = shape.numel();
        match bits {
            0 => self.zero_buffer(name, &y)?,
            _ if n > 0 => {
                let arguments = [y.pointer(), Argument::U32(bits), count_argument(n)];
                self.launch_movement(name, &format!("fill_{}", dtype.size()), n, &arguments)?;
            }
            _ => {}
        }
        Ok(y.into_array(shape))
    }

    pub(crate) fn convert_dtype(&self, x: &Array, dtype: DType) -> Result<Array> {
        let name = "cast";
        if x.dtype == dtype {
            return Ok(x.clone());
        }
        if dtype == DType::F64 {
            return Err(no_type(name, dtype));
        }
        let (from, y) = (self.buffer_of(name, x)?, self.allocate_buffer(name, &x.shape, dtype)?);
        if x.numel() > 0 {
            let kernel = format!("{}_to_{}", x.dtype, dtype);
            self.launch_movement(name, &kernel, x.numel(), &[y.pointer(), from.pointer(), count_argument(x.numel())])?;
        }
        Ok(y.into_array(&x.shape))
    }

    /// x read in another order, or several times: `strides` say where, for each axis of `shape`.
    pub(crate) fn copy_strided(
        &self,
        name: &'static str,
        x: &Array,
        shape: &Shape,
        strides: &[usize],
    ) -> Result<Array> {
        let from = self.buffer_of(name, x)?;
        let y = self.allocate_buffer(name, shape, x.dtype)?.with_id_bound(from.id_bound());
        if shape.numel() == 0 {
            return Ok(y.into_array(shape));
        }
        let size = x.dtype.size();
        let mut walk = Walk::new(shape.dims(), [strides]);
        // Whole words where the innermost axis is contiguous and everything is a multiple of them.
        let mut bytes = size;
        if let (Some(extent), [strides]) = (walk.dims.last_mut(), &mut walk.strides)
            && let Some((1, outer)) = strides.split_last_mut().map(|(inner, outer)| (*inner, outer))
        {
            let mut multiples = vec![*extent * size];
            multiples.extend(outer.iter().map(|stride| stride * size));
            bytes = word_size(&multiples).max(size);
            *extent = *extent * size / bytes;
            outer.iter_mut().for_each(|stride| *stride = *stride * size / bytes);
        }
        let (starts, walk) = walk.split_outer();
        let n = walk.numel();
        for (piece, [start]) in starts.into_iter().enumerate() {
            let (to, at) = (pointer_at(&y, piece * n * bytes), pointer_at(from, start * bytes));
            let mut arguments = vec![to, at, count_argument(n)];
            arguments.extend(walk.inner_extents().map(count_argument));
            arguments.extend(walk.all_strides(0).map(count_argument));
            self.launch_movement(name, &format!("strided_{bytes}"), n, &arguments)?;
        }
        Ok(y.into_array(shape))
    }

    /// Copies `count` rows of `bytes` bytes.
    fn copy_rows(
        &self,
        name: &'static str,
        (x, source): (&Buffer, Rows),
        (y, target): (&Buffer, Rows),
        rows: usize,
        bytes: usize,
    ) -> Result<()> {
        let (Some(from), Some(to)) = (x.address(), y.address()) else { return Ok(()) };
        if rows == 0 || bytes == 0 {
            return Ok(());
        }
        let (from, to) = (Address(from.0 + source.start as u64), Address(to.0 + target.start as u64));
        if rows == 1 || (source.stride == bytes && target.stride == bytes) {
            return self.convert_error(name, self.driver.copy_on_device(to, from, rows * bytes));
        }
        let word = word_size(&[bytes, source.start, source.stride, target.start, target.stride]);
        let launch = self.plane_grid(name, rows, bytes / word)?;
        let sizes = [rows, bytes / word, target.stride / word, source.stride / word].map(count_argument);
        let pointers = [Argument::Pointer(Some(to)), Argument::Pointer(Some(from))];
        let kernel = format!("pieces_{word}");
        self.launch_kernel(name, (Topic::Movement, &kernel), launch, &[&pointers[..], &sizes].concat())
    }

    /// `length` elements from `start` on along `axis`.
    pub(crate) fn copy_slice(&self, x: &Array, axis: usize, start: usize, length: usize) -> Result<Array> {
        let name = "slice";
        let shape = x.shape.with(axis, length);
        let from = self.buffer_of(name, x)?;
        let y = self.allocate_buffer(name, &shape, x.dtype)?.with_id_bound(from.id_bound());
        let inner = x.dims()[axis + 1..].iter().product::<usize>() * x.dtype.size();
        let outer = x.dims()[..axis].iter().product();
        let source = Rows { start: start * inner, stride: x.dims()[axis] * inner };
        let target = Rows { start: 0, stride: length * inner };
        self.copy_rows(name, (from, source), (&y, target), outer, length * inner)?;
        Ok(y.into_array(&shape))
    }

    /// One after the other along `axis`.
    pub(crate) fn join_arrays(&self, xs: &[&Array], axis: usize) -> Result<Array> {
        let name = "concat";
        let Some(first) = xs.first() else {
            return Err(TensorError::new(name, "there is nothing to join"));
        };
        let shape = first.shape.with(axis, xs.iter().map(|x| x.dims()[axis]).sum());
        let parts = xs.iter().map(|x| self.typed_buffer(name, x, first.dtype)).collect::<Result<Vec<_>>>()?;
        let bound = parts.iter().map(|part| part.id_bound()).max().unwrap_or(UNKNOWN);
        let y = self.allocate_buffer(name, &shape, first.dtype)?.with_id_bound(bound);
        let inner = first.dims()[axis + 1..].iter().product::<usize>() * first.dtype.size();
        let outer = first.dims()[..axis].iter().product();
        let stride = shape.dims()[axis] * inner;
        let mut start = 0;
        for (x, part) in xs.iter().zip(parts) {
            let bytes = x.dims()[axis] * inner;
            let source = Rows { start: 0, stride: bytes };
            self.copy_rows(name, (part, source), (&y, Rows { start, stride }), outer, bytes)?;
            start += bytes;
        }
        Ok(y.into_array(&shape))
    }

    /// The rows of `table` that `ids` name.
    pub(crate) fn gather_table_rows(&self, table: &Array, ids: &Array) -> Result<Array> {
        let name = "rows";
        let width = table.shape.last();
        let from = self.buffer_of(name, table)?;
        let list = self.checked_ids(name, ids, table.shape.rows(), &table.shape)?;
        let shape = Shape::from([ids.dims(), &[width]].concat());
        let y = self.allocate_buffer(name, &shape, table.dtype)?.with_id_bound(from.id_bound());
        if shape.numel() > 0 {
            let bytes = width * table.dtype.size();
            let word = word_size(&[bytes]);
            let launch = self.plane_grid(name, ids.numel(), bytes / word)?;
            let arguments =
                [y.pointer(), from.pointer(), list, count_argument(ids.numel()), count_argument(bytes / word)];
            self.launch_kernel(name, (Topic::Movement, &format!("gather_{word}")), launch, &arguments)?;
        }
        Ok(y.into_array(&shape))
    }

    /// Where ids are, of which each names one of `rows` rows. What a host gave is known without asking the device; what
    /// was computed there is read once.
    pub(crate) fn checked_ids(
        &self,
        operation: &'static str,
        ids: &Array,
        rows: usize,
        shape: &Shape,
    ) -> Result<Argument> {
        let list = self.typed_buffer(operation, ids, DType::U32)?;
        if list.id_bound() <= rows as u64 {
            return Ok(list.pointer());
        }
        let HostData::U32(values) = self.copy_out(ids)? else { return Err(no_type(operation, ids.dtype)) };
        list.set_id_bound(values.iter().max().map_or(0, |&largest| u64::from(largest) + 1));
        match values.iter().position(|&id| id as usize >= rows) {
            None => Ok(list.pointer()),
            Some(place) => {
                let problem = format!("id {} at position {place} is beyond the {rows} rows", values[place]);
                Err(TensorError::new(operation, problem)
                    .shapes([shape])
                    .hint("ids count from 0 and stay below the row count"))
            }
        }
    }

    /// The sums of the rows of `x` by id.
    pub(crate) fn scatter_table_rows(&self, x: &Array, ids: &Array, rows: usize) -> Result<Array> {
        let shape = Shape::from([rows, x.shape.last()]);
        let y = self.allocate_f32("scatter_add_rows", &shape)?.into_array(&shape);
        self.add_table_rows(x, ids, &y, false)?;
        Ok(y)
    }

    /// Puts the sums of the rows of `x` by id into the memory of `y`, which nothing else may use; or adds them to what is
    /// there.
    pub(crate) fn add_table_rows(&self, x: &Array, ids: &Array, y: &Array, onto: bool) -> Result<()> {
        /// Rows of the table that a block sums, and columns: as in `rows.cu`.
        const TILE: usize = 16;
        const COLUMNS: usize = 256;
        let name = "scatter_add_rows";
        let (rows, width) = (y.shape.rows(), x.shape.last());
        let list = self.checked_ids(name, ids, rows, &x.shape)?;
        let (from, to) = (self.f32_pointer(name, x)?, self.f32_pointer(name, y)?);
        if y.numel() == 0 {
            return Ok(());
        }
        let mut launch = self.line_grid(1);
        launch.grid[0] = crate::gpu::block_count(name, rows.div_ceil(TILE))?;
        launch.grid[1] = u32::try_from(width.div_ceil(COLUMNS)).ok().filter(|&n| n <= 65_535).ok_or_else(|| {
            TensorError::new(name, format!("rows of {width} elements are too wide")).shapes([&x.shape])
        })?;
        let onto = Argument::U32(u32::from(onto));
        let arguments =
            [to, from, list, count_argument(ids.numel()), count_argument(width), count_argument(rows), onto];
        self.launch_kernel(name, (Topic::Rows, "scatter_add"), launch, &arguments)
    }
}

/// The address `bytes` behind a buffer's start, as an argument.
fn pointer_at(buffer: &Buffer, bytes: usize) -> Argument {
    Argument::Pointer(buffer.address().map(|Address(first)| Address(first + bytes as u64)))
}
