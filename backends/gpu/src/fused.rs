//! Which fused operations have a kernel of their own here, by name. All others run by their definition.

use assay_tensor::{Arguments, Array, Result};

use crate::gpu::Gpu;

/// A kernel of a fused operation.
pub(crate) type FusedKernel = fn(&Gpu, Arguments<'_>) -> Result<Vec<Array>>;

/// From the operation to its kernel.
pub(crate) static FUSED_KERNELS: [(&str, FusedKernel); 6] = [
    ("diagonal_scan", Gpu::scan_states),
    ("diagonal_scan_backward", Gpu::scan_backward),
    ("log_softmax", |gpu, call| gpu.normalise_by("log_softmax", call)),
    ("log_softmax_backward", |gpu, call| gpu.normalise_by("log_softmax_backward", call)),
    ("softmax", |gpu, call| gpu.normalise_by("softmax", call)),
    ("softmax_backward", |gpu, call| gpu.normalise_by("softmax_backward", call)),
];
