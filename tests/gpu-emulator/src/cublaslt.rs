//! libcublasLt: products with batches, strides, transposes, a bias, GELU and its gradient. Names and codes are NVIDIA's.
#![allow(non_snake_case, clippy::missing_safety_doc)]

use std::ffi::{c_int, c_void};

use crate::engine::{Refusal, Work, with};
use crate::product::{Activation, Element, Matrix, Product};
use crate::settings::settings;

const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 1;
const ALLOC_FAILED: c_int = 3;
const INVALID_VALUE: c_int = 7;
const EXECUTION_FAILED: c_int = 13;
const NOT_SUPPORTED: c_int = 15;

const COMPUTE_32F: c_int = 68;
const R_32F: c_int = 0;
const R_16BF: c_int = 14;
const EPILOGUE_DEFAULT: c_int = 1;
const EPILOGUE_BIAS: c_int = 4;
const EPILOGUE_GELU_AUX_BIAS: c_int = 164;
const EPILOGUE_DGELU: c_int = 192;
/// The required multiple of GELU's argument columns, in elements.
const AUX_COLUMN: i64 = 8;
/// The required alignment of its address, in bytes.
const AUX_ALIGNMENT: u64 = 16;

/// The description of an operation, without matrices.
#[derive(Debug, Clone, Default)]
struct Description {
    transposed: [bool; 2],
    epilogue: c_int,
    bias: u64,
    bias_type: Option<c_int>,
    /// The address of GELU's argument, and the distance of its columns in elements.
    aux: u64,
    aux_leading: i64,
}

impl Description {
    fn has_bias(&self) -> bool {
        matches!(self.epilogue, EPILOGUE_BIAS | EPILOGUE_GELU_AUX_BIAS)
    }

    fn has_aux(&self) -> bool {
        matches!(self.epilogue, EPILOGUE_GELU_AUX_BIAS | EPILOGUE_DGELU)
    }

    /// Whether all required operands are present.
    fn is_whole(&self) -> bool {
        (self.bias != 0 || !self.has_bias()) && (self.aux != 0 || !self.has_aux())
    }
}

/// A matrix without its address.
#[derive(Debug, Clone)]
struct Layout {
    kind: c_int,
    rows: u64,
    columns: u64,
    leading: i64,
    batch: c_int,
    stride: i64,
}

/// The result of a search, in NVIDIA's layout.
#[repr(C)]
struct Heuristic {
    algorithm: [u64; 8],
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// Marks an algorithm that a search returned.
const ALGORITHM: u64 = 0x6173_7361_7921;

unsafe fn make<T>(to: *mut *mut T, value: T) -> c_int {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's place is for a pointer.
    unsafe { to.write(Box::into_raw(Box::new(value))) };
    SUCCESS
}

unsafe fn end<T>(made: *mut T) -> c_int {
    if made.is_null() {
        return NOT_INITIALIZED;
    }
    // SAFETY: `make` made it, and it is ended once.
    drop(unsafe { Box::from_raw(made) });
    SUCCESS
}

/// The value of an attribute, if the caller's value has its size.
unsafe fn value<T: Copy>(from: *const c_void, bytes: usize) -> Option<T> {
    // SAFETY: the caller states the number of bytes.
    (!from.is_null() && bytes == size_of::<T>()).then(|| unsafe { from.cast::<T>().read_unaligned() })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtGetVersion() -> usize {
    130_000
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtCreate(handle: *mut *mut u64) -> c_int {
    unsafe { make(handle, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtDestroy(handle: *mut u64) -> c_int {
    unsafe { end(handle) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescCreate(made: *mut *mut c_void, compute: c_int, scale: c_int) -> c_int {
    if compute != COMPUTE_32F || scale != R_32F {
        return NOT_SUPPORTED;
    }
    unsafe { make(made.cast(), Description { epilogue: EPILOGUE_DEFAULT, ..Description::default() }) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescDestroy(made: *mut c_void) -> c_int {
    unsafe { end(made.cast::<Description>()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    description: *mut c_void,
    attribute: c_int,
    from: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: `make` created it; the caller states the size of the value.
    let Some(description) = (unsafe { description.cast::<Description>().as_mut() }) else { return INVALID_VALUE };
    let number = unsafe { value::<c_int>(from, bytes) };
    match (attribute, number) {
        (3 | 4, Some(operation @ (0 | 1))) => description.transposed[attribute as usize - 3] = operation == 1,
        (7, Some(epilogue)) => description.epilogue = epilogue,
        (8, _) => match unsafe { value::<u64>(from, bytes) } {
            Some(bias) => description.bias = bias,
            None => return INVALID_VALUE,
        },
        (11, _) => match unsafe { value::<u64>(from, bytes) } {
            Some(aux) => description.aux = aux,
            None => return INVALID_VALUE,
        },
        (12, _) => match unsafe { value::<i64>(from, bytes) } {
            Some(leading) => description.aux_leading = leading,
            None => return INVALID_VALUE,
        },
        (26, Some(kind)) => description.bias_type = Some(kind),
        _ => return INVALID_VALUE,
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    made: *mut *mut c_void,
    kind: c_int,
    rows: u64,
    columns: u64,
    leading: i64,
) -> c_int {
    unsafe { make(made.cast(), Layout { kind, rows, columns, leading, batch: 1, stride: 0 }) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutDestroy(made: *mut c_void) -> c_int {
    unsafe { end(made.cast::<Layout>()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutSetAttribute(
    layout: *mut c_void,
    attribute: c_int,
    from: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: `make` created it; the caller states the size of the value.
    let Some(layout) = (unsafe { layout.cast::<Layout>().as_mut() }) else { return INVALID_VALUE };
    let (number, long) = unsafe { (value::<c_int>(from, bytes), value::<i64>(from, bytes)) };
    match (attribute, number, long) {
        (5, Some(batch), _) => layout.batch = batch,
        (6, _, Some(stride)) => layout.stride = stride,
        _ => return INVALID_VALUE,
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceCreate(made: *mut *mut c_void) -> c_int {
    unsafe { make(made.cast(), 0u64) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceDestroy(made: *mut c_void) -> c_int {
    unsafe { end(made.cast::<u64>()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    preference: *mut c_void,
    attribute: c_int,
    from: *const c_void,
    bytes: usize,
) -> c_int {
    let known = match attribute {
        1 => bytes == 8,
        0 | 3 | 5..=9 => bytes == 4,
        _ => false,
    };
    if known && !preference.is_null() && !from.is_null() { SUCCESS } else { INVALID_VALUE }
}

fn element(kind: c_int) -> Option<Element> {
    match kind {
        R_32F => Some(Element::F32),
        R_16BF => Some(Element::Bf16),
        _ => None,
    }
}

/// The product that the descriptors specify; `None` if the library does not support it.
fn product(description: &Description, layouts: [&Layout; 4], at: [u64; 4]) -> Option<Product> {
    let [a, b, c, d] = layouts;
    let taken = |layout: &Layout, transposed| {
        if transposed { [layout.columns, layout.rows] } else { [layout.rows, layout.columns] }
    };
    let ([m, k], [k_too, n]) = (taken(a, description.transposed[0]), taken(b, description.transposed[1]));
    let fits = k == k_too && [[c.rows, c.columns], [d.rows, d.columns]] == [[m, n]; 2] && m > 0 && n > 0 && k > 0;
    let strided = layouts.iter().all(|layout| layout.leading >= layout.rows as i64);
    let batched = layouts.iter().all(|layout| layout.batch == a.batch) && a.batch > 0;
    // Both operands have one type; the result has the same type, or f32.
    let typed = a.kind == b.kind && c.kind == d.kind && (d.kind == a.kind || d.kind == R_32F);
    let bias =
        description.has_bias().then_some(Some(description.bias_type.unwrap_or(d.kind)).filter(|&kind| kind == d.kind));
    if !fits || !strided || !batched || !typed || bias == Some(None) {
        return None;
    }
    let activation = activation(description, d)?;
    let matrix = |layout: &Layout, at, transposed| {
        Some(Matrix {
            at,
            element: element(layout.kind)?,
            leading: layout.leading as u64,
            stride: layout.stride,
            transposed,
        })
    };
    Some(Product {
        m,
        n,
        k,
        batch: a.batch as u64,
        alpha: 1.0,
        beta: 0.0,
        a: matrix(a, at[0], description.transposed[0])?,
        b: matrix(b, at[1], description.transposed[1])?,
        c: matrix(c, at[2], false)?,
        d: matrix(d, at[3], false)?,
        bias: bias.flatten().and_then(|kind| Some((description.bias, element(kind)?))),
        activation,
    })
}

/// The activation for a result of this layout; `None` if the library does not support it.
fn activation(description: &Description, result: &Layout) -> Option<Activation> {
    if !description.has_aux() {
        return matches!(description.epilogue, EPILOGUE_DEFAULT | EPILOGUE_BIAS).then_some(Activation::None);
    }
    let leading = description.aux_leading;
    let laid_out = leading % AUX_COLUMN == 0 && leading >= result.rows as i64 && result.batch == 1;
    if !settings().gelu || !laid_out || !description.aux.is_multiple_of(AUX_ALIGNMENT) {
        return None;
    }
    // The default type is that of the result.
    let (at, element, leading) = (description.aux, element(result.kind)?, leading as u64);
    let argument = Matrix { at, element, leading, stride: 0, transposed: false };
    Some(match description.epilogue {
        EPILOGUE_GELU_AUX_BIAS => Activation::Gelu(argument),
        _ => Activation::GeluGradient(argument),
    })
}

unsafe fn layouts<'a>(layouts: [*mut c_void; 4]) -> Option<[&'a Layout; 4]> {
    // SAFETY: `make` made them.
    let [a, b, c, d] = layouts.map(|layout| unsafe { layout.cast::<Layout>().as_ref() });
    Some([a?, b?, c?, d?])
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: *mut u64,
    description: *mut c_void,
    a: *mut c_void,
    b: *mut c_void,
    c: *mut c_void,
    d: *mut c_void,
    _preference: *mut c_void,
    asked: c_int,
    found: *mut c_void,
    count: *mut c_int,
) -> c_int {
    // SAFETY: everything was created above, and the caller has space for the requested results.
    unsafe {
        let Some(description) = description.cast::<Description>().as_ref() else { return INVALID_VALUE };
        let Some(layouts) = layouts([a, b, c, d]) else { return INVALID_VALUE };
        if asked < 1 || found.is_null() || count.is_null() {
            return INVALID_VALUE;
        }
        let good = product(description, layouts, [0; 4]).is_some();
        count.write(c_int::from(good));
        if !good {
            return NOT_SUPPORTED;
        }
        let mut algorithm = [0; 8];
        algorithm[0] = ALGORITHM;
        found.cast::<Heuristic>().write(Heuristic {
            algorithm,
            workspace: 0,
            state: SUCCESS,
            waves: 1.0,
            reserved: [0; 4],
        });
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmul(
    handle: *mut u64,
    description: *mut c_void,
    alpha: *const f32,
    a: u64,
    a_layout: *mut c_void,
    b: u64,
    b_layout: *mut c_void,
    beta: *const f32,
    c: u64,
    c_layout: *mut c_void,
    d: u64,
    d_layout: *mut c_void,
    algorithm: *const u64,
    _workspace: u64,
    _workspace_bytes: usize,
    stream: *mut c_void,
) -> c_int {
    // SAFETY: everything was made above; alpha and beta are the host's.
    let (product, chosen) = unsafe {
        let Some(description) = description.cast::<Description>().as_ref() else { return INVALID_VALUE };
        let Some(layouts) = layouts([a_layout, b_layout, c_layout, d_layout]) else { return INVALID_VALUE };
        if handle.is_null() || alpha.is_null() || beta.is_null() || !description.is_whole() {
            return INVALID_VALUE;
        }
        let product = product(description, layouts, [a, b, c, d]);
        (product.map(|product| Product { alpha: *alpha, beta: *beta, ..product }), algorithm.as_ref().copied())
    };
    if chosen.is_some_and(|mark| mark != ALGORITHM) {
        return INVALID_VALUE;
    }
    let Some(product) = product else { return NOT_SUPPORTED };
    match with(32, |engine| engine.enqueue(stream as u64, Work::Product(Box::new(product)))) {
        Ok(()) => SUCCESS,
        Err(Refusal::OutOfMemory) => ALLOC_FAILED,
        Err(Refusal::InvalidValue) => INVALID_VALUE,
        Err(_) => EXECUTION_FAILED,
    }
}
