//! The norm of all gradients, and the fused AdamW update.

use std::sync::Arc;

use assay_tensor::{AdamW, Array, DType, Result, Shape, Update};

use crate::driver::{Argument, Launch};
use crate::gpu::{Gpu, THREADS, block_count, count};
use crate::library::Topic;
use crate::storage::Buffer;

const NAME: &str = "adamw";
/// Elements whose squares a block adds, as in `adamw.cu`.
const SPAN: usize = 16_384;

impl Gpu {
    /// Copies what other handles hold on to, so that they keep what they had.
    fn own(&self, x: &mut Array) -> Result<()> {
        if Arc::get_mut(&mut x.buffer).is_some() {
            return Ok(());
        }
        let from = self.typed(NAME, x, DType::F32)?;
        let copy = self.take(NAME, &x.shape)?;
        if let (Some(from), Some(to)) = (from.address(), copy.address()) {
            self.call(NAME, self.driver.copy(to, from, copy.bytes()))?;
        }
        *x = copy.shaped(&x.shape);
        Ok(())
    }

    /// Updates a parameter and its moments in place.
    pub(crate) fn update(&self, [param, m, v]: [&mut Array; 3], grad: &Array, args: AdamW) -> Result<()> {
        let g = self.f32s(NAME, grad)?;
        self.own(param)?;
        self.own(m)?;
        self.own(v)?;
        if grad.numel() == 0 {
            return Ok(());
        }
        let (beta1, beta2) = args.betas;
        let step = args.step as f64;
        let factors = [
            args.grad_scale,
            beta1,
            1.0 - beta1,
            beta2,
            1.0 - beta2,
            1.0 / (1.0 - beta1.powf(step)),
            1.0 / (1.0 - beta2.powf(step)),
            args.eps,
            args.lr,
            1.0 - args.lr * args.weight_decay,
        ];
        let state = |x: &Array| self.typed(NAME, x, DType::F32).map(Buffer::pointer);
        let mut arguments = vec![state(param)?, g, state(m)?, state(v)?];
        arguments.extend(factors.map(|factor| Argument::F32(factor as f32)));
        arguments.push(count(grad.numel()));
        self.launch(NAME, (Topic::AdamW, NAME), self.line(grad.numel()), &arguments)
    }

    /// Updates several parameters and their moments in place, by factors that are in the device's memory.
    pub(crate) fn update_all(
        &self,
        updates: Vec<Update<'_, Array>>,
        args: AdamW,
        factors: &Array,
        clip: &Array,
    ) -> Result<()> {
        let (factors, clip) = (self.f32s(NAME, factors)?, self.f32s(NAME, clip)?);
        let (beta1, beta2) = args.betas;
        let fixed = [beta1, 1.0 - beta1, beta2, 1.0 - beta2, args.eps].map(|factor| Argument::F32(factor as f32));
        for Update { param, grad, m, v, decays } in updates {
            let g = self.f32s(NAME, grad)?;
            self.own(param)?;
            self.own(m)?;
            self.own(v)?;
            let n = grad.numel();
            if n > 0 {
                let state = |x: &Array| self.typed(NAME, x, DType::F32).map(Buffer::pointer);
                let mut arguments = vec![state(param)?, g, state(m)?, state(v)?, factors, clip];
                arguments.extend(fixed);
                arguments.extend([Argument::U32(u32::from(decays)), count(n)]);
                self.launch(NAME, (Topic::AdamW, "adamw_at"), self.line(n), &arguments)?;
            }
        }
        Ok(())
    }

    /// The norm of all gradients together, and the factor that brings it down to the limit.
    pub(crate) fn norm(&self, gradients: &[&Array], limit: Option<f64>) -> Result<Array> {
        let name = "clip";
        let blocks: Vec<usize> = gradients.iter().map(|gradient| gradient.numel().div_ceil(SPAN)).collect();
        let all: usize = blocks.iter().sum();
        // Sums in f64, each in the place of two f32.
        let parts = self.scratch(name, 2 * all.max(1))?;
        let mut first = 0;
        for (gradient, blocks) in gradients.iter().zip(blocks) {
            let x = self.f32s(name, gradient)?;
            if blocks > 0 {
                let grid = [block_count(name, blocks)?, 1, 1];
                let launch = Launch { grid, block: [THREADS, 1, 1], shared: 0 };
                let arguments = [parts.pointer_at(2 * first), x, count(gradient.numel())];
                self.launch(name, (Topic::AdamW, "squares"), launch, &arguments)?;
            }
            first += blocks;
        }
        let shape = Shape::from(2);
        let y = self.take(name, &shape)?;
        let launch = Launch { grid: [1, 1, 1], block: [THREADS, 1, 1], shared: 0 };
        let limit = Argument::U64(limit.unwrap_or(f64::INFINITY).to_bits());
        self.launch(name, (Topic::AdamW, name), launch, &[y.pointer(), parts.pointer(), count(all), limit])?;
        Ok(y.shaped(shape))
    }
}
