//! Attention of bf16 operands and its gradient, on tensor cores: `kernels/attention_bf16.cu`, and for the forward pass on NVIDIA's
//! compute capability 9.0 `kernels/attention_warpgroup.cu`.
//!
//! For heads of up to 128 columns, on devices that multiply bf16 by tiles. On others the operands are widened, and the kernels of
//! [`crate::attention`] take them.

use assay_tensor::{Array, AttentionGradient, AttentionKind, AttentionOptions, DType, Result, Shape};

use crate::attention::{Call, NAME, Saved};
use crate::driver::{Architecture, DeviceProperties, Launch};
use crate::gpu::{Gpu, block_count, count_argument};
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

/// Dynamic shared memory of a block of `attention_warpgroup_WIDTH`, in bytes: 64 queries, and two tiles each of 64 keys and values.
const fn warpgroup_shared(width: usize) -> usize {
    (1 + 2 + 2) * 64 * width * size_of::<u16>()
}

/// Whether the kernel for warpgroups takes heads of this width: narrower ones would leave half of its columns empty.
fn suits_warpgroups(properties: &DeviceProperties, width: usize) -> bool {
    properties.architecture == Architecture::Cuda(9, 0) && width >= 64 && properties.shared >= warpgroup_shared(width)
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

    fn widen_to_f32(&self, x: &Array) -> Result<Array> {
        self.convert_dtype(x, DType::F32)
    }

    pub(crate) fn attend_bf16(
        &self,
        q: &Array,
        k: &Array,
        v: &Array,
        options: AttentionOptions,
    ) -> Result<(Array, Array)> {
        let call = Call::from_operands(q, k, options)?;
        let Some(width) = self.bf16_width(&call) else {
            return self.compute_attention(
                &self.widen_to_f32(q)?,
                &self.widen_to_f32(k)?,
                &self.widen_to_f32(v)?,
                options,
            );
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
            if suits_warpgroups(self.driver.properties(), width) {
                let (kernel, shared) = (format!("attention_warpgroup_{width}"), warpgroup_shared(width) as u32);
                let launch = Launch { shared, ..launch };
                self.launch_kernel(NAME, (Topic::AttentionWarpgroup, &kernel), launch, &arguments)?;
            } else {
                self.launch_kernel(
                    NAME,
                    (Topic::AttentionBf16, &format!("attention_bf16_{width}")),
                    launch,
                    &arguments,
                )?;
            }
        }
        Ok((out.into_array(&q.shape), lse.into_array(&rows)))
    }

    /// The gradient of the result is rounded on its way into the products.
    pub(crate) fn attend_bf16_backward(
        &self,
        saved: Saved<'_>,
        options: AttentionOptions,
    ) -> Result<AttentionGradient> {
        let Saved { q, k, v, .. } = saved;
        let call = Call::from_operands(q, k, options)?;
        let Some(width) = self.bf16_width(&call) else {
            let (q, k, v) = (self.widen_to_f32(q)?, self.widen_to_f32(k)?, self.widen_to_f32(v)?);
            return self.attend_backward(Saved { q: &q, k: &k, v: &v, ..saved }, options);
        };
        let [dq, dk, dv] = [q, k, v].map(|x| self.allocate_f32(NAME, &x.shape));
        let (dq, dk, dv) = (dq?, dk?, dv?);
        if call.heads * call.tq == 0 {
            self.zero_buffer(NAME, &dk)?;
            self.zero_buffer(NAME, &dv)?;
        } else {
            self.backward_bf16(call, width, saved, [&dq, &dk, &dv])?;
        }
        Ok(AttentionGradient { q: dq.into_array(&q.shape), k: dk.into_array(&k.shape), v: dv.into_array(&v.shape) })
    }

    fn backward_bf16(&self, call: Call, width: usize, saved: Saved<'_>, [dq, dk, dv]: [&Buffer; 3]) -> Result<()> {
        let rows = call.heads * call.tq;
        let (inner, grad) =
            (self.allocate_scratch(NAME, rows)?, self.allocate_buffer(NAME, &saved.grad.shape, DType::Bf16)?);
        let (from, out) = (self.f32_pointer(NAME, saved.grad)?, self.f32_pointer(NAME, saved.out)?);
        let arguments = [inner.pointer(), grad.pointer(), from, out, count_argument(rows), count_argument(call.d)];
        let launch = self.row_grid(NAME, rows, call.d)?;
        self.launch_kernel(NAME, (Topic::AttentionBf16, "attention_bf16_inner"), launch, &arguments)?;
        let mut operands = Vec::with_capacity(11);
        for x in [saved.q, saved.k, saved.v] {
            operands.push(self.typed_buffer(NAME, x, DType::Bf16)?.pointer());
        }
        operands.extend([grad.pointer(), self.f32_pointer(NAME, saved.lse)?, inner.pointer()]);
        operands.extend(call.size_arguments()?);
        let start = |kind: &str, results: &[&Buffer], length: usize| {
            let arguments: Vec<_> = results.iter().map(|to| to.pointer()).chain(operands.iter().copied()).collect();
            let launch = self.wave_grid(&call, length, 16 * WAVES)?;
            self.launch_kernel(
                NAME,
                (Topic::AttentionBf16, &format!("attention_bf16_{kind}_{width}")),
                launch,
                &arguments,
            )
        };
        start("keys", &[dk, dv], call.tk)?;
        start("queries", &[dq], call.tq)
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
        let suits = |major, minor, width| suits_warpgroups(&properties(Architecture::Cuda(major, minor), 32), width);
        assert_eq!([suits(9, 0, 64), suits(9, 0, 32), suits(8, 0, 64), suits(10, 0, 64)], [true, false, false, false]);
        assert!(!suits(9, 0, 128), "a device with 48 KiB of shared memory for a block has no room for wide heads");
        assert!(!hip("gfx1100", 32) && !hip("gfx908", 64) && !hip("gfx942", 32));
    }
}
