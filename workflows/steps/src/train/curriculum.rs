//! Which sequences each step sees: stages by length, batches of like length, all decided by a seed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::config::Stage;
use crate::context::StepError;
use crate::dataset::Split;
use crate::random::shuffle;

/// Batches that are sorted by length together: enough that little is padded, few enough that batches stay mixed.
const POOL: usize = 16;

/// Hands out batches, without end.
pub struct Curriculum {
    stages: Vec<Stage>,
    lengths: Vec<usize>,
    batch_size: usize,
    seed: u64,
    stage: usize,
    order: Order,
}

/// Where a stage is in its passes over its samples.
struct Order {
    rng: ChaCha8Rng,
    eligible: Vec<usize>,
    /// What is left of this pass, in random order, last first.
    pass: Vec<usize>,
    /// Batches ready to be handed out, last first.
    ready: Vec<Vec<usize>>,
}

impl Curriculum {
    /// # Errors
    /// [`StepError::Failed`] if a stage has no sample.
    pub fn new(stages: &[Stage], split: &Split, batch_size: usize, seed: u64) -> Result<Self, StepError> {
        let lengths: Vec<_> = split.lengths().collect();
        let shortest = lengths.iter().copied().min().unwrap_or(0);
        if let Some((index, stage)) = stages.iter().enumerate().find(|(_, stage)| stage.max_length < shortest) {
            return Err(StepError::Failed {
                message: format!(
                    "curriculum stage {index} has no sample: its max_length is {}, \
                     the shortest sequence has {shortest} tokens",
                    stage.max_length
                ),
                hint: Some("raise the stage's max_length, or lower min_length in the `prepare` job".into()),
            });
        }
        let order = Order::new(&lengths, stages.first(), 0, seed);
        Ok(Curriculum { stages: stages.to_vec(), lengths, batch_size, seed, stage: 0, order })
    }

    /// The samples of `step`, which counts from 1 and never falls.
    pub fn batch(&mut self, step: u64) -> Vec<usize> {
        while self.stage + 1 < self.stages.len() && step > self.stages[self.stage].until_step {
            self.stage += 1;
            self.order = Order::new(&self.lengths, self.stages.get(self.stage), self.stage, self.seed);
        }
        self.order.next(&self.lengths, self.batch_size)
    }

    /// The number of samples that the present stage draws from.
    #[must_use]
    pub fn eligible(&self) -> usize {
        self.order.eligible.len()
    }

    /// The present stage, counting from 0.
    #[must_use]
    pub fn stage(&self) -> usize {
        self.stage
    }
}

impl Order {
    fn new(lengths: &[usize], stage: Option<&Stage>, index: usize, seed: u64) -> Self {
        let longest = stage.map_or(usize::MAX, |stage| stage.max_length);
        let eligible = (0..lengths.len()).filter(|sample| lengths[*sample] <= longest).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(index as u64);
        Order { rng, eligible, pass: Vec::new(), ready: Vec::new() }
    }

    fn next(&mut self, lengths: &[usize], batch_size: usize) -> Vec<usize> {
        if self.ready.is_empty() {
            let mut pool: Vec<_> = (0..POOL * batch_size).filter_map(|_| self.draw()).collect();
            pool.sort_by_key(|sample| lengths[*sample]);
            self.ready = pool.chunks(batch_size).map(<[usize]>::to_vec).collect();
            shuffle(&mut self.ready, &mut self.rng);
        }
        self.ready.pop().unwrap_or_default()
    }

    /// The next sample of this pass; after the last a new pass begins, in another order.
    fn draw(&mut self) -> Option<usize> {
        if self.pass.is_empty() {
            self.pass.clone_from(&self.eligible);
            shuffle(&mut self.pass, &mut self.rng);
        }
        self.pass.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(lengths: &[usize]) -> Split {
        let mut split = Split::default();
        lengths.iter().for_each(|length| split.push(&vec![0; *length], 0));
        split
    }

    fn stage(until_step: u64, max_length: usize) -> Stage {
        Stage { until_step, max_length }
    }

    #[test]
    fn a_stage_takes_only_what_is_short_enough() {
        let split = split(&[2, 9, 3, 9, 4, 5]);
        let mut curriculum = Curriculum::new(&[stage(20, 4), stage(40, 9)], &split, 2, 1).unwrap();
        for step in 1..=40 {
            let batch = curriculum.batch(step);
            assert_eq!(batch.len(), 2);
            let longest = if step <= 20 { 4 } else { 9 };
            assert!(batch.iter().all(|sample| split.sequence(*sample).len() <= longest), "step {step}");
        }
        assert_eq!((curriculum.stage(), curriculum.eligible()), (1, 6));
    }

    #[test]
    fn each_pass_sees_every_sample_once() {
        let lengths: Vec<_> = (1..=64).collect();
        let mut curriculum = Curriculum::new(&[stage(100, 64)], &split(&lengths), 4, 3).unwrap();
        let mut seen: Vec<_> = (1..=POOL as u64).flat_map(|step| curriculum.batch(step)).collect();
        assert_ne!(seen[..4], [0, 1, 2, 3], "batches come in random order");
        seen.sort_unstable();
        assert_eq!(seen, (0..64).collect::<Vec<_>>());
    }

    #[test]
    fn batches_hold_sequences_of_like_length() {
        let lengths: Vec<_> = (0..400).map(|index| 1 + (index * 37) % 100).collect();
        let split = split(&lengths);
        let mut curriculum = Curriculum::new(&[stage(100, 100)], &split, 8, 3).unwrap();
        let spread = |batch: Vec<usize>| {
            let of = |sample: &usize| lengths[*sample];
            batch.iter().map(of).max().unwrap() - batch.iter().map(of).min().unwrap()
        };
        let total: usize = (1..=POOL as u64).map(|step| spread(curriculum.batch(step))).sum();
        assert!(total <= 100, "sorted in pools, all spreads together span the lengths once at most: {total}");
    }

    #[test]
    fn the_seed_decides() {
        let split = split(&[1; 50]);
        let batches = |seed| {
            let mut curriculum = Curriculum::new(&[stage(9, 1)], &split, 8, seed).unwrap();
            (1..=9).map(|step| curriculum.batch(step)).collect::<Vec<_>>()
        };
        assert_eq!(batches(1), batches(1));
        assert_ne!(batches(1), batches(2));
    }

    #[test]
    fn fewer_samples_than_a_batch_are_repeated() {
        let mut curriculum = Curriculum::new(&[stage(9, 1)], &split(&[1, 1, 1]), 8, 1).unwrap();
        assert_eq!(curriculum.batch(1).len(), 8);
    }

    #[test]
    fn an_empty_stage_is_an_error() {
        let error = Curriculum::new(&[stage(9, 8), stage(20, 2)], &split(&[5, 6]), 8, 1).err().unwrap();
        assert!(error.to_string().contains("stage 1 has no sample"), "{error}");
    }
}
