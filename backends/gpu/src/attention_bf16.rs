//! Attention of bf16 operands and its gradient, on tensor cores: `kernels/attention_bf16.cu`, and on NVIDIA's compute capability 9.0
//! `kernels/attention_warpgroup.cu`.
//!
//! For heads of up to 128 columns, on devices that multiply bf16 by tiles. On others the operands are widened, and the kernels of
//! [`crate::attention`] take them.

use assay_tensor::{Array, Attention, AttentionKind, DType, Result, Shape};

use crate::attention::{Call, NAME, Saved};
use crate::driver::{Architecture, Argument, DeviceProperties, Launch};
use crate::gpu::{Gpu, THREADS, block_count, count_argument};
use crate::library::Topic;
use crate::storage::Buffer;

/// Waves of a block, each of which has 16 rows of a tile.
const WAVES: usize = 4;

/// Whether the device has the instructions of `kernels/fragments.h`.
fn multiplies_bf16(properties: &DeviceProperties) -> bool {
    match &properties.architecture {
        Architecture::Cuda(major, _) => *major >= 8 && properties.wave == 32,
        // The target may have features behind it: `gfx90a:sramecc+:xnack-`.
        Architecture::Hip(target) => {
            let name = target.split(':').next().unwrap_or_default();
            ["gfx90a", "gfx942"].contains(&name) && properties.wave == 64
        }
    }
}

/// Lanes that share a row in `attention_bf16_inner`.
const ROW_LANES: u32 = 16;
/// Rows of a tile of the kernels for warpgroups.
const TILE: usize = 64;

/// Dynamic shared memory of a block of `attention_warpgroup_WIDTH`, in bytes: a tile of queries, and two each of keys and values.
const fn forward_shared(width: usize) -> usize {
    (1 + 2 + 2) * TILE * width * size_of::<u16>()
}

/// The same of the gradient's two kernels: a tile each of two operands, two tiles each of the others, and twice the log-sum-exps and the
/// sums of a tile of queries.
const fn gradient_shared(width: usize) -> usize {
    (2 + 4) * TILE * width * size_of::<u16>() + 2 * 2 * TILE * size_of::<f32>()
}

/// Whether the kernels for warpgroups take heads of `columns` columns, for which kernels of `width` are compiled: narrower ones would leave
/// half of their columns empty, and rows are copied in parts of 8 columns.
fn suits_warpgroups(properties: &DeviceProperties, columns: usize, width: usize) -> bool {
    let is_hopper = properties.architecture == Architecture::Cuda(9, 0);
    is_hopper && width >= 64 && columns.is_multiple_of(8) && properties.shared >= gradient_shared(width)
}

/// The width that the kernels are compiled for, where there is one.
fn kernel_width(call: &Call) -> Option<usize> {
    match call.options.kind {
        AttentionKind::Flash if call.d > 0 && call.options.scale > 0.0 => {
            [32, 64, 128].into_iter().find(|&width| call.d <= width)
        }
        _ => None,
    }
}

impl Gpu {
    /// What [`kernel_width`] says, on devices that have the instructions.
    fn bf16_width(&self, call: &Call) -> Option<usize> {
        kernel_width(call).filter(|_| multiplies_bf16(self.driver.properties()))
    }

    /// A block for each tile of `rows` of `length` rows of each head.
    fn wave_grid(&self, call: &Call, length: usize, rows: usize) -> Result<Launch> {
        let blocks = block_count(NAME, call.heads * length.div_ceil(rows))?;
        Ok(Launch { grid: [blocks, 1, 1], block: [WAVES as u32 * self.driver.properties().wave, 1, 1], shared: 0 })
    }

    /// Launches a kernel of [`Topic::AttentionWarpgroup`], which needs so much shared memory, or where the device or the heads do not suit
    /// it, of [`Topic::AttentionBf16`].
    fn launch_bf16(
        &self,
        launch: Launch,
        call: &Call,
        (kind, width, shared): (&str, usize, usize),
        arguments: &[Argument],
    ) -> Result<()> {
        let (topic, name, shared) = if suits_warpgroups(self.driver.properties(), call.d, width) {
            (Topic::AttentionWarpgroup, "warpgroup", shared as u32)
        } else {
            (Topic::AttentionBf16, "bf16", 0)
        };
        let kernel = format!("attention_{name}_{kind}{width}");
        self.launch_kernel(NAME, (topic, &kernel), Launch { shared, ..launch }, arguments)
    }

    fn widen_to_f32(&self, x: &Array) -> Result<Array> {
        self.convert_dtype(x, DType::F32)
    }

    pub(crate) fn attend_bf16(&self, of: Attention<'_>) -> Result<Vec<Array>> {
        let Attention { q, k, v, options } = of;
        let call = Call::from_operands(q, k, options)?;
        let Some(width) = self.bf16_width(&call) else {
            let (q, k, v) = (self.widen_to_f32(q)?, self.widen_to_f32(k)?, self.widen_to_f32(v)?);
            return self.compute_attention(Attention { q: &q, k: &k, v: &v, options });
        };
        let rows = Shape::from(&q.dims()[..3]);
        let (out, lse) = (self.allocate_f32(NAME, &q.shape)?, self.allocate_f32(NAME, &rows)?);
        if rows.numel() > 0 {
            let mut arguments = vec![out.pointer(), lse.pointer()];
            for x in [q, k, v] {
                arguments.push(self.typed_buffer(NAME, x, DType::Bf16)?.pointer());
            }
            arguments.extend(call.size_arguments()?);
            let launch = self.wave_grid(&call, call.tq, 16 * WAVES)?;
            self.launch_bf16(launch, &call, ("", width, forward_shared(width)), &arguments)?;
        }
        Ok(vec![out.into_array(&q.shape), lse.into_array(&rows)])
    }

    /// The gradient of the result is rounded on its way into the products.
    pub(crate) fn attend_bf16_backward(&self, saved: Saved<'_>) -> Result<Vec<Array>> {
        let Attention { q, k, v, options } = saved.of;
        let call = Call::from_operands(q, k, options)?;
        let Some(width) = self.bf16_width(&call) else {
            let (q, k, v) = (self.widen_to_f32(q)?, self.widen_to_f32(k)?, self.widen_to_f32(v)?);
            return self.attend_backward(Saved { of: Attention { q: &q, k: &k, v: &v, options }, ..saved });
        };
        let [dq, dk, dv] = [q, k, v].map(|x| self.allocate_f32(NAME, &x.shape));
        let (dq, dk, dv) = (dq?, dk?, dv?);
        if call.heads * call.tq == 0 {
            self.zero_buffer(NAME, &dk)?;
            self.zero_buffer(NAME, &dv)?;
        } else {
            self.backward_bf16(call, width, saved, [&dq, &dk, &dv])?;
        }
        Ok(vec![dq.into_array(&q.shape), dk.into_array(&k.shape), dv.into_array(&v.shape)])
    }

    fn backward_bf16(&self, call: Call, width: usize, saved: Saved<'_>, [dq, dk, dv]: [&Buffer; 3]) -> Result<()> {
        let rows = call.heads * call.tq;
        let (inner, grad) =
            (self.allocate_scratch(NAME, rows)?, self.allocate_buffer(NAME, &saved.grad.shape, DType::Bf16)?);
        let (from, out) = (self.f32_pointer(NAME, saved.grad)?, self.f32_pointer(NAME, saved.out)?);
        let arguments = [inner.pointer(), grad.pointer(), from, out, count_argument(rows), count_argument(call.d)];
        let blocks = block_count(NAME, rows.div_ceil((THREADS / ROW_LANES) as usize))?;
        let launch = Launch { grid: [blocks, 1, 1], block: [THREADS, 1, 1], shared: 0 };
        self.launch_kernel(NAME, (Topic::AttentionBf16, "attention_bf16_inner"), launch, &arguments)?;
        let mut operands = Vec::with_capacity(11);
        for x in [saved.of.q, saved.of.k, saved.of.v] {
            operands.push(self.typed_buffer(NAME, x, DType::Bf16)?.pointer());
        }
        operands.extend([grad.pointer(), self.f32_pointer(NAME, saved.lse)?, inner.pointer()]);
        operands.extend(call.size_arguments()?);
        let start = |kind: &str, results: &[&Buffer], length: usize| {
            let arguments: Vec<_> = results.iter().map(|to| to.pointer()).chain(operands.iter().copied()).collect();
            let launch = self.wave_grid(&call, length, 16 * WAVES)?;
            self.launch_bf16(launch, &call, (kind, width, gradient_shared(width)), &arguments)
        };
        start("keys_", &[dk, dv], call.tk)?;
        start("queries_", &[dq], call.tq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(architecture: Architecture, wave: u32) -> DeviceProperties {
        let text = String::new;
        let (name, driver, compiler) = (text(), text(), text());
        DeviceProperties { name, architecture, driver, compiler, wave, multiprocessors: 1, shared: 49_152, memory: 0 }
    }

    #[test]
    fn only_devices_with_the_instructions_take_bf16() {
        let cuda = |major, minor| multiplies_bf16(&properties(Architecture::Cuda(major, minor), 32));
        assert_eq!([cuda(7, 5), cuda(8, 0), cuda(9, 0), cuda(12, 0)], [false, true, true, true]);
        let hip = |target: &str, wave| multiplies_bf16(&properties(Architecture::Hip(target.into()), wave));
        assert!(hip("gfx90a:sramecc+:xnack-", 64) && hip("gfx942", 64));
        let hopper = |shared| DeviceProperties { shared, ..properties(Architecture::Cuda(9, 0), 32) };
        let suits = |columns, width| suits_warpgroups(&hopper(232_448), columns, width);
        assert_eq!([suits(64, 64), suits(72, 128), suits(32, 32), suits(60, 64)], [true, true, false, false]);
        let older = properties(Architecture::Cuda(8, 0), 32);
        assert!(!suits_warpgroups(&DeviceProperties { shared: 232_448, ..older }, 64, 64));
        assert!(
            !suits_warpgroups(&hopper(49_152), 128, 128),
            "a device with 48 KiB of shared memory for a block has no room for wide heads"
        );
        assert!(!hip("gfx1100", 32) && !hip("gfx908", 64) && !hip("gfx942", 32));
    }
}
