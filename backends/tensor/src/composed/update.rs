//! Composed forms of an update of all parameters: the norm of their gradients, and AdamW on each.

use crate::args::{AdamW, Update};
use crate::array::Array;
use crate::dtype::{DType, HostData};
use crate::error::Result;
use crate::kernels::Kernels;
use crate::shape::Shape;

pub(crate) fn clip<K: Kernels + ?Sized>(k: &K, gradients: &[&Array], limit: Option<f64>) -> Result<Array> {
    let mut sum = 0.0;
    for gradient in gradients {
        sum += match k.download(gradient)? {
            HostData::F32(values) => sum_of_squares(&values),
            other => other.to_f64().iter().map(|value| value * value).sum(),
        };
    }
    let norm = sum.sqrt();
    let dtype = gradients.first().map_or(DType::F32, |gradient| gradient.dtype);
    k.upload(HostData::from_f64(&[norm, clip_factor(norm, limit)], dtype), &Shape::from(2))
}

/// The factor that brings a norm down to `limit`: 1 where it is not above that.
pub fn clip_factor(norm: f64, limit: Option<f64>) -> f64 {
    limit.filter(|limit| norm > *limit).map_or(1.0, |limit| limit / norm)
}

pub(crate) fn adamw_all<K: Kernels + ?Sized>(
    k: &K,
    updates: Vec<Update<'_, Array>>,
    args: AdamW,
    clip: &Array,
) -> Result<()> {
    let grad_scale = k.download(clip)?.to_f64().get(1).copied().unwrap_or(1.0);
    for Update { param, grad, m, v, decays } in updates {
        let weight_decay = if decays { args.weight_decay } else { 0.0 };
        k.adamw(param, grad, m, v, AdamW { weight_decay, grad_scale, ..args })?;
    }
    Ok(())
}

/// The sum of the squares, in f64. One sum would wait for each addition; eight that are added in the end need not.
fn sum_of_squares(values: &[f32]) -> f64 {
    let square = |value: f32| f64::from(value) * f64::from(value);
    let (eights, rest) = values.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for eight in eights {
        for (sum, value) in sums.iter_mut().zip(eight) {
            *sum += square(*value);
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|value| square(*value)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_counts_in_the_norm() {
        for length in [0, 1, 7, 8, 9, 40, 1003] {
            let values: Vec<f32> = (0..length).map(|at| at as f32 - 3.0).collect();
            let plain: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
            assert!((sum_of_squares(&values) - plain).abs() <= 1e-9 * plain, "{length}");
        }
    }
}
