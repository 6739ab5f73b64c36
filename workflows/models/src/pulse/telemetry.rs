//! How much and how evenly a PULSE uses its slots: [`Usage`].

use assay_tensor::Tensor;

use super::network::Pulse;
use crate::batch::Batch;
use crate::error::ModelError;
use crate::telemetry::distribution;

/// The maximum number of slots of all blocks for which each is reported. Above it, only the distribution is reported.
const EACH: usize = 128;

impl Pulse {
    /// See [`Model::telemetry`](crate::Model::telemetry).
    pub(crate) fn telemetry(&self, batch: Option<&Batch>) -> Result<Vec<(String, f64)>, ModelError> {
        let Some(batch) = batch else { return Ok(Vec::new()) };
        let mut usage = Usage::new(batch);
        self.watch(batch.tokens(), &mut |weights| usage.add(weights))?;
        Ok(usage.metrics())
    }
}

/// Routing weights, summed over the tokens of a batch without its padding.
struct Usage<'a> {
    batch: &'a Batch,
    /// The start of the next piece.
    position: usize,
    /// The routing mass of each slot, for each block.
    mass: Vec<Vec<f64>>,
    /// The sum of the entropies of all tokens, for each block, in nats.
    entropies: Vec<f64>,
}

impl<'a> Usage<'a> {
    fn new(batch: &'a Batch) -> Self {
        Usage { batch, position: 0, mass: Vec::new(), entropies: Vec::new() }
    }

    /// Adds `weights` `[B, T', S]`: block by block, and within a block piece by piece.
    fn add(&mut self, weights: &Tensor) -> Result<(), ModelError> {
        let &[_, length, slots] = weights.dims() else {
            return Err(ModelError::Input(format!("routing weights have shape {:?}", weights.dims())));
        };
        if self.position == 0 {
            self.mass.push(vec![0.0; slots]);
            self.entropies.push(0.0);
        }
        let values = weights.to_f64_vec()?;
        let (Some(mass), Some(sum)) = (self.mass.last_mut(), self.entropies.last_mut()) else { return Ok(()) };
        for (row, weights) in values.chunks_exact((length * slots).max(1)).enumerate() {
            let present = self.batch.lengths()[row].saturating_sub(self.position).min(length);
            for token in weights.chunks_exact(slots).take(present) {
                mass.iter_mut().zip(token).for_each(|(mass, weight)| *mass += weight);
                *sum += entropy(token);
            }
        }
        self.position += length;
        if self.position == self.batch.tokens().dims()[1] {
            self.position = 0;
        }
        Ok(())
    }

    /// A block's number counts the blocks with slots, from 0.
    fn metrics(&self) -> Vec<(String, f64)> {
        let tokens = self.batch.token_count() as f64;
        let shares: Vec<Vec<f64>> =
            self.mass.iter().map(|mass| mass.iter().map(|mass| mass / tokens).collect()).collect();
        let all: Vec<f64> = shares.iter().flatten().copied().collect();
        if all.is_empty() {
            return Vec::new();
        }
        let entropies: Vec<f64> = self.entropies.iter().map(|sum| sum / tokens).collect();
        let mut each = Vec::new();
        for (block, (shares, entropy)) in shares.iter().zip(&entropies).enumerate() {
            each.push((format!("pulse/routing_entropy/block{block}"), *entropy));
            if all.len() <= EACH {
                let named =
                    |(slot, share): (usize, &f64)| (format!("pulse/slot_utilisation/block{block}.slot{slot}"), *share);
                each.extend(shares.iter().enumerate().map(named));
            }
        }
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let variance = all.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / all.len() as f64;
        let evenness = shares.iter().map(|shares| evenness(shares)).sum::<f64>() / shares.len() as f64;
        let mut metrics = distribution("pulse/slot_utilisation", all);
        metrics.push(("pulse/slot_utilisation/std".into(), variance.sqrt()));
        metrics.push(("pulse/slot_utilisation/evenness".into(), evenness));
        metrics.push(("pulse/routing_entropy".into(), entropies.iter().sum::<f64>() / entropies.len() as f64));
        metrics.extend(each);
        metrics
    }
}

/// -sum p ln p, in nats.
fn entropy(shares: &[f64]) -> f64 {
    -shares.iter().filter(|share| **share > 0.0).map(|share| share * share.ln()).sum::<f64>()
}

/// The entropy as a fraction of its maximum: 1 if all slots are used equally, 0 if only one is used.
fn evenness(shares: &[f64]) -> f64 {
    if shares.len() < 2 { 1.0 } else { entropy(shares) / (shares.len() as f64).ln() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::constant;
    use assay_tensor::DType;

    #[test]
    fn padding_counts_for_nothing_and_blocks_are_told_apart() {
        let device = assay_reference::device();
        let batch = Batch::new(&device, &[&[1, 2, 3], &[1]]).unwrap();
        let weights = |values: &[f64], length| constant(&device, DType::F64, values.to_vec(), &[2, length, 2]).unwrap();
        let mut usage = Usage::new(&batch);
        // Two pieces of the first block; the second sequence is padding after its first token.
        usage.add(&weights(&[1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 9.0, 9.0], 2)).unwrap();
        usage.add(&weights(&[1.0, 0.0, 9.0, 9.0], 1)).unwrap();
        // The second block routes evenly.
        usage.add(&weights(&[0.5; 12], 3)).unwrap();
        let metrics = usage.metrics();
        let of = |name: &str| metrics.iter().find(|(key, _)| key == name).unwrap().1;
        assert_eq!((of("pulse/slot_utilisation/min"), of("pulse/slot_utilisation/max")), (0.25, 0.75));
        assert!((of("pulse/slot_utilisation/std") - 0.125_f64.sqrt() / 2.0).abs() < 1e-12);
        assert!((of("pulse/routing_entropy") - 0.5 * 2_f64.ln()).abs() < 1e-12);
        // Individually: three of four tokens went to the first slot of the first block.
        let shares = [(0, 0, 0.75), (0, 1, 0.25), (1, 0, 0.5), (1, 1, 0.5)];
        for (block, slot, share) in shares {
            assert_eq!(of(&format!("pulse/slot_utilisation/block{block}.slot{slot}")), share);
        }
        assert_eq!(of("pulse/routing_entropy/block0"), 0.0);
        assert!((of("pulse/routing_entropy/block1") - 2_f64.ln()).abs() < 1e-12);
        let uneven = (0.25 * 4_f64.ln() + 0.75 * (4.0 / 3.0_f64).ln()) / 2_f64.ln();
        assert!((of("pulse/slot_utilisation/evenness") - (uneven + 1.0) / 2.0).abs() < 1e-12);
    }
}
