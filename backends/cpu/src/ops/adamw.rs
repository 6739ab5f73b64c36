//! The norm of all gradients, and the fused AdamW update: 28 bytes of memory traffic a parameter, in one pass.

use assay_tensor::{AdamW, Array, Result};

use crate::device::Cpu;
use crate::memory::storage::{f32s, f32s_mut};
use crate::simd::instructions::simd;
use crate::threads::denormals::FlushGuard;
use crate::threads::split::{Disjoint, Threads};

/// Elements whose squares are added at a time; the totals of these are added in order.
const SPAN: usize = 16 * 1024;
/// Squares that are added side by side, so that none waits for the last.
const LANES: usize = 16;

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

simd! {
    /// The sum of the squares, in f64.
    fn sum_of_squares(values: &[f32]) -> f64 {
        let square = |value: f32| f64::from(value) * f64::from(value);
        let (groups, rest) = values.as_chunks::<LANES>();
        let mut sums = [0.0; LANES];
        for group in groups {
            for (sum, value) in sums.iter_mut().zip(group) {
                *sum += square(*value);
            }
        }
        sums.iter().sum::<f64>() + rest.iter().map(|value| square(*value)).sum::<f64>()
    }
}

/// The Euclidean norm of all gradients together.
pub(crate) fn global_norm(threads: &Threads, gradients: &[&[f32]]) -> f64 {
    let spans: Vec<&[f32]> = gradients.iter().flat_map(|gradient| gradient.chunks(SPAN)).collect();
    let mut sums = vec![0.0; spans.len()];
    let shared = Disjoint::new(&mut sums);
    threads.split_items(spans.len(), 1, 0.1 * SPAN as f64, |range| {
        // SAFETY: `split_items` gives disjoint ranges.
        let sums = unsafe { shared.part(range.clone()) };
        for (sum, span) in sums.iter_mut().zip(&spans[range]) {
            *sum = sum_of_squares(span);
        }
    });
    sums.iter().sum::<f64>().sqrt()
}

impl Cpu {
    /// Updates a parameter and its moments. What others hold on to is copied first, so that they keep what they had.
    pub(crate) fn update_parameter(&self, args: AdamW, arrays: [&mut Array; 3], grad: &Array) -> Result<()> {
        let _flushed = FlushGuard::here();
        let name = "adamw";
        let grad = f32s(name, grad)?;
        let [param, m, v] = arrays;
        for array in [&mut *param, &mut *m, &mut *v] {
            if f32s_mut(array).is_none() {
                let mut copy = self.take_block(name, &array.shape)?;
                copy.copy_from_slice(f32s(name, array)?);
                *array = self.f32_array(copy, &array.shape);
            }
        }
        if let (Some(param), Some(m), Some(v)) = (f32s_mut(param), f32s_mut(m), f32s_mut(v)) {
            update_elements(&self.threads, args, [param, m, v], grad);
        }
        Ok(())
    }
}

/// Updates a parameter and its moments in place.
fn update_elements(threads: &Threads, args: AdamW, [param, m, v]: [&mut [f32]; 3], grad: &[f32]) {
    let factors = Factors::new(args);
    threads.split_rows(grad.len(), 1.5, [(param, 1), (m, 1), (v, 1)], |range, [param, m, v]| {
        update_all(factors, param, &grad[range], m, v);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_counts_in_the_norm() {
        for length in [0, 1, LANES - 1, LANES, 3 * LANES + 5, SPAN, SPAN + 1, 3 * SPAN + 7] {
            let values: Vec<f32> = (0..length).map(|at| (at % 977) as f32 - 300.0).collect();
            let plain: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
            let norms = [1, 2, 3].map(|count| global_norm(&Threads::new(count).unwrap(), &[&values, &[], &values]));
            assert!((norms[0] - (2.0 * plain).sqrt()).abs() <= 1e-12 * norms[0], "{length}");
            assert!(norms.iter().all(|norm| norm.to_bits() == norms[0].to_bits()), "{length}");
        }
    }
}
