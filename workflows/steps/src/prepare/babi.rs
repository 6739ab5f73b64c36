//! `dataset: babi`: the twenty bAbI tasks (Weston et al. 2015), from the published files or generated.
//!
//! A sequence is the words of a story so far and of a question about it; the label is the answer. Every sequence belongs to the group
//! of its task, so that `evaluate` reports the measures of the paper: `*/error/TASK`, and in `*/tasks_solved` the number of tasks
//! with at least 95 % correct answers. The vocabulary is that of the training questions: any other word becomes `<unknown>`. The
//! classes are the answers of all splits. A warning counts the questions of valid and test with an answer that does not occur in
//! training, since a model cannot learn that answer.

use std::collections::{BTreeSet, HashMap};

use assay_data::babi::{Question, TASKS, read_babi, story};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::prepared::{ConfigProblem, PreparedDataset, range_problem};
use super::source::{LocalFile, MOST_BYTES, digests};
use super::splits::{SplitSizes, check_tokens};
use crate::context::{Context, StepError};
use crate::dataset::{Goal, Sources, Split};
use crate::random::{seed_for, shuffle};

/// The replacement of words that do not occur in training questions.
const UNKNOWN: &str = "<unknown>";

/// The parameters of `dataset: babi`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Babi {
    /// The folder or the archive (`tasks_1-20_v1-2.tar.gz`) with the published files, relative to the folder of the workflow file. If
    /// absent, stories of the same kinds are generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = assay_spec::LOCAL_FILE, "x-max-bytes" = MOST_BYTES))]
    pub path: Option<LocalFile>,
    /// The folder of the published edition, such as `en` (1,000 questions a task) or `en-10k`.
    #[serde(default = "english")]
    pub edition: String,
    /// Which tasks, by number; all twenty if absent.
    #[serde(default = "all_tasks")]
    #[schemars(length(min = 1, max = 20), inner(range(min = 1, max = 20)))]
    pub tasks: Vec<u32>,
    /// Training questions of each task: if absent 1000 generated ones, or all published ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub train: Option<usize>,
    /// Validation questions of each task: if absent 100 generated ones, or the published validation files, or a tenth of the
    /// published training questions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub valid: Option<usize>,
    /// Test questions of each task: if absent 1000 generated ones, or all published ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub test: Option<usize>,
    /// The longest sequence in words: longer stories are cut at the beginning.
    #[serde(default = "longest")]
    #[schemars(range(min = 8, max = 65536))]
    pub max_length: usize,
    /// Decides what is generated and which questions are used.
    #[serde(default)]
    pub seed: u64,
}

fn english() -> String {
    "en".into()
}
fn all_tasks() -> Vec<u32> {
    (1..=TASKS).collect()
}
fn longest() -> usize {
    512
}

/// The questions of the splits train, valid and test.
type Questions = [Vec<Question>; 3];

impl Babi {
    /// The first invalid parameter, as far as it can be detected without the files.
    #[must_use]
    pub fn find_problem(&self) -> Option<ConfigProblem> {
        let distinct: BTreeSet<u32> = self.tasks.iter().copied().collect();
        if distinct.len() != self.tasks.len()
            || distinct.is_empty()
            || distinct.iter().any(|task| !(1..=TASKS).contains(task))
        {
            let message = format!("tasks {:?} are not different numbers from 1 to {TASKS}", self.tasks);
            return Some(("tasks", message, "give each task once, such as [1, 2]".into()));
        }
        let numbers = [
            ("max_length", self.max_length, 8, 65536),
            ("train", self.train.unwrap_or(1), 1, 100_000),
            ("valid", self.valid.unwrap_or(1), 1, 100_000),
            ("test", self.test.unwrap_or(1), 1, 100_000),
        ];
        range_problem(&numbers).or_else(|| self.split_sizes(0).find_problem())
    }

    fn split_sizes(&self, task: u32) -> SplitSizes {
        let seed = seed_for(self.seed, task, "babi");
        SplitSizes { most: [self.train, self.valid, self.test], valid_fraction: 0.1, test_fraction: 0.1, seed }
    }

    /// # Errors
    /// [`StepError::Failed`] if a file is missing or does not follow the published format.
    pub fn make_dataset(&self, context: &mut dyn Context) -> Result<PreparedDataset, StepError> {
        let (questions, sources) = match &self.path {
            Some(path) => self.read_files(path, context)?,
            None => (self.generate(context)?, Sources::default()),
        };
        self.encode(questions, sources)
    }

    fn read_files(&self, path: &LocalFile, context: &dyn Context) -> Result<(Questions, Sources), StepError> {
        let files = path.open(context)?;
        let (mut questions, mut used): (Questions, Vec<String>) = (Default::default(), Vec::new());
        for task in &self.tasks {
            let mut published: [Option<Vec<Question>>; 3] = Default::default();
            for (place, split) in published.iter_mut().zip(["train", "valid", "test"]) {
                let found = read_babi(&files, &self.edition, *task, split)?;
                if found.is_none() && split != "valid" {
                    return Err(StepError::Failed {
                        message: format!(
                            "`{}` contains no file `{}/qa{task}_*_{split}.txt`",
                            files.name(),
                            self.edition
                        ),
                        hint: Some(format!(
                            "it contains {}; give the published folder or another edition",
                            files.some_names()
                        )),
                    });
                }
                *place = found.map(|(questions, name)| {
                    used.push(name);
                    questions
                });
            }
            let chosen = self
                .split_sizes(*task)
                .assign_samples(published.each_ref().map(|split| split.as_ref().map(Vec::len)))?;
            for (split, chosen) in questions.iter_mut().zip(chosen) {
                let from = published[chosen.from].as_deref().unwrap_or_default();
                split.extend(chosen.samples.into_iter().map(|at| from[at].clone()));
            }
        }
        Ok((questions, digests(&files, &used)?))
    }

    /// Questions that are all different within a task.
    fn generate(&self, context: &mut dyn Context) -> Result<Questions, StepError> {
        let mut questions: Questions = Default::default();
        let sizes = [self.train.unwrap_or(1000), self.valid.unwrap_or(100), self.test.unwrap_or(1000)];
        for (done, task) in (1..).zip(&self.tasks) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed_for(self.seed, *task, "babi"));
            let mut distinct = draw_distinct_stories(*task, sizes.iter().sum(), &mut rng, context)?;
            // The few short stories are drawn early. Without shuffling, the last split would have fewer of them than the first.
            shuffle(&mut distinct, &mut rng);
            for (split, size) in questions.iter_mut().zip(sizes) {
                split.extend(distinct.drain(..size));
            }
            context.progress(done, Some(self.tasks.len() as u64), "tasks", "");
        }
        Ok(questions)
    }

    fn encode(&self, questions: Questions, sources: Sources) -> Result<PreparedDataset, StepError> {
        let kept = |question: &Question| question.words.len().min(self.max_length) as u64;
        let tokens = questions.iter().flatten().map(kept).sum();
        check_tokens(tokens, "the questions", "take fewer questions or tasks, or a smaller max_length")?;
        let words: BTreeSet<&str> =
            questions[0].iter().flat_map(|question| &question.words).map(String::as_str).collect();
        let answers_of = |split: &'_ [Question]| split.iter().map(|question| question.answer.clone()).collect();
        let trained: BTreeSet<String> = answers_of(&questions[0]);
        let answers: BTreeSet<String> = questions.iter().flat_map(|split| answers_of(split)).collect();
        let ids: HashMap<&str, u32> = words.iter().copied().zip(1..).collect();
        let labels: HashMap<&str, u32> = answers.iter().map(String::as_str).zip(0..).collect();
        let (mut unknown, mut cut, mut untrained) = (0_usize, 0_usize, 0_usize);
        let [train, valid, test] = questions.each_ref().map(|questions| {
            let mut split = Split::default();
            for Question { task, words, answer } in questions {
                untrained += usize::from(!trained.contains(answer));
                let kept = &words[words.len().saturating_sub(self.max_length)..];
                cut += usize::from(kept.len() < words.len());
                let tokens: Vec<u32> = kept.iter().map(|word| ids.get(word.as_str()).copied().unwrap_or(0)).collect();
                unknown += tokens.iter().filter(|token| **token == 0).count();
                let group = self.tasks.iter().position(|known| known == task).unwrap_or(0);
                split.push_grouped(&tokens, labels[answer.as_str()], group as u32);
            }
            split
        });
        let mut warnings = Vec::new();
        for (count, what) in [
            (cut, "stories are longer than max_length and are cut at the beginning"),
            (untrained, "questions of valid and test have an answer that no training question has"),
            (unknown, "words of valid and test are unknown from train"),
        ] {
            if count > 0 {
                warnings.push(format!("{count} {what}"));
            }
        }
        let vocabulary = std::iter::once(UNKNOWN).chain(words.iter().copied()).map(str::to_owned).collect();
        Ok(PreparedDataset {
            name: "babi",
            description: "Stories with a question; the label is the answer.".into(),
            vocabulary,
            goal: Goal::Classify,
            classes: answers.len(),
            labels: answers.into_iter().collect(),
            groups: self.tasks.iter().map(u32::to_string).collect(),
            max_length: self.max_length,
            train,
            valid,
            test,
            warnings,
            sources,
            ..PreparedDataset::default()
        })
    }
}

/// Draws `count` different questions of a task.
fn draw_distinct_stories(
    task: u32,
    count: usize,
    rng: &mut ChaCha8Rng,
    context: &dyn Context,
) -> Result<Vec<Question>, StepError> {
    let (mut distinct, mut seen, mut in_vain) = (Vec::with_capacity(count), BTreeSet::new(), 0);
    while distinct.len() < count {
        if context.cancelled() {
            return Err(StepError::Cancelled);
        }
        let question = story(task, rng);
        if seen.insert(question.words.clone()) {
            distinct.push(question);
            in_vain = 0;
            continue;
        }
        in_vain += 1;
        if in_vain > 1000 {
            return Err(StepError::Failed {
                message: format!("task {task} has only about {} different questions", seen.len()),
                hint: Some("lower train, valid or test, or leave the task out".into()),
            });
        }
    }
    Ok(distinct)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::TestContext;

    fn made(config: Value) -> Result<PreparedDataset, StepError> {
        let config: Babi = serde_json::from_value(config).unwrap();
        assert_eq!(config.find_problem(), None);
        config.make_dataset(&mut TestContext::new(assay_cpu::device(1).unwrap()))
    }

    #[test]
    fn stories_of_every_task_are_generated() {
        let made = made(json!({"train": 60, "valid": 5, "test": 20})).unwrap();
        assert_eq!([made.train.len(), made.valid.len(), made.test.len()], [1200, 100, 400]);
        assert_eq!(made.groups.len(), 20);
        assert_eq!(made.test.groups().iter().filter(|group| **group == 7).count(), 20);
        assert!(made.train.lengths().max().unwrap() <= 512);
    }

    #[test]
    fn every_split_has_short_stories() {
        // Task 5 has 540 stories with a single gift, and most of them are drawn early.
        let made = made(json!({"tasks": [5], "train": 3000, "valid": 100, "test": 3000})).unwrap();
        let short = |split: &Split| split.lengths().filter(|length| *length <= 21).count() as f64;
        let (train, test) = (short(&made.train), short(&made.test));
        assert!(train + test > 400.0 && (train / test - 1.0).abs() < 0.3, "{train} and {test}");
    }

    #[test]
    fn stories_that_are_alike_after_they_are_cut_are_reported() {
        let run = |max_length: usize| {
            let mut context = TestContext::new(assay_cpu::device(1).unwrap());
            let config = json!({"dataset": "babi", "tasks": [1], "train": 300, "valid": 20, "test": 100, "max_length": max_length});
            context.run(&crate::prepare::Prepare, config).unwrap();
            (context.last("data/test/shared_with/train").unwrap(), context.last("data/contradictions").unwrap())
        };
        assert_eq!(run(512), (0.0, 0.0));
        let (shared, contradictions) = run(8);
        assert!(shared > 10.0 && contradictions > 1.0, "{shared} and {contradictions}");
    }

    #[test]
    fn progress_counts_the_tasks() {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        let config: Babi =
            serde_json::from_value(json!({"tasks": [20, 1], "train": 9, "valid": 2, "test": 2})).unwrap();
        config.make_dataset(&mut context).unwrap();
        assert_eq!(context.progress, (2, Some(2)));
    }

    #[test]
    fn published_questions_keep_their_splits() {
        let folder = tempfile::tempdir().unwrap();
        let en = folder.path().join("en");
        std::fs::create_dir(&en).unwrap();
        let story = |who: &str, place: &str| format!("1 {who} went {place}.\n2 Where is {who}?\t{place}\t1\n");
        let text = (0..20).map(|at| story(["Mary", "John"][at % 2], ["home", "out"][at / 2 % 2])).collect::<String>();
        std::fs::write(en.join("qa1_x_train.txt"), text).unwrap();
        std::fs::write(en.join("qa1_x_test.txt"), story("Anna", "home")).unwrap();
        let found = made(json!({"path": folder.path(), "tasks": [1], "valid": 2})).unwrap();
        assert_eq!([found.train.len(), found.valid.len(), found.test.len()], [18, 2, 1]);
        assert_eq!(found.labels, ["home", "out"]);
        assert_eq!(found.sources.files.len(), 2);
        // Anna is unknown, twice.
        assert_eq!(found.warnings, ["2 words of valid and test are unknown from train"]);
        let text = |id: &u32| found.vocabulary[*id as usize].clone();
        let words: Vec<String> = found.test.sequence(0).iter().map(text).collect();
        assert_eq!(words.join(" "), "<unknown> went home . where is <unknown> ?");
        std::fs::write(en.join("qa1_x_test.txt"), story("Anna", "away")).unwrap();
        // An answer that occurs only in test is a class, and its question is kept.
        let found = made(json!({"path": folder.path(), "tasks": [1]})).unwrap();
        assert_eq!(
            (found.labels.as_slice(), found.test.labels()),
            (["away", "home", "out"].map(String::from).as_slice(), [0].as_slice())
        );
        let untrained = "1 questions of valid and test have an answer that no training question has";
        assert_eq!(found.warnings, [untrained, "3 words of valid and test are unknown from train"]);
        let missing = made(json!({"path": folder.path(), "tasks": [2]})).err().unwrap();
        assert!(missing.to_string().contains("contains no file `en/qa2_*_train.txt`"), "{missing}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let error = made(json!({"tasks": [4], "train": 50_000, "valid": 1, "test": 1})).err().unwrap();
        assert!(error.to_string().starts_with("task 4 has only about"), "{error}");
        for tasks in [json!([]), json!([1, 1]), json!([21])] {
            let config: Babi = serde_json::from_value(json!({"tasks": tasks})).unwrap();
            assert_eq!(config.find_problem().unwrap().0, "tasks");
        }
    }
}
