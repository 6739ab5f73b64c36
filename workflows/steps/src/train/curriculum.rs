//! The sequences of each step: stages by length, batches of similar length, all determined by a seed.

use std::collections::HashSet;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::stages::Stage;
use crate::batching::Batching;
use crate::context::StepError;
use crate::dataset::{SampleLengths, Split};
use crate::random::shuffle;

/// Batches that are sorted by length together: enough to reduce padding, few enough to keep batches mixed.
const POOL: usize = 16;

/// An endless source of batches.
pub struct Curriculum {
    stages: Vec<Stage>,
    lengths: SampleLengths,
    shortest: usize,
    batching: Batching,
    /// The largest number of samples of a window.
    window: usize,
    seed: u64,
    stage: usize,
    order: Order,
}

/// The position of a curriculum: everything that determines later batches, except stages, data and seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplerState {
    /// The current stage, from 0.
    pub stage: usize,
    /// The number of words drawn from the stage's random generator.
    pub position: u128,
    /// The rest of the opened windows of the current pass.
    pub pass: Vec<usize>,
    /// The windows of the current pass that are not opened yet.
    pub windows: Vec<usize>,
    /// Batches that are ready.
    pub ready: Vec<Vec<usize>>,
}

/// The position of a stage in its passes over its samples.
///
/// The samples are divided into windows of neighbours. A pass opens one window after another, in random order, and shuffles the samples of
/// each: the memory is that of one window. A split with few samples is a single window.
struct Order {
    rng: ChaCha8Rng,
    lengths: SampleLengths,
    /// The longest sample of the stage.
    longest: usize,
    /// The number of samples of the stage.
    eligible: usize,
    /// The number of windows.
    count: usize,
    /// The rest of the opened windows, in random order, last first.
    pass: Vec<usize>,
    /// The windows of this pass that are not opened yet, last first.
    windows: Vec<usize>,
    /// Batches that are ready, last first.
    ready: Vec<Vec<usize>>,
}

impl Curriculum {
    /// # Errors
    /// [`StepError::Failed`] if a stage has no sample, or one that exceeds a batch.
    pub fn new(
        stages: &[Stage],
        split: &Split,
        (batching, window): (Batching, usize),
        seed: u64,
    ) -> Result<Self, StepError> {
        let (lengths, batching) = (split.sample_lengths(), batching.for_samples_of(split));
        let shortest = split.lengths().min().unwrap_or(0);
        stages.iter().enumerate().try_for_each(|(index, stage)| refuse_empty(shortest, index, *stage))?;
        let limit = stages.iter().map(|stage| stage.max_length).max().unwrap_or(usize::MAX);
        let longest = split.lengths().filter(|length| *length <= limit).max().unwrap_or(0);
        if let Some(budget) = batching.longest().filter(|budget| longest > *budget) {
            return Err(StepError::Failed {
                message: format!("a sequence of {longest} tokens does not fit batching.max_tokens {budget}"),
                hint: Some("raise batching.max_tokens, or lower the max_length of the curriculum's stages".into()),
            });
        }
        let order = Order::new(&lengths, window, (stages.first(), 0), seed);
        Ok(Curriculum { stages: stages.to_vec(), lengths, shortest, batching, window, seed, stage: 0, order })
    }

    /// The samples of `step`, which counts from 1 and never decreases.
    pub fn batch(&mut self, step: u64) -> Vec<usize> {
        while self.stage + 1 < self.stages.len() && step > self.stages[self.stage].until_step {
            self.stage += 1;
            self.order = self.start_stage(&self.stages, self.stage);
        }
        self.order.next(self.batching)
    }

    fn start_stage(&self, stages: &[Stage], stage: usize) -> Order {
        Order::new(&self.lengths, self.window, (stages.get(stage), stage), self.seed)
    }

    /// Adds a stage after the last one.
    ///
    /// # Errors
    /// [`StepError::Failed`] if it has no sample.
    pub fn add_stage(&mut self, stage: Stage) -> Result<(), StepError> {
        refuse_empty(self.shortest, self.stages.len(), stage)?;
        if self.stages.is_empty() {
            self.order = self.start_stage(&[stage], 0);
        }
        self.stages.push(stage);
        Ok(())
    }

    /// The current stage; `None` before the first one is added.
    #[must_use]
    pub fn limits(&self) -> Option<Stage> {
        self.stages.get(self.stage).copied()
    }

    /// The current position.
    #[must_use]
    pub fn state(&self) -> SamplerState {
        SamplerState {
            stage: self.stage,
            position: self.order.rng.get_word_pos(),
            pass: self.order.pass.clone(),
            windows: self.order.windows.clone(),
            ready: self.order.ready.clone(),
        }
    }

    /// Restores a position of a curriculum with the same stages, data and seed. Refuses an impossible position and
    /// returns the problem.
    pub fn restore(&mut self, state: SamplerState) -> Result<(), String> {
        self.restore_stages(state, self.stages.clone())
    }

    /// As [`Curriculum::restore`], with the stages that were added before the state was saved.
    pub fn restore_stages(&mut self, state: SamplerState, stages: Vec<Stage>) -> Result<(), String> {
        if state.stage >= stages.len() {
            return Err(format!("there is no stage {}", state.stage));
        }
        let mut order = self.start_stage(&stages, state.stage);
        let known = |sample: &usize| *sample < self.lengths.count() && self.lengths.of(*sample) <= order.longest;
        if !state.pass.iter().chain(state.ready.iter().flatten()).all(known) || state.ready.iter().any(Vec::is_empty) {
            return Err(format!("stage {} does not have those samples", state.stage));
        }
        if state.windows.iter().any(|window| *window >= order.count) {
            return Err(format!("stage {} does not have those windows", state.stage));
        }
        order.rng.set_word_pos(state.position);
        (order.pass, order.windows, order.ready) = (state.pass, state.windows, state.ready);
        (self.stage, self.order, self.stages) = (state.stage, order, stages);
        Ok(())
    }

    /// The number of samples in the current stage.
    #[must_use]
    pub fn eligible(&self) -> usize {
        self.order.eligible
    }

    /// The current stage, from 0.
    #[must_use]
    pub fn stage(&self) -> usize {
        self.stage
    }
}

/// Refuses a stage without samples.
fn refuse_empty(shortest: usize, index: usize, stage: Stage) -> Result<(), StepError> {
    if stage.max_length >= shortest {
        return Ok(());
    }
    Err(StepError::Failed {
        message: format!(
            "curriculum stage {index} has no sample: its max_length is {}, the shortest sequence has {shortest} tokens",
            stage.max_length
        ),
        hint: Some("raise the stage's max_length, or make shorter sequences in the `prepare` job".into()),
    })
}

impl Order {
    fn new(lengths: &SampleLengths, window: usize, (stage, index): (Option<&Stage>, usize), seed: u64) -> Self {
        let longest = stage.map_or(usize::MAX, |stage| stage.max_length);
        let samples = lengths.count();
        let eligible = (0..samples).filter(|sample| lengths.of(*sample) <= longest).count();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(index as u64);
        let count = samples.div_ceil(window.max(1)).max(1);
        let (pass, windows, ready) = (Vec::new(), Vec::new(), Vec::new());
        Order { rng, lengths: lengths.clone(), longest, eligible, count, pass, windows, ready }
    }

    fn next(&mut self, batching: Batching) -> Vec<usize> {
        if self.ready.is_empty() {
            let mut pool = self.pool(batching);
            pool.sort_by_key(|sample| self.lengths.of(*sample));
            self.ready = batching.cut(&pool, |sample| self.lengths.of(sample));
            shuffle(&mut self.ready, &mut self.rng);
        }
        self.ready.pop().unwrap_or_default()
    }

    /// The samples that are sorted together, without duplicates, since both copies could be in one batch: a pool ends with
    /// its pass, except for samples that fill its first batch. Samples are repeated only if batches of a fixed size are
    /// larger than the number of samples.
    fn pool(&mut self, batching: Batching) -> Vec<usize> {
        let (mut pool, mut tokens, mut taken) = (Vec::new(), 0, HashSet::new());
        while !batching.is_enough(POOL, pool.len(), tokens) {
            let whole = batching.is_enough(1, pool.len(), tokens);
            if self.pass.is_empty() && self.windows.is_empty() && whole {
                break;
            }
            let again = !whole && taken.len() == self.eligible && matches!(batching, Batching::Sequences(_));
            let Some(sample) = self.draw(|sample| again || !taken.contains(&sample)) else { break };
            tokens += self.lengths.of(sample);
            taken.insert(sample);
            pool.push(sample);
        }
        // The remainder after batches of a fixed size comes first in the next pool: the last samples, which are as random as the others.
        if let Batching::Sequences(size) = batching {
            let left = pool.split_off(pool.len() / size.max(1) * size.max(1));
            self.pass.extend(left.into_iter().rev());
        }
        pool
    }

    /// The next sample of this pass that satisfies `wanted`; after the last one, a new pass in another order starts. If no sample of the
    /// opened windows satisfies it, another window is opened.
    fn draw(&mut self, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let mut passes = 0;
        loop {
            if let Some(at) = self.pass.iter().rposition(|sample| wanted(*sample)) {
                return Some(self.pass.remove(at));
            }
            if self.windows.is_empty() {
                // The samples of a whole pass were tried, or those of a pass of a single window.
                if passes > 0 || (self.count == 1 && !self.pass.is_empty()) {
                    return None;
                }
                passes += 1;
                self.windows = (0..self.count).collect();
                if self.count > 1 {
                    shuffle(&mut self.windows, &mut self.rng);
                }
            }
            let window = self.windows.pop()?;
            self.open(window);
        }
    }

    /// Adds the samples of a window to the pass, in random order, after those that are left.
    fn open(&mut self, window: usize) {
        let bound = |window: usize| (window as u128 * self.lengths.count() as u128 / self.count as u128) as usize;
        let samples = bound(window)..bound(window + 1);
        let mut opened: Vec<usize> = samples.filter(|sample| self.lengths.of(*sample) <= self.longest).collect();
        shuffle(&mut opened, &mut self.rng);
        opened.append(&mut self.pass);
        self.pass = opened;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batching::Budget;

    /// More samples than any split here has.
    const WHOLE: usize = 1 << 20;

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
        let mut curriculum =
            Curriculum::new(&[stage(20, 4), stage(40, 9)], &split, (Batching::Sequences(2), WHOLE), 1).unwrap();
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
        let mut curriculum =
            Curriculum::new(&[stage(100, 64)], &split(&lengths), (Batching::Sequences(4), WHOLE), 3).unwrap();
        let mut seen: Vec<_> = (1..=POOL as u64).flat_map(|step| curriculum.batch(step)).collect();
        assert_ne!(seen[..4], [0, 1, 2, 3], "batches come in random order");
        seen.sort_unstable();
        assert_eq!(seen, (0..64).collect::<Vec<_>>());
    }

    #[test]
    fn no_batch_has_a_sample_twice_and_passes_are_even() {
        let budget = |max_tokens| Batching::Tokens(Budget { max_tokens, max_sequences: 64 });
        for (count, batching) in [
            (100, Batching::Sequences(32)),
            (33, Batching::Sequences(32)),
            (32, Batching::Sequences(32)),
            (600, Batching::Sequences(32)),
            (100, budget(300)),
            (100, budget(4000)),
        ] {
            let lengths: Vec<_> = (0..count).map(|index| 1 + (index * 37) % 60).collect();
            let mut curriculum = Curriculum::new(&[stage(1000, 60)], &split(&lengths), (batching, WHOLE), 7).unwrap();
            let mut seen = vec![0; count];
            for step in 1..=300 {
                let batch = curriculum.batch(step);
                if let Batching::Sequences(size) = batching {
                    assert_eq!(batch.len(), size);
                }
                let distinct: HashSet<_> = batch.iter().collect();
                assert_eq!(distinct.len(), batch.len(), "{batching:?} of {count}, step {step}: {batch:?}");
                batch.iter().for_each(|sample| seen[*sample] += 1);
                let (least, most) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
                assert!(most - least <= 2, "{batching:?} of {count}, step {step}: {least} to {most} times");
            }
        }
    }

    #[test]
    fn batches_hold_sequences_of_like_length() {
        let lengths: Vec<_> = (0..400).map(|index| 1 + (index * 37) % 100).collect();
        let split = split(&lengths);
        let mut curriculum = Curriculum::new(&[stage(100, 100)], &split, (Batching::Sequences(8), WHOLE), 3).unwrap();
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
            let mut curriculum =
                Curriculum::new(&[stage(9, 1)], &split, (Batching::Sequences(8), WHOLE), seed).unwrap();
            (1..=9).map(|step| curriculum.batch(step)).collect::<Vec<_>>()
        };
        assert_eq!(batches(1), batches(1));
        assert_ne!(batches(1), batches(2));
    }

    #[test]
    fn fewer_samples_than_a_batch_are_repeated() {
        let mut curriculum =
            Curriculum::new(&[stage(9, 1)], &split(&[1, 1, 1]), (Batching::Sequences(8), WHOLE), 1).unwrap();
        assert_eq!(curriculum.batch(1).len(), 8);
    }

    #[test]
    fn an_empty_stage_is_an_error() {
        let error = Curriculum::new(&[stage(9, 8), stage(20, 2)], &split(&[5, 6]), (Batching::Sequences(8), WHOLE), 1)
            .err()
            .unwrap();
        assert!(error.to_string().contains("stage 1 has no sample"), "{error}");
    }

    #[test]
    fn one_that_goes_on_from_a_state_hands_out_the_same_batches() {
        let lengths: Vec<_> = (0..90).map(|index| 1 + (index * 37) % 20).collect();
        let (split, stages) = (split(&lengths), [stage(30, 8), stage(80, 20)]);
        for batching in [Batching::Sequences(3), Batching::Tokens(Budget { max_tokens: 40, max_sequences: 6 })] {
            let fresh = || Curriculum::new(&stages, &split, (batching, WHOLE), 5).unwrap();
            let mut whole = fresh();
            let batches: Vec<_> = (1..=80).map(|step| whole.batch(step)).collect();
            for stop in [0, 1, 7, 29, 30, 31, 64, 79] {
                let mut first = fresh();
                (1..=stop).for_each(|step| drop(first.batch(step)));
                let mut second = fresh();
                second.restore(first.state()).unwrap();
                let rest: Vec<_> = (stop + 1..=80).map(|step| second.batch(step)).collect();
                assert_eq!(rest, batches[stop as usize..], "after step {stop}");
            }
        }
    }

    #[test]
    fn windows_are_visited_one_by_one_and_every_pass_sees_every_sample_once() {
        let lengths: Vec<_> = (0..103).map(|index| 1 + (index * 37) % 20).collect();
        let data = split(&lengths);
        let fresh = || Curriculum::new(&[stage(1000, 20)], &data, (Batching::Sequences(1), 10), 5).unwrap();
        let mut whole = fresh();
        let batches: Vec<_> = (1..=206).map(|step| whole.batch(step)).collect();
        let windows = 11;
        for pass in batches.chunks(103) {
            let mut seen: Vec<_> = pass.iter().flatten().copied().collect();
            let changes = seen.windows(2).filter(|pair| pair[0] * windows / 103 != pair[1] * windows / 103).count();
            // Without windows, about ten of eleven neighbours belong to different windows. A pool covers up to three windows.
            assert!(changes < 75, "{changes} changes of the window in {seen:?}");
            seen.sort_unstable();
            assert_eq!(seen, (0..103).collect::<Vec<_>>());
        }
        assert_ne!(batches[..103], batches[103..]);
        for stop in [0, 1, 9, 10, 16, 17, 57, 102, 103, 104, 180] {
            let mut first = fresh();
            (1..=stop).for_each(|step| drop(first.batch(step)));
            let state = first.state();
            assert!(state.pass.len() <= 20, "{} samples are held", state.pass.len());
            let mut second = fresh();
            second.restore(state).unwrap();
            let rest: Vec<_> = (stop + 1..=206).map(|step| second.batch(step)).collect();
            assert_eq!(rest, batches[stop as usize..], "after step {stop}");
        }
        let state = SamplerState { windows: vec![11], ..fresh().state() };
        assert!(fresh().restore(state).unwrap_err().contains("does not have those windows"));
    }

    #[test]
    fn batches_of_few_samples_that_fit_a_stage_come_from_several_windows() {
        let lengths: Vec<_> = (0..60).map(|index| if index % 9 == 0 { 2 } else { 9 }).collect();
        let mut curriculum =
            Curriculum::new(&[stage(50, 4)], &split(&lengths), (Batching::Sequences(5), 10), 5).unwrap();
        for step in 1..=50 {
            let batch = curriculum.batch(step);
            assert_eq!(batch.iter().collect::<HashSet<_>>().len(), 5, "{batch:?}");
            assert!(batch.iter().all(|sample| lengths[*sample] == 2));
        }
        let mut whole = Curriculum::new(&[stage(9, 9)], &split(&lengths), (Batching::Sequences(100), 10), 5).unwrap();
        assert_eq!(whole.batch(1).len(), 100);
    }

    #[test]
    fn a_state_of_other_data_is_refused() {
        let (few, many) = (split(&[1; 5]), split(&[1; 50]));
        let of = |split: &Split| Curriculum::new(&[stage(9, 1)], split, (Batching::Sequences(4), WHOLE), 1).unwrap();
        let mut other = of(&many);
        other.batch(1);
        assert!(of(&few).restore(other.state()).unwrap_err().contains("does not have those samples"));
        let state = SamplerState { stage: 1, ..other.state() };
        assert!(of(&many).restore(state).unwrap_err().contains("no stage 1"));
    }

    #[test]
    fn batches_of_a_budget_keep_within_it_and_every_sample_comes() {
        let lengths: Vec<_> = (0..200).map(|index| 1 + (index * 37) % 60).collect();
        let budget = Batching::Tokens(Budget { max_tokens: 120, max_sequences: 16 });
        let mut curriculum = Curriculum::new(&[stage(400, 60)], &split(&lengths), (budget, WHOLE), 3).unwrap();
        let mut seen = vec![0; lengths.len()];
        for step in 1..=200 {
            let batch = curriculum.batch(step);
            let longest = batch.iter().map(|sample| lengths[*sample]).max().unwrap();
            assert!(batch.len() * longest <= 120 && batch.len() <= 16, "{batch:?}");
            batch.iter().for_each(|sample| seen[*sample] += 1);
        }
        let (least, most) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
        assert!(*least > 0 && most - least <= 2, "samples come about equally often: {least} to {most} times");
    }

    #[test]
    fn a_sequence_beyond_the_budget_is_refused_unless_no_stage_takes_it() {
        let budget = Batching::Tokens(Budget { max_tokens: 8, max_sequences: 4 });
        let new = |max_length| Curriculum::new(&[stage(9, max_length)], &split(&[4, 9]), (budget, WHOLE), 1);
        let error = new(9).err().unwrap().to_string();
        assert!(error.contains("a sequence of 9 tokens does not fit batching.max_tokens 8"), "{error}");
        assert!(new(8).is_ok());
    }
}
