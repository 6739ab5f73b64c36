//! Products of matrices: the driver's library for floats, a kernel of our own for int8.

use assay_tensor::{
    Arguments, Array, Binary, DType, FeedForward, FeedForwardBackward, Kernels, LEAST_PEAK, Reduce, Result, Shape,
    TensorError, Unary,
};

use crate::driver::{Address, Argument, Element, Epilogue, Launch, Operand, Product};
use crate::gpu::{Gpu, block_count, count_argument};
use crate::library::Topic;
use crate::storage::Buffer;
use crate::strides::Walk;

/// The widest rows of bytes whose sums fit 32 bits: 2^31 / (127 * 128), rounded down to a power of two.
const WIDEST: usize = 131_072;

/// One side of a product, as it lies in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) buffer: &'a Buffer,
    pub(crate) columns: usize,
    pub(crate) transposed: bool,
    pub(crate) batch_stride: usize,
}

/// The extents of a product: rows and columns of the result, what is summed over, and how many there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) batch: usize,
}

/// The elements that are multiplied, those of the result, and what becomes of the product.
#[derive(Debug, Clone, Copy)]
struct Ending {
    element: Element,
    result: Element,
    epilogue: Epilogue,
    /// What is added, in the layout of the result.
    base: Option<Address>,
}

impl Ending {
    /// An f32 result of elements of this type.
    fn plain(element: Element) -> Ending {
        Ending { element, result: Element::F32, epilogue: Epilogue::None, base: None }
    }
}

/// The operands of a layer, of one type, and its result's shape.
struct Layer {
    x: Array,
    weight: Array,
    element: Element,
    shape: Shape,
    sizes: Sizes,
}

impl Side<'_> {
    /// The operand that starts `offset` elements in.
    fn operand(&self, address: Address, offset: usize, element: Element) -> Operand {
        let size = if element == Element::F32 { 4 } else { 2 };
        Operand {
            address: Address(address.0 + (offset * size) as u64),
            element,
            stride: self.columns.max(1),
            batch_stride: self.batch_stride,
            transposed: self.transposed,
        }
    }
}

impl Gpu {
    /// c = a b for each matrix of a batch, of elements of one type; the result is f32. The sides start at these offsets.
    fn launch_matmul(
        &self,
        name: &'static str,
        sizes: Sizes,
        (a, from_a): (Side<'_>, usize),
        (b, from_b): (Side<'_>, usize),
        (c, to): (&Buffer, usize),
        ending: Ending,
    ) -> Result<()> {
        if c.address().is_none() {
            return Ok(());
        }
        match describe_product(sizes, (a, from_a), (b, from_b), (c, to), ending) {
            Some(product) => self.convert_error(name, self.driver.launch_product(&product)),
            None => self.zero_buffer(name, c),
        }
    }

    /// The same of single matrices, if the driver offers a product with this ending; says whether it does.
    fn find_supported(
        &self,
        name: &'static str,
        sizes: Sizes,
        a: Side<'_>,
        b: Side<'_>,
        c: &Buffer,
        ending: Ending,
    ) -> Result<bool> {
        let Some(product) = describe_product(sizes, (a, 0), (b, 0), (c, 0), ending) else { return Ok(false) };
        let offered = self.convert_error(name, self.driver.supports_product(&product))?;
        if offered {
            self.convert_error(name, self.driver.launch_product(&product))?;
        }
        Ok(offered)
    }

    /// What the elements of both sides of a product are: both f32, or both bf16.
    fn common_element(&self, name: &'static str, a: &Array, b: &Array) -> Result<Element> {
        let element = if a.dtype == DType::Bf16 { Element::Bf16 } else { Element::F32 };
        let dtype = if element == Element::Bf16 { DType::Bf16 } else { DType::F32 };
        [a, b].iter().try_for_each(|side| self.typed_buffer(name, side, dtype).map(drop))?;
        Ok(element)
    }

    /// One batch of f32 products into all of `c`.
    pub(crate) fn multiply_matrices(
        &self,
        name: &'static str,
        sizes: Sizes,
        a: Side<'_>,
        b: Side<'_>,
        c: &Buffer,
    ) -> Result<()> {
        self.launch_matmul(name, sizes, (a, 0), (b, 0), (c, 0), Ending::plain(Element::F32))
    }

    /// a b over the last two axes, in f32; leading axes broadcast. The sides may both be bf16.
    pub(crate) fn matrix_product(&self, a: &Array, b: &Array, trans_a: bool, trans_b: bool) -> Result<Array> {
        let name = "matmul";
        let wrong = || TensorError::new(name, "both sides need two axes at least").shapes([&a.shape, &b.shape]);
        let [batch_a @ .., ra, ca] = a.dims() else { return Err(wrong()) };
        let [batch_b @ .., rb, cb] = b.dims() else { return Err(wrong()) };
        let (m, k) = if trans_a { (*ca, *ra) } else { (*ra, *ca) };
        let n = if trans_b { *rb } else { *cb };
        let (batch_a, batch_b) = (Shape::from(batch_a), Shape::from(batch_b));
        let batch = Shape::broadcast(name, &batch_a, &batch_b)?;
        let shape = Shape::from([batch.dims(), &[m, n]].concat());
        let ending = Ending::plain(self.common_element(name, a, b)?);
        let (left, right) = (self.buffer_of(name, a)?, self.buffer_of(name, b)?);
        let y = self.allocate_f32(name, &shape)?;
        if shape.numel() == 0 {
            return Ok(y.into_array(&shape));
        }
        let mut left = Side { buffer: left, columns: *ca, transposed: trans_a, batch_stride: 0 };
        let mut right = Side { buffer: right, columns: *cb, transposed: trans_b, batch_stride: 0 };
        // Rows of several products with one right side are the rows of one product.
        if batch_b.numel() == 1 && batch_a == batch && !trans_a {
            let sizes = Sizes { m: m * batch.numel(), n, k, batch: 1 };
            self.launch_matmul(name, sizes, (left, 0), (right, 0), (&y, 0), ending)?;
            return Ok(y.into_array(&shape));
        }
        let (in_a, in_b) = (batch_a.broadcast_strides(&batch), batch_b.broadcast_strides(&batch));
        // The innermost of the merged axes is the library's batch; the others are products of their own.
        let mut walk = Walk::new(batch.dims(), [&in_a, &in_b]);
        let count = walk.dims.pop().unwrap_or(1);
        let [step_a, step_b] = walk.strides.each_mut().map(|strides| strides.pop().unwrap_or(0));
        (left.batch_stride, right.batch_stride) = (step_a * ra * ca, step_b * rb * cb);
        let sizes = Sizes { m, n, k, batch: count };
        for (i, [at_a, at_b]) in batch_offsets(&walk).into_iter().enumerate() {
            let sides = ((left, at_a * ra * ca), (right, at_b * rb * cb));
            self.launch_matmul(name, sizes, sides.0, sides.1, (&y, i * count * m * n), ending)?;
        }
        Ok(y.into_array(&shape))
    }

    /// sum + a b of matrices, in the memory of `sum`, which nothing else may use.
    pub(crate) fn product_onto(&self, sum: &Array, a: &Array, b: &Array, trans_a: bool, trans_b: bool) -> Result<()> {
        let name = "matmul";
        let (&[ra, ca], &[_, cb], &[m, n]) = (a.dims(), b.dims(), sum.dims()) else {
            let shapes = [&sum.shape, &a.shape, &b.shape];
            return Err(TensorError::new(name, "all three should be matrices").shapes(shapes));
        };
        let k = if trans_a { ra } else { ca };
        let total = self.typed_buffer(name, sum, DType::F32)?;
        let ending = Ending { base: total.address(), ..Ending::plain(self.common_element(name, a, b)?) };
        let left = Side { buffer: self.buffer_of(name, a)?, columns: ca, transposed: trans_a, batch_stride: 0 };
        let right = Side { buffer: self.buffer_of(name, b)?, columns: cb, transposed: trans_b, batch_stride: 0 };
        if m * n * k == 0 {
            return Ok(());
        }
        let sizes = Sizes { m, n, k, batch: 1 };
        self.launch_matmul(name, sizes, (left, 0), (right, 0), (total, 0), ending)
    }

    /// The operands of x W^T. Where both x and the weight are bf16 so is the product's arithmetic, with sums in f32; where one
    /// of them is, it is widened.
    fn plan_layer(&self, x: &Array, weight: &Array) -> Result<Layer> {
        let [n, k] = *weight.dims() else {
            return Err(TensorError::new("linear", "the weight should be [N, K]").shapes([&weight.shape]));
        };
        let shape = x.shape.with(x.shape.rank().saturating_sub(1), n);
        let (x, weight, element) = match (x.dtype, weight.dtype) {
            (DType::Bf16, DType::Bf16) => (x.clone(), weight.clone(), Element::Bf16),
            _ => (self.convert_dtype(x, DType::F32)?, self.convert_dtype(weight, DType::F32)?, Element::F32),
        };
        let sizes = Sizes { m: shape.rows(), n, k, batch: 1 };
        Ok(Layer { x, weight, element, shape, sizes })
    }

    /// x W^T + bias.
    pub(crate) fn linear_product(&self, x: &Array, weight: &Array, bias: Option<&Array>) -> Result<Array> {
        self.linear_product_onto(None, x, weight, bias)
    }

    /// base + x W^T + bias; the base, if there is one, has the shape of the result.
    pub(crate) fn linear_product_onto(
        &self,
        base: Option<&Array>,
        x: &Array,
        weight: &Array,
        bias: Option<&Array>,
    ) -> Result<Array> {
        let name = "linear";
        let Layer { x, weight, element, shape, sizes } = self.plan_layer(x, weight)?;
        let bias_array = bias;
        let bias = bias.map(|bias| self.typed_buffer(name, bias, DType::F32)).transpose()?;
        let y = self.allocate_f32(name, &shape)?;
        if shape.numel() == 0 {
            return Ok(y.into_array(&shape));
        }
        if sizes.k == 0 {
            // There is nothing to sum over: each row is the bias.
            let rows = match bias_array {
                Some(bias) => self.copy_strided(name, bias, &shape, &bias.shape.broadcast_strides(&shape))?,
                None => self.fill_constant(&shape, DType::F32, 0.0)?,
            };
            return base.map_or(Ok(rows.clone()), |base| self.apply_binary(Binary::Add, &rows, base));
        }
        let (left, right) = self.matmul_sides(name, &x, &weight, true)?;
        let epilogue = bias.and_then(Buffer::address).map_or(Epilogue::None, Epilogue::Bias);
        let base =
            base.map(|base| self.typed_buffer(name, base, DType::F32).map(Buffer::address)).transpose()?.flatten();
        let ending = Ending { epilogue, base, ..Ending::plain(element) };
        self.launch_matmul(name, sizes, (left, 0), (right, 0), (&y, 0), ending)?;
        Ok(y.into_array(&shape))
    }

    /// Two matrices, or rows of any shape and a matrix, as the sides of a product.
    fn matmul_sides<'a>(
        &self,
        name: &'static str,
        a: &'a Array,
        b: &'a Array,
        transposed: bool,
    ) -> Result<(Side<'a>, Side<'a>)> {
        let side = |x: &'a Array, transposed| {
            let buffer = self.buffer_of(name, x)?;
            Ok(Side { buffer, columns: x.shape.last(), transposed, batch_stride: 0 })
        };
        Ok((side(a, false)?, side(b, transposed)?))
    }

    /// z = x W^T + bias, and GELU of z: in one product where the driver offers it.
    pub(crate) fn linear_and_gelu(&self, [x, weight, bias]: [&Array; 3]) -> Result<Vec<Array>> {
        let name = "linear_gelu";
        let Layer { x, weight, element, shape, sizes } = self.plan_layer(x, weight)?;
        if let Some(bias_at) = self.typed_buffer(name, bias, DType::F32)?.address() {
            let (z, y) = (self.allocate_f32(name, &shape)?, self.allocate_f32(name, &shape)?);
            if let Some(argument) = z.address() {
                let (left, right) = self.matmul_sides(name, &x, &weight, true)?;
                let epilogue = Epilogue::Gelu { bias: bias_at, argument };
                if self.find_supported(name, sizes, left, right, &y, Ending { epilogue, ..Ending::plain(element) })? {
                    return Ok(vec![z.into_array(&shape), y.into_array(&shape)]);
                }
            }
        }
        let z = self.linear_product(&x, &weight, Some(bias))?;
        let y = self.apply_unary(Unary::Gelu, &z)?;
        Ok(vec![z, y])
    }

    /// The gradient of z from that of what a weight [N, K] makes of y = GELU(z), and y: the first in one product where the
    /// driver offers it.
    pub(crate) fn linear_and_gelu_backward(&self, [grad, weight, z]: [&Array; 3]) -> Result<Vec<Array>> {
        let name = "linear_gelu";
        let y = self.apply_unary(Unary::Gelu, z)?;
        let (rows, n) = (grad.shape.rows(), grad.shape.last());
        let element = self.common_element(name, grad, weight)?;
        let sizes = Sizes { m: rows, n: weight.shape.last(), k: n, batch: 1 };
        let (saved, dz) = (self.typed_buffer(name, z, DType::F32)?, self.allocate_f32(name, &z.shape)?);
        if let Some(argument) = saved.address() {
            let (left, right) = self.matmul_sides(name, grad, weight, false)?;
            let epilogue = Epilogue::GeluGradient { argument };
            if self.find_supported(name, sizes, left, right, &dz, Ending { epilogue, ..Ending::plain(element) })? {
                return Ok(vec![dz.into_array(&z.shape), y]);
            }
        }
        let of_y = self.matrix_product(&grad.viewed([rows, n]), weight, false, false)?.viewed(&z.shape);
        Ok(vec![self.unary_gradient(Unary::Gelu, z, &of_y)?, y])
    }

    /// A feed-forward layer of bf16 operands that keeps GELU's argument in bf16: base + GELU(z) D^T + d, and that. None where
    /// the driver does not offer the first product with its epilogue. The first bias is rounded to bf16 for it.
    pub(crate) fn feed_forward_bf16(
        &self,
        FeedForward { x, up, down, base, .. }: FeedForward<'_>,
    ) -> Result<Option<Vec<Array>>> {
        let name = "feed_forward";
        let Layer { x, weight, element, shape, sizes } = self.plan_layer(x, up.0)?;
        if element != Element::Bf16 || down.0.dtype != DType::Bf16 {
            return Ok(None);
        }
        let bias = self.convert_dtype(up.1, DType::Bf16)?;
        let bias_at = self.typed_buffer(name, &bias, DType::Bf16)?.address();
        let (z, value) =
            (self.allocate_buffer(name, &shape, DType::Bf16)?, self.allocate_buffer(name, &shape, DType::Bf16)?);
        let (Some(bias), Some(argument)) = (bias_at, z.address()) else { return Ok(None) };
        let (left, right) = self.matmul_sides(name, &x, &weight, true)?;
        let epilogue = Epilogue::Gelu { bias, argument };
        let ending = Ending { epilogue, result: Element::Bf16, ..Ending::plain(element) };
        if !self.find_supported(name, sizes, left, right, &value, ending)? {
            return Ok(None);
        }
        let y = self.linear_product_onto(base, &value.into_array(&shape), down.0, Some(down.1))?;
        Ok(Some(vec![y, z.into_array(&shape)]))
    }

    /// The way back through such a layer. None where the driver does not offer the product with GELU's gradient.
    pub(crate) fn feed_forward_bf16_backward(
        &self,
        back: FeedForwardBackward<'_>,
        call: Arguments<'_>,
    ) -> Result<Option<Vec<Array>>> {
        let name = "feed_forward";
        let FeedForwardBackward { x, up, argument, down, grad } = back;
        if [x, up, argument, down].iter().any(|operand| operand.dtype != DType::Bf16) {
            return Ok(None);
        }
        let flat = |x: &Array| x.viewed([x.shape.rows(), x.shape.last()]);
        let (x, grad) = (flat(x), flat(&self.convert_dtype(grad, DType::Bf16)?));
        let z = flat(argument);
        let dz = self.allocate_buffer(name, &z.shape, DType::Bf16)?;
        let Some(argument_at) = self.typed_buffer(name, &z, DType::Bf16)?.address() else { return Ok(None) };
        let sizes = Sizes { m: z.shape.rows(), n: z.shape.last(), k: grad.shape.last(), batch: 1 };
        let (left, right) = self.matmul_sides(name, &grad, down, false)?;
        let epilogue = Epilogue::GeluGradient { argument: argument_at };
        let ending = Ending { epilogue, result: Element::Bf16, ..Ending::plain(Element::Bf16) };
        if !self.find_supported(name, sizes, left, right, &dz, ending)? {
            return Ok(None);
        }
        let dz = dz.into_array(&z.shape);
        let value = self.gelu_bf16(&z)?;
        // A view is another handle on the sum's memory: the sum itself has to go before that is changed.
        let product = |sum: Option<Array>, a: &Array, b: &Array, transposed: bool| match sum.map(|sum| flat(&sum)) {
            Some(sum) => self.matmul_onto(sum, a, b, transposed, false),
            None => self.matmul(a, b, transposed, false),
        };
        Ok(Some(vec![
            product(call.take_sum(0), &dz, up, false)?.viewed(&back.x.shape),
            product(call.take_sum(1), &dz, &x, true)?,
            self.reduce_axes(Reduce::Sum, &dz, &[0])?.viewed(dz.shape.last()),
            product(call.take_sum(3), &grad, &value, true)?,
        ]))
    }

    /// x W^T with int8 weights, the rows of x quantized on the way.
    pub(crate) fn int8_product(&self, x: &Array, q: &Array, scale: &Array) -> Result<Array> {
        let name = "linear_int8";
        let (n, k) = (scale.numel(), q.shape.last());
        if k > WIDEST {
            return Err(TensorError::new(name, format!("rows of {k} weights would overflow their sums"))
                .shapes([&q.shape])
                .hint(format!("{WIDEST} is the limit; split the layer")));
        }
        let shape = x.shape.with(x.shape.rank().saturating_sub(1), n);
        let (from, weights) = (self.f32_pointer(name, x)?, self.typed_buffer(name, q, DType::I8)?.pointer());
        let (scale, y) = (self.f32_pointer(name, scale)?, self.allocate_f32(name, &shape)?);
        if shape.numel() == 0 || k == 0 {
            self.zero_buffer(name, &y)?;
            return Ok(y.into_array(&shape));
        }
        let (rows, words) = (shape.rows(), k.div_ceil(4));
        // Words of four bytes, in the place of as many floats.
        let (levels, steps) = (self.allocate_scratch(name, rows * words)?, self.allocate_scratch(name, rows)?);
        let least = Argument::F32(LEAST_PEAK as f32);
        let arguments = [
            levels.pointer(),
            steps.pointer(),
            from,
            least,
            count_argument(rows),
            count_argument(k),
            count_argument(words),
        ];
        self.launch_kernel(name, (Topic::Int8, "quantize"), self.row_grid(name, rows, words)?, &arguments)?;
        let tiles = block_count(name, rows.div_ceil(64) * n.div_ceil(64))?;
        let launch = Launch { grid: [tiles, 1, 1], block: [16, 16, 1], shared: 0 };
        let sizes = [rows, n, k, words].map(count_argument);
        let pointers = [y.pointer(), levels.pointer(), steps.pointer(), weights, scale];
        self.launch_kernel(name, (Topic::Int8, "multiply_int8"), launch, &[&pointers[..], &sizes].concat())?;
        Ok(y.into_array(&shape))
    }
}

/// A product in the driver's terms; none where one of the three has no elements.
fn describe_product(
    Sizes { m, n, k, batch }: Sizes,
    (a, from_a): (Side<'_>, usize),
    (b, from_b): (Side<'_>, usize),
    (c, to): (&Buffer, usize),
    Ending { element, result, epilogue, base }: Ending,
) -> Option<Product> {
    let side = Side { buffer: c, columns: n, transposed: false, batch_stride: m * n };
    let (a, b) = (a.operand(a.buffer.address()?, from_a, element), b.operand(b.buffer.address()?, from_b, element));
    let c = side.operand(c.address()?, to, result);
    Some(Product { m, n, k, batch, a, b, c, base, epilogue })
}

/// Where the operands start for each index of a walk, in its order.
fn batch_offsets(walk: &Walk<2>) -> Vec<[usize; 2]> {
    let mut starts = vec![[0, 0]];
    for (axis, &extent) in walk.dims.iter().enumerate() {
        let strides = [walk.strides[0][axis], walk.strides[1][axis]];
        let step = |[a, b]: [usize; 2], index: usize| [a + index * strides[0], b + index * strides[1]];
        starts = starts.iter().flat_map(|&start| (0..extent).map(move |index| step(start, index))).collect();
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_a_broadcast_batch_start_where_their_operands_are() {
        let walk = Walk::new(&[2, 3], [&[1, 0], &[0, 1]]);
        assert_eq!(batch_offsets(&walk), [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]);
        assert_eq!(batch_offsets(&Walk::new(&[], [&[], &[]])), [[0, 0]]);
    }
}
