//! Products of matrices: the driver's library for floats, a kernel of our own for int8.

use assay_tensor::{Array, DType, LEAST_PEAK, Result, Shape, TensorError, Unary};

use crate::driver::{Address, Argument, Element, Epilogue, Launch, Operand, Product};
use crate::gpu::{Gpu, block_count, count};
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

/// The elements that are multiplied, and what becomes of the product.
#[derive(Debug, Clone, Copy)]
struct Ending {
    element: Element,
    epilogue: Epilogue,
    /// 0, or 1 to add to what is there.
    beta: f32,
}

impl Ending {
    const PLAIN: Ending = Ending { element: Element::F32, epilogue: Epilogue::None, beta: 0.0 };
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
    fn multiply(
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
        match described(sizes, (a, from_a), (b, from_b), (c, to), ending) {
            Some(product) => self.call(name, self.driver.product(&product)),
            None => self.clear(name, c),
        }
    }

    /// The same of single matrices, if the driver offers a product with this ending; says whether it does.
    fn offered(
        &self,
        name: &'static str,
        sizes: Sizes,
        a: Side<'_>,
        b: Side<'_>,
        c: &Buffer,
        ending: Ending,
    ) -> Result<bool> {
        let Some(product) = described(sizes, (a, 0), (b, 0), (c, 0), ending) else { return Ok(false) };
        let offered = self.call(name, self.driver.offers(&product))?;
        if offered {
            self.call(name, self.driver.product(&product))?;
        }
        Ok(offered)
    }

    /// What the elements of both sides of a product are: both f32, or both bf16.
    fn element(&self, name: &'static str, a: &Array, b: &Array) -> Result<Element> {
        let element = if a.dtype == DType::Bf16 { Element::Bf16 } else { Element::F32 };
        let dtype = if element == Element::Bf16 { DType::Bf16 } else { DType::F32 };
        [a, b].iter().try_for_each(|side| self.typed(name, side, dtype).map(drop))?;
        Ok(element)
    }

    /// One batch of f32 products into all of `c`.
    pub(crate) fn multiplied(
        &self,
        name: &'static str,
        sizes: Sizes,
        a: Side<'_>,
        b: Side<'_>,
        c: &Buffer,
    ) -> Result<()> {
        self.multiply(name, sizes, (a, 0), (b, 0), (c, 0), Ending::PLAIN)
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
        let ending = Ending { element: self.element(name, a, b)?, ..Ending::PLAIN };
        let (left, right) = (self.buffer(name, a)?, self.buffer(name, b)?);
        let y = self.take(name, &shape)?;
        if shape.numel() == 0 {
            return Ok(y.shaped(&shape));
        }
        let mut left = Side { buffer: left, columns: *ca, transposed: trans_a, batch_stride: 0 };
        let mut right = Side { buffer: right, columns: *cb, transposed: trans_b, batch_stride: 0 };
        // Rows of several products with one right side are the rows of one product.
        if batch_b.numel() == 1 && batch_a == batch && !trans_a {
            let sizes = Sizes { m: m * batch.numel(), n, k, batch: 1 };
            self.multiply(name, sizes, (left, 0), (right, 0), (&y, 0), ending)?;
            return Ok(y.shaped(&shape));
        }
        let (in_a, in_b) = (batch_a.broadcast_strides(&batch), batch_b.broadcast_strides(&batch));
        // The innermost of the merged axes is the library's batch; the others are products of their own.
        let mut walk = Walk::new(batch.dims(), [&in_a, &in_b]);
        let count = walk.dims.pop().unwrap_or(1);
        let [step_a, step_b] = walk.strides.each_mut().map(|strides| strides.pop().unwrap_or(0));
        (left.batch_stride, right.batch_stride) = (step_a * ra * ca, step_b * rb * cb);
        let sizes = Sizes { m, n, k, batch: count };
        for (i, [at_a, at_b]) in starts(&walk).into_iter().enumerate() {
            let sides = ((left, at_a * ra * ca), (right, at_b * rb * cb));
            self.multiply(name, sizes, sides.0, sides.1, (&y, i * count * m * n), ending)?;
        }
        Ok(y.shaped(&shape))
    }

    /// sum + a b of matrices, in the memory of `sum`, which nothing else may use.
    pub(crate) fn product_onto(&self, sum: &Array, a: &Array, b: &Array, trans_a: bool, trans_b: bool) -> Result<()> {
        let name = "matmul";
        let (&[ra, ca], &[_, cb], &[m, n]) = (a.dims(), b.dims(), sum.dims()) else {
            let shapes = [&sum.shape, &a.shape, &b.shape];
            return Err(TensorError::new(name, "all three should be matrices").shapes(shapes));
        };
        let k = if trans_a { ra } else { ca };
        let ending = Ending { element: self.element(name, a, b)?, beta: 1.0, ..Ending::PLAIN };
        let left = Side { buffer: self.buffer(name, a)?, columns: ca, transposed: trans_a, batch_stride: 0 };
        let right = Side { buffer: self.buffer(name, b)?, columns: cb, transposed: trans_b, batch_stride: 0 };
        let total = self.typed(name, sum, DType::F32)?;
        if m * n * k == 0 {
            return Ok(());
        }
        let sizes = Sizes { m, n, k, batch: 1 };
        self.multiply(name, sizes, (left, 0), (right, 0), (total, 0), ending)
    }

    /// The operands of x W^T. Where both x and the weight are bf16 so is the product's arithmetic, with sums in f32; where one
    /// of them is, it is widened.
    fn layer(&self, x: &Array, weight: &Array) -> Result<Layer> {
        let [n, k] = *weight.dims() else {
            return Err(TensorError::new("linear", "the weight should be [N, K]").shapes([&weight.shape]));
        };
        let shape = x.shape.with(x.shape.rank().saturating_sub(1), n);
        let (x, weight, element) = match (x.dtype, weight.dtype) {
            (DType::Bf16, DType::Bf16) => (x.clone(), weight.clone(), Element::Bf16),
            _ => (self.converted(x, DType::F32)?, self.converted(weight, DType::F32)?, Element::F32),
        };
        let sizes = Sizes { m: shape.rows(), n, k, batch: 1 };
        Ok(Layer { x, weight, element, shape, sizes })
    }

    /// x W^T + bias.
    pub(crate) fn linear_product(&self, x: &Array, weight: &Array, bias: Option<&Array>) -> Result<Array> {
        let name = "linear";
        let Layer { x, weight, element, shape, sizes } = self.layer(x, weight)?;
        let bias_array = bias;
        let bias = bias.map(|bias| self.typed(name, bias, DType::F32)).transpose()?;
        let y = self.take(name, &shape)?;
        if shape.numel() == 0 {
            return Ok(y.shaped(&shape));
        }
        if sizes.k == 0 {
            // There is nothing to sum over: each row is the bias.
            return match bias_array {
                Some(bias) => self.moved(name, bias, &shape, &bias.shape.broadcast_strides(&shape)),
                None => self.constant(&shape, DType::F32, 0.0),
            };
        }
        let (left, right) = self.sides(name, &x, &weight, true)?;
        let epilogue = bias.and_then(Buffer::address).map_or(Epilogue::None, Epilogue::Bias);
        self.multiply(name, sizes, (left, 0), (right, 0), (&y, 0), Ending { element, epilogue, beta: 0.0 })?;
        Ok(y.shaped(&shape))
    }

    /// Two matrices, or rows of any shape and a matrix, as the sides of a product.
    fn sides<'a>(
        &self,
        name: &'static str,
        a: &'a Array,
        b: &'a Array,
        transposed: bool,
    ) -> Result<(Side<'a>, Side<'a>)> {
        let side = |x: &'a Array, transposed| {
            let buffer = self.buffer(name, x)?;
            Ok(Side { buffer, columns: x.shape.last(), transposed, batch_stride: 0 })
        };
        Ok((side(a, false)?, side(b, transposed)?))
    }

    /// z = x W^T + bias, and GELU of z: in one product where the driver offers it.
    pub(crate) fn linear_and_gelu(&self, x: &Array, weight: &Array, bias: &Array) -> Result<(Array, Array)> {
        let name = "linear_gelu";
        let Layer { x, weight, element, shape, sizes } = self.layer(x, weight)?;
        if let Some(bias_at) = self.typed(name, bias, DType::F32)?.address() {
            let (z, y) = (self.take(name, &shape)?, self.take(name, &shape)?);
            if let Some(argument) = z.address() {
                let (left, right) = self.sides(name, &x, &weight, true)?;
                let epilogue = Epilogue::Gelu { bias: bias_at, argument };
                if self.offered(name, sizes, left, right, &y, Ending { element, epilogue, beta: 0.0 })? {
                    return Ok((z.shaped(&shape), y.shaped(&shape)));
                }
            }
        }
        let z = self.linear_product(&x, &weight, Some(bias))?;
        let y = self.map(Unary::Gelu, &z)?;
        Ok((z, y))
    }

    /// The gradient of z from that of what a weight [N, K] makes of y = GELU(z), and y: the first in one product where the
    /// driver offers it.
    pub(crate) fn linear_and_gelu_backward(&self, grad: &Array, weight: &Array, z: &Array) -> Result<(Array, Array)> {
        let name = "linear_gelu";
        let y = self.map(Unary::Gelu, z)?;
        let (rows, n) = (grad.shape.rows(), grad.shape.last());
        let element = self.element(name, grad, weight)?;
        let sizes = Sizes { m: rows, n: weight.shape.last(), k: n, batch: 1 };
        let (saved, dz) = (self.typed(name, z, DType::F32)?, self.take(name, &z.shape)?);
        if let Some(argument) = saved.address() {
            let (left, right) = self.sides(name, grad, weight, false)?;
            let epilogue = Epilogue::GeluGradient { argument };
            if self.offered(name, sizes, left, right, &dz, Ending { element, epilogue, beta: 0.0 })? {
                return Ok((dz.shaped(&z.shape), y));
            }
        }
        let of_y = self.matrix_product(&grad.viewed([rows, n]), weight, false, false)?.viewed(&z.shape);
        Ok((self.slope(Unary::Gelu, z, &of_y)?, y))
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
        let (from, weights) = (self.f32s(name, x)?, self.typed(name, q, DType::I8)?.pointer());
        let (scale, y) = (self.f32s(name, scale)?, self.take(name, &shape)?);
        if shape.numel() == 0 || k == 0 {
            self.clear(name, &y)?;
            return Ok(y.shaped(&shape));
        }
        let (rows, words) = (shape.rows(), k.div_ceil(4));
        // Words of four bytes, in the place of as many floats.
        let (levels, steps) = (self.scratch(name, rows * words)?, self.scratch(name, rows)?);
        let least = Argument::F32(LEAST_PEAK as f32);
        let arguments = [levels.pointer(), steps.pointer(), from, least, count(rows), count(k), count(words)];
        self.launch(name, (Topic::Int8, "quantize"), self.rows(name, rows, words)?, &arguments)?;
        let tiles = block_count(name, rows.div_ceil(64) * n.div_ceil(64))?;
        let launch = Launch { grid: [tiles, 1, 1], block: [16, 16, 1], shared: 0 };
        let sizes = [rows, n, k, words].map(count);
        let pointers = [y.pointer(), levels.pointer(), steps.pointer(), weights, scale];
        self.launch(name, (Topic::Int8, "multiply_int8"), launch, &[&pointers[..], &sizes].concat())?;
        Ok(y.shaped(&shape))
    }
}

/// A product in the driver's terms; none where one of the three has no elements.
fn described(
    Sizes { m, n, k, batch }: Sizes,
    (a, from_a): (Side<'_>, usize),
    (b, from_b): (Side<'_>, usize),
    (c, to): (&Buffer, usize),
    Ending { element, epilogue, beta }: Ending,
) -> Option<Product> {
    let side = Side { buffer: c, columns: n, transposed: false, batch_stride: m * n };
    let (a, b) = (a.operand(a.buffer.address()?, from_a, element), b.operand(b.buffer.address()?, from_b, element));
    let c = side.operand(c.address()?, to, Element::F32);
    Some(Product { m, n, k, batch, a, b, c, beta, epilogue })
}

/// Where the operands start for each index of a walk, in its order.
fn starts(walk: &Walk<2>) -> Vec<[usize; 2]> {
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
        assert_eq!(starts(&walk), [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]);
        assert_eq!(starts(&Walk::new(&[], [&[], &[]])), [[0, 0]]);
    }
}
