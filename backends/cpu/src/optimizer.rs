//! AdamW in one pass over a parameter, in place.

use assay_tensor::{AdamW, Array, Result};

use crate::cpu::Cpu;
use crate::parallel::Disjoint;
use crate::simd::simd;
use crate::store::{floats, make_unique};

/// The settings as the loop needs them.
#[derive(Clone, Copy)]
struct Factors {
    grad_scale: f32,
    beta1: f32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
    /// lr / (1 - beta1^step)
    rate: f32,
    /// 1 / (1 - beta2^step)
    unbias2: f32,
    eps: f32,
    /// 1 - lr weight_decay
    keep: f32,
}

impl Factors {
    fn of(args: AdamW) -> Factors {
        let (beta1, beta2) = args.betas;
        let step = args.step as f64;
        Factors {
            grad_scale: args.grad_scale as f32,
            beta1: beta1 as f32,
            rest1: (1.0 - beta1) as f32,
            beta2: beta2 as f32,
            rest2: (1.0 - beta2) as f32,
            rate: (args.lr / (1.0 - beta1.powf(step))) as f32,
            unbias2: (1.0 / (1.0 - beta2.powf(step))) as f32,
            eps: args.eps as f32,
            keep: (1.0 - args.lr * args.weight_decay) as f32,
        }
    }
}

impl Cpu {
    pub(crate) fn update(
        &self,
        param: &mut Array,
        grad: &Array,
        m: &mut Array,
        v: &mut Array,
        args: AdamW,
    ) -> Result<()> {
        let g = floats(grad)?;
        let p = make_unique(&self.recycler, param)?;
        let (m, v) = (make_unique(&self.recycler, m)?, make_unique(&self.recycler, v)?);
        let (ps, ms, vs) = (Disjoint::new(p), Disjoint::new(m), Disjoint::new(v));
        let factors = Factors::of(args);
        self.threads.split(g.len(), 64, 1.0, |range| {
            // SAFETY: the ranges of `split` are disjoint.
            let (p, m, v) = unsafe { (ps.part(range.clone()), ms.part(range.clone()), vs.part(range.clone())) };
            update(factors, p, &g[range], m, v);
        });
        Ok(())
    }
}

simd! {
    fn update(f: Factors, p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32]) {
        for (((p, &g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
            let g = g * f.grad_scale;
            *m = f.beta1.mul_add(*m, f.rest1 * g);
            *v = f.beta2.mul_add(*v, f.rest2 * g * g);
            let change = *m / ((*v * f.unbias2).sqrt() + f.eps);
            *p = f.rate.mul_add(-change, f.keep * *p);
        }
    }
}
