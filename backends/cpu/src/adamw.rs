//! The fused AdamW update: 28 bytes of memory traffic a parameter, in one pass.

use assay_tensor::AdamW;

use crate::parallel::Threads;
use crate::simd::simd;

/// The settings as the loop uses them: what does not depend on the element is worked out in f64 once.
#[derive(Debug, Clone, Copy)]
struct Factors {
    grad: f32,
    beta1: f32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
    /// 1 / (1 - beta1^step)
    unbias1: f32,
    unbias2: f32,
    eps: f32,
    lr: f32,
    /// 1 - lr weight_decay
    keep: f32,
}

impl Factors {
    fn new(args: AdamW) -> Factors {
        let (beta1, beta2) = args.betas;
        let step = args.step as f64;
        Factors {
            grad: args.grad_scale as f32,
            beta1: beta1 as f32,
            rest1: (1.0 - beta1) as f32,
            beta2: beta2 as f32,
            rest2: (1.0 - beta2) as f32,
            unbias1: (1.0 / (1.0 - beta1.powf(step))) as f32,
            unbias2: (1.0 / (1.0 - beta2.powf(step))) as f32,
            eps: args.eps as f32,
            lr: args.lr as f32,
            keep: (1.0 - args.lr * args.weight_decay) as f32,
        }
    }
}

simd! {
    fn update_all(f: Factors, param: &mut [f32], grad: &[f32], m: &mut [f32], v: &mut [f32]) {
        for (((param, grad), m), v) in param.iter_mut().zip(grad).zip(m).zip(v) {
            let g = *grad * f.grad;
            *m = f.beta1.mul_add(*m, f.rest1 * g);
            *v = f.beta2.mul_add(*v, f.rest2 * (g * g));
            let change = (*m * f.unbias1) / ((*v * f.unbias2).sqrt() + f.eps);
            *param = f.keep.mul_add(*param, -f.lr * change);
        }
    }
}

/// Updates a parameter and its moments in place.
pub(crate) fn update(threads: &Threads, args: AdamW, [param, m, v]: [&mut [f32]; 3], grad: &[f32]) {
    let factors = Factors::new(args);
    threads.rows(grad.len(), 1.5, [(param, 1), (m, 1), (v, 1)], |range, [param, m, v]| {
        update_all(factors, param, &grad[range], m, v);
    });
}
