//! Computes rates, ratios and intervals from samples.

use assay_statistics::{Bootstrap, Estimate, StatisticsError, format, summarize};
use serde::{Deserialize, Serialize};

use super::measure::Samples;
use crate::context::{Context, StepError};

/// The results: medians over the rounds, without outliers, with 95 % bootstrap intervals. Output value `results`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Results {
    /// Tokens per second of training.
    train: Estimate,
    /// The floor from the machine's arithmetic; `None` if the device cannot measure its peak.
    floor: Option<Floor>,
    /// Decoded tokens per second, one at a time, with f32 weights.
    f32: Estimate,
    /// The same with int8 weights.
    int8: Estimate,
    /// int8 over f32, round by round.
    int8_ratio: Estimate,
    /// See [`Samples`].
    peak_memory: Option<u64>,
}

/// The floor from the machine's arithmetic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Floor {
    /// Peak operations per second.
    peak: Estimate,
    /// Operations per token of training.
    operations_per_token: f64,
    /// Tokens per second if only these operations took time.
    tokens_per_second: Estimate,
    /// The training rate divided by that, round by round.
    ratio: Estimate,
}

/// Analyses the samples.
///
/// # Errors
/// If there is no sample, or one is not finite.
pub(super) fn analyse(samples: &Samples, seed: u64) -> Result<Results, StepError> {
    let refused = |error: StatisticsError| StepError::failed(format!("the samples cannot be analysed: {error}"));
    let median =
        |values: &[f64]| Ok::<_, StepError>(summarize(values, &Bootstrap::seeded(seed)).map_err(refused)?.median);
    let floor = if samples.peak.is_empty() {
        None
    } else {
        let floors: Vec<f64> = samples.peak.iter().map(|peak| peak / samples.operations).collect();
        Some(Floor {
            peak: median(&samples.peak)?,
            operations_per_token: samples.operations,
            tokens_per_second: median(&floors)?,
            ratio: median(&divide_samples(&samples.train, &floors))?,
        })
    };
    Ok(Results {
        train: median(&samples.train)?,
        floor,
        f32: median(&samples.f32)?,
        int8: median(&samples.int8)?,
        int8_ratio: median(&divide_samples(&samples.int8, &samples.f32))?,
        peak_memory: samples.peak_memory,
    })
}

fn divide_samples(above: &[f64], below: &[f64]) -> Vec<f64> {
    std::iter::zip(above, below).map(|(above, below)| above / below).collect()
}

impl Results {
    /// Reports every figure as a metric, and a summary in the log.
    pub fn report(&self, context: &mut dyn Context) {
        let mut put = |name: &str, estimate: &Estimate| {
            context.metric(name, 0, estimate.value);
            for (end, value) in [("low", estimate.low()), ("high", estimate.high())] {
                if let Some(value) = value {
                    context.metric(&format!("{name}_{end}"), 0, value);
                }
            }
        };
        put("train/tokens_per_second", &self.train);
        put("decode/f32/tokens_per_second", &self.f32);
        put("decode/int8/tokens_per_second", &self.int8);
        put("decode/int8_ratio", &self.int8_ratio);
        if let Some(floor) = &self.floor {
            put("floor/operations_per_second", &floor.peak);
            put("floor/tokens_per_second", &floor.tokens_per_second);
            put("floor/ratio", &floor.ratio);
            context.metric("floor/operations_per_token", 0, floor.operations_per_token);
        }
        if let Some(bytes) = self.peak_memory {
            context.metric("memory/peak_bytes", 0, bytes as f64);
        }
        self.log_summary(context);
    }

    fn log_summary(&self, context: &mut dyn Context) {
        let rate = |estimate: &Estimate| format::with_interval(estimate, "tokens/s");
        context.log(&format!("training: {}", rate(&self.train)));
        if let Some(floor) = &self.floor {
            context.log(&format!(
                "the floor: {}, at {} per token and {}; training reaches {} of it",
                rate(&floor.tokens_per_second),
                format::quantity(floor.operations_per_token, "FLOP"),
                format::with_interval(&floor.peak, "FLOP/s"),
                format::with_interval(&floor.ratio, "")
            ));
        }
        context.log(&format!(
            "decoding: {} in f32, {} in int8: {}",
            rate(&self.f32),
            rate(&self.int8),
            format::ratio(&self.int8_ratio)
        ));
        if let Some(bytes) = self.peak_memory {
            context.log(&format!("peak memory in training: {}", format::quantity(bytes as f64, "B")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_that_of_two_samples_of_one_moment() {
        // The machine halves its clock in every second round: the rates scatter, but the ratio does not.
        let clock = |round: usize| if round.is_multiple_of(2) { 1.0 } else { 0.5 };
        let samples = |rate: f64| (0..20).map(|round| rate * clock(round)).collect::<Vec<f64>>();
        let samples = Samples {
            train: samples(80.0),
            peak: samples(1000.0),
            f32: samples(10.0),
            int8: samples(30.0),
            steps: 1,
            operations: 10.0,
            peak_memory: Some(1 << 20),
        };
        let results = analyse(&samples, 1).unwrap();
        let floor = results.floor.unwrap();
        assert_eq!((floor.ratio.value, floor.ratio.low(), floor.ratio.high()), (0.8, Some(0.8), Some(0.8)));
        assert_eq!(results.int8_ratio.value, 3.0);
        assert!(floor.tokens_per_second.low() < floor.tokens_per_second.high());
        assert!(analyse(&Samples { peak: Vec::new(), ..samples }, 1).unwrap().floor.is_none());
    }
}
