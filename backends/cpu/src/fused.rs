//! Which fused operations have a kernel of their own here, by name. All others run by their definition.

use assay_tensor::{Arguments, Array, Result};

use crate::device::Cpu;
use crate::ops::softmax;

/// A kernel of a fused operation.
pub(crate) type FusedKernel = fn(&Cpu, Arguments<'_>) -> Result<Vec<Array>>;

/// From the operation to its kernel.
pub(crate) static FUSED_KERNELS: [(&str, FusedKernel); 10] = [
    ("attend_token", Cpu::attend_token),
    ("diagonal_scan", Cpu::scan_states),
    ("diagonal_scan_backward", Cpu::scan_backward),
    ("heads", Cpu::split_heads),
    ("heads_backward", Cpu::join_heads),
    ("log_softmax", |cpu, call| cpu.by_rows(call, softmax::log_softmax)),
    ("log_softmax_backward", |cpu, call| cpu.by_rows_back(call, softmax::log_softmax_backward)),
    ("route_token", Cpu::route_token),
    ("softmax", |cpu, call| cpu.by_rows(call, softmax::softmax)),
    ("softmax_backward", |cpu, call| cpu.by_rows_back(call, softmax::softmax_backward)),
];

/// The names of the fused operations that have a kernel here.
pub fn fused_kernel_names() -> impl Iterator<Item = &'static str> {
    FUSED_KERNELS.iter().map(|(name, _)| *name)
}
