//! The fused AdamW update.

use std::sync::Arc;

use assay_tensor::{AdamW, Array, DType, Result};

use crate::driver::Argument;
use crate::gpu::{Gpu, count};
use crate::library::Topic;
use crate::storage::Buffer;

const NAME: &str = "adamw";

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
}
