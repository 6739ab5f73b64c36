//! Matrix products by cuBLASLt, which thinks in columns: what lies in memory row by row is, to it, the transpose. So
//! c = a b is computed as c^T = b^T a^T: the sides are swapped and nothing is copied.
//!
//! Bias, GELU and its gradient are the library's epilogues `BIAS`, `GELU_AUX_BIAS` and `DGELU`. Its GELU is the tanh form
//! (PyTorch takes it for that: pull request 104061), and what it stores or reads beside the result, "aux", is the argument,
//! of the result's type unless said otherwise. Rows of it have to be multiples of 8 elements (cuBLAS's documentation of
//! `CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD`). Whether there is an algorithm at all is what the library says when it is asked.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use assay_gpu::{Address, DriverError, Element, Epilogue, Operand, Product};
use cudarc::cublaslt::sys::{self, cublasLtMatmulAlgo_t, cublasStatus_t, cudaDataType};

use crate::error::check_product as check_status;

/// The workspace that NVIDIA advises for Hopper, which is enough for every older device. One size for all products, so
/// that the choice of algorithms does not depend on what is free.
pub(crate) const WORKSPACE: usize = 32 << 20;

/// Whatever an algorithm is chosen by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    extents: [usize; 4],
    /// Of a, b and c: type, stride, batch stride, whether transposed, alignment.
    operands: [(bool, usize, usize, bool, u32); 3],
    /// The alignment of what is added, if anything is.
    base: Option<u32>,
    /// The kind of the epilogue, and the alignment of what it reads or writes beside bias and result.
    epilogue: (i32, u32),
}

/// What rows of GELU's argument are multiples of, in elements.
const AUX_ROW: usize = 8;
/// How its address has to be aligned, in bytes: as vectors are read and written.
const AUX_ALIGNMENT: u64 = 16;

/// The library's handle, and the algorithms that were chosen.
pub(crate) struct Products {
    handle: sys::cublasLtHandle_t,
    workspace: u64,
    /// None where the library has none for a shape.
    chosen: Mutex<BTreeMap<Shape, Option<cublasLtMatmulAlgo_t>>>,
}

impl Products {
    /// # Safety
    /// A context is current, in which `workspace` has [`WORKSPACE`] bytes, and both outlive what is made.
    pub(crate) unsafe fn new(workspace: u64) -> Result<Products, DriverError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: as the caller promises.
        check_status("cublasLtCreate", unsafe { sys::cublasLtCreate(&raw mut handle) })?;
        Ok(Products { handle, workspace, chosen: Mutex::new(BTreeMap::new()) })
    }

    /// # Safety
    /// The context is current, and the operands lie in its memory.
    pub(crate) unsafe fn launch(&self, product: &Product, stream: sys::cudaStream_t) -> Result<(), DriverError> {
        let Product { m, n, k, batch, .. } = *product;
        if m == 0 || n == 0 || batch == 0 {
            return Ok(());
        }
        if k == 0 {
            return Err(DriverError::Call { call: "cublasLtMatmul", reason: "a product over no elements".into() });
        }
        let plan = Plan::new(product)?;
        let Some(algorithm) = self.find_algorithm(product, &plan)? else {
            let reason = format!("no algorithm for the product {product:?}");
            return Err(DriverError::Call { call: "cublasLtMatmulAlgoGetHeuristic", reason });
        };
        let (alpha, beta) = (1f32, if product.base.is_some() { 1f32 } else { 0.0 });
        let base = product.base.unwrap_or(product.c.address).0 as *mut c_void;
        let pointer = |operand: &Operand| operand.address.0 as *mut c_void;
        // SAFETY: as the caller promises; the host's scalars are read before the call returns.
        let code = unsafe {
            sys::cublasLtMatmul(
                self.handle,
                plan.description.0,
                (&raw const alpha).cast(),
                pointer(&product.b),
                plan.left.0,
                pointer(&product.a),
                plan.right.0,
                (&raw const beta).cast(),
                base,
                plan.result.0,
                pointer(&product.c),
                plan.result.0,
                &raw const algorithm,
                self.workspace as *mut c_void,
                WORKSPACE,
                stream,
            )
        };
        check_status("cublasLtMatmul", code)
    }

    /// Whether the library has an algorithm for a product, with its epilogue.
    pub(crate) fn supports(&self, product: &Product) -> Result<bool, DriverError> {
        let Product { m, n, k, batch, c, epilogue, .. } = product;
        if let Epilogue::Gelu { argument, .. } | Epilogue::GeluGradient { argument } = epilogue {
            let rows = n.is_multiple_of(AUX_ROW) && c.stride == *n && *batch == 1;
            if m * n * k == 0 || !rows || !argument.0.is_multiple_of(AUX_ALIGNMENT) {
                return Ok(false);
            }
        }
        if let Some(known) = self.algorithms().get(&Shape::of(product)) {
            return Ok(known.is_some());
        }
        Ok(self.find_algorithm(product, &Plan::new(product)?)?.is_some())
    }

    fn algorithms(&self) -> MutexGuard<'_, BTreeMap<Shape, Option<cublasLtMatmulAlgo_t>>> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The algorithm for a product of this shape: the first of the library's list, determined once.
    fn find_algorithm(&self, product: &Product, plan: &Plan) -> Result<Option<cublasLtMatmulAlgo_t>, DriverError> {
        let shape = Shape::of(product);
        let mut chosen = self.algorithms();
        if let Some(algorithm) = chosen.get(&shape) {
            return Ok(*algorithm);
        }
        let preference = create_preference(&shape)?;
        let mut found = std::mem::MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed();
        let mut count = 0;
        // SAFETY: every description is whole, and there is room for the one requested result.
        let code = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                plan.description.0,
                plan.left.0,
                plan.right.0,
                plan.result.0,
                plan.result.0,
                preference.0,
                1,
                found.as_mut_ptr(),
                &raw mut count,
            )
        };
        let algorithm = match code {
            // SAFETY: the library has written one result.
            cublasStatus_t::CUBLAS_STATUS_SUCCESS if count > 0 => Some(unsafe { found.assume_init() }.algo),
            cublasStatus_t::CUBLAS_STATUS_SUCCESS | cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED => None,
            code => {
                let reason = format!("{code:?} for the product {product:?}");
                return Err(DriverError::Call { call: "cublasLtMatmulAlgoGetHeuristic", reason });
            }
        };
        chosen.insert(shape, algorithm);
        Ok(algorithm)
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        // SAFETY: it was created, and is destroyed once.
        unsafe { sys::cublasLtDestroy(self.handle) };
    }
}

impl Shape {
    fn of(product: &Product) -> Shape {
        let Product { m, n, k, batch, .. } = *product;
        let alignment = |address: Address| 1u32 << address.0.trailing_zeros().min(8);
        let operand = |operand: &Operand| {
            let Operand { address, element, stride, batch_stride, transposed } = *operand;
            (element == Element::Bf16, stride, batch_stride, transposed, alignment(address))
        };
        let epilogue = match product.epilogue {
            Epilogue::None | Epilogue::Bias(_) => 0,
            Epilogue::Gelu { argument, .. } | Epilogue::GeluGradient { argument } => alignment(argument),
        };
        Shape {
            extents: [m, n, k, batch],
            operands: [operand(&product.a), operand(&product.b), operand(&product.c)],
            base: product.base.map(alignment),
            epilogue: (epilogue_kind(product.epilogue) as i32, epilogue),
        }
    }
}

/// A description of the library, destroyed when it is dropped.
struct Made<T: Copy>(T, unsafe fn(T) -> cublasStatus_t);

impl<T: Copy> Drop for Made<T> {
    fn drop(&mut self) {
        // SAFETY: it was created by the function that belongs to this one, and is destroyed once.
        unsafe { (self.1)(self.0) };
    }
}

type Description = Made<sys::cublasLtMatmulDesc_t>;
type Layout = Made<sys::cublasLtMatrixLayout_t>;
type Preference = Made<sys::cublasLtMatmulPreference_t>;

/// A product in the library's terms.
struct Plan {
    description: Description,
    /// The first factor of c^T = b^T a^T, which is our b.
    left: Layout,
    right: Layout,
    result: Layout,
}

impl Plan {
    fn new(product: &Product) -> Result<Plan, DriverError> {
        let Product { m, n, k, batch, a, b, c, .. } = product;
        let extents = |rows: usize, columns: usize, transposed: bool| {
            if transposed { (columns, rows) } else { (rows, columns) }
        };
        Ok(Plan {
            description: create_description(product)?,
            left: create_layout(b, extents(*n, *k, b.transposed), *batch)?,
            right: create_layout(a, extents(*k, *m, a.transposed), *batch)?,
            result: create_layout(c, (*n, *m), *batch)?,
        })
    }
}

fn create_description(product: &Product) -> Result<Description, DriverError> {
    use sys::cublasLtMatmulDescAttributes_t as A;
    let mut made = std::ptr::null_mut();
    // True f32, not TF32; bf16 is accumulated in f32.
    let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
    // SAFETY: the place is for a description.
    let code = unsafe { sys::cublasLtMatmulDescCreate(&raw mut made, compute, cudaDataType::CUDA_R_32F) };
    check_status("cublasLtMatmulDescCreate", code)?;
    let made = Made(made, sys::cublasLtMatmulDescDestroy);
    let set = |attribute, value: *const c_void, bytes| {
        // SAFETY: every value below has the type that its attribute has.
        let code = unsafe { sys::cublasLtMatmulDescSetAttribute(made.0, attribute, value, bytes) };
        check_status("cublasLtMatmulDescSetAttribute", code)
    };
    for (attribute, transposed) in
        [(A::CUBLASLT_MATMUL_DESC_TRANSA, product.b.transposed), (A::CUBLASLT_MATMUL_DESC_TRANSB, product.a.transposed)]
    {
        // CUBLAS_OP_N and CUBLAS_OP_T.
        let operation = i32::from(transposed);
        set(attribute, (&raw const operation).cast(), size_of::<i32>())?;
    }
    let epilogue = epilogue_kind(product.epilogue) as i32;
    set(A::CUBLASLT_MATMUL_DESC_EPILOGUE, (&raw const epilogue).cast(), size_of::<i32>())?;
    if let Epilogue::Bias(bias) | Epilogue::Gelu { bias, .. } = product.epilogue {
        set(A::CUBLASLT_MATMUL_DESC_BIAS_POINTER, (&raw const bias.0).cast(), size_of::<u64>())?;
        let kind = data_type(product.c.element) as i32;
        set(A::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, (&raw const kind).cast(), size_of::<i32>())?;
    }
    if let Epilogue::Gelu { argument, .. } | Epilogue::GeluGradient { argument } = product.epilogue {
        let row = product.n as i64;
        set(A::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, (&raw const argument.0).cast(), size_of::<u64>())?;
        set(A::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (&raw const row).cast(), size_of::<i64>())?;
    }
    Ok(made)
}

/// An epilogue in the library's terms.
fn epilogue_kind(epilogue: Epilogue) -> sys::cublasLtEpilogue_t {
    use sys::cublasLtEpilogue_t as E;
    match epilogue {
        Epilogue::None => E::CUBLASLT_EPILOGUE_DEFAULT,
        Epilogue::Bias(_) => E::CUBLASLT_EPILOGUE_BIAS,
        Epilogue::Gelu { .. } => E::CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        Epilogue::GeluGradient { .. } => E::CUBLASLT_EPILOGUE_DGELU,
    }
}

/// Elements in the library's terms.
fn data_type(element: Element) -> cudaDataType {
    match element {
        Element::F32 => cudaDataType::CUDA_R_32F,
        Element::Bf16 => cudaDataType::CUDA_R_16BF,
    }
}

/// A matrix as it lies in memory, in columns: `extents` are the row of ours, and how many rows there are.
fn create_layout(operand: &Operand, extents: (usize, usize), batch: usize) -> Result<Layout, DriverError> {
    use sys::cublasLtMatrixLayoutAttribute_t as A;
    let (rows, columns) = extents;
    let kind = data_type(operand.element);
    // The stride of a single row means nothing, and may be anything.
    let leading = if columns == 1 { operand.stride.max(rows) } else { operand.stride };
    let mut made = std::ptr::null_mut();
    // SAFETY: the place is for a layout.
    let code =
        unsafe { sys::cublasLtMatrixLayoutCreate(&raw mut made, kind, rows as u64, columns as u64, leading as i64) };
    check_status("cublasLtMatrixLayoutCreate", code)?;
    let made = Made(made, sys::cublasLtMatrixLayoutDestroy);
    if batch > 1 {
        let (count, stride) = (batch as i32, operand.batch_stride as i64);
        // SAFETY: both values have the types that their attributes have.
        unsafe {
            let set = |attribute, value: *const c_void, bytes| {
                let code = sys::cublasLtMatrixLayoutSetAttribute(made.0, attribute, value, bytes);
                check_status("cublasLtMatrixLayoutSetAttribute", code)
            };
            set(A::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, (&raw const count).cast(), size_of::<i32>())?;
            set(A::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, (&raw const stride).cast(), size_of::<i64>())?;
        }
    }
    Ok(made)
}

/// What an algorithm may need: the workspace, no sums in the order in which blocks happen to end, and no more alignment
/// than there is.
fn create_preference(shape: &Shape) -> Result<Preference, DriverError> {
    use sys::cublasLtMatmulPreferenceAttributes_t as A;
    let mut made = std::ptr::null_mut();
    // SAFETY: the place is for a preference.
    check_status("cublasLtMatmulPreferenceCreate", unsafe { sys::cublasLtMatmulPreferenceCreate(&raw mut made) })?;
    let made = Made(made, sys::cublasLtMatmulPreferenceDestroy);
    let set = |attribute, value: *const c_void, bytes| {
        // SAFETY: every value below has the type that its attribute has.
        let code = unsafe { sys::cublasLtMatmulPreferenceSetAttribute(made.0, attribute, value, bytes) };
        check_status("cublasLtMatmulPreferenceSetAttribute", code)
    };
    let workspace = WORKSPACE as u64;
    set(A::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (&raw const workspace).cast(), size_of::<u64>())?;
    let schemes = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32
        | sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE as u32;
    set(A::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, (&raw const schemes).cast(), size_of::<u32>())?;
    let [a, b, d] = shape.operands.map(|(.., alignment)| alignment);
    let c = shape.base.unwrap_or(d);
    for (attribute, alignment) in [
        (A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b),
        (A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a),
        (A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c),
        (A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d),
    ] {
        set(attribute, (&raw const alignment).cast(), size_of::<u32>())?;
    }
    Ok(made)
}
