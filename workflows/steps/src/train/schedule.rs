//! The learning rate of each step.

use std::f64::consts::PI;

use super::config::{AdamWConfig, Schedule};

/// The learning rate of `step`, which counts from 1 to `steps`.
///
/// During the warm-up of W steps it is `lr * step / W`. After it, with p the fraction of the remaining steps before
/// `step`, it is `lr`, `lr * (1 - p)` or `lr * (1 + cos(pi p)) / 2`; it is above zero in the last step.
#[must_use]
pub fn learning_rate(config: &AdamWConfig, step: u64, steps: u64) -> f64 {
    let warmup = config.warmup_steps;
    if step < warmup {
        return config.lr * step as f64 / warmup as f64;
    }
    let first = warmup.max(1);
    let share = (step - first) as f64 / (steps + 1).saturating_sub(first).max(1) as f64;
    match config.schedule {
        Schedule::Constant => config.lr,
        Schedule::Linear => config.lr * (1.0 - share),
        Schedule::Cosine => config.lr * 0.5 * (1.0 + (PI * share).cos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(schedule: Schedule, warmup_steps: u64, steps: u64) -> Vec<f64> {
        let config = AdamWConfig {
            lr: 2.0,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.0,
            schedule,
            warmup_steps,
            clip_norm: None,
        };
        (1..=steps).map(|step| learning_rate(&config, step, steps)).collect()
    }

    #[test]
    fn the_rate_rises_then_falls() {
        assert_eq!(rates(Schedule::Constant, 4, 6), [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]);
        assert_eq!(rates(Schedule::Linear, 2, 5), [1.0, 2.0, 1.5, 1.0, 0.5]);
        assert_eq!(rates(Schedule::Linear, 0, 4), [2.0, 1.5, 1.0, 0.5]);
        let cosine = rates(Schedule::Cosine, 1, 4);
        assert_eq!(cosine[0], 2.0);
        assert!((cosine[2] - 1.0).abs() < 1e-12, "half way through it is half: {cosine:?}");
        assert!(cosine.windows(2).all(|pair| pair[0] > pair[1]) && cosine[3] > 0.0);
    }

    #[test]
    fn a_warm_up_as_long_as_training_ends_at_the_top() {
        assert_eq!(rates(Schedule::Cosine, 3, 3)[2], 2.0);
        assert_eq!(rates(Schedule::Linear, 0, 1), [2.0]);
    }
}
