//! The task of a dataset, if its config determines it before the dataset is made.

use assay_data::lra::VOCABULARY;
use assay_models::{Objective, Task};
use serde_json::Value;

use super::copy::Copy;
use super::listops::{self, ListOps};
use super::pathfinder::{self, Pathfinder};
use super::prepared::SequenceObjective;
use super::recall::Recall;
use super::step::Config;
use super::text::Text;
use super::tokenizer::TokenizerChoice;

/// The task of the dataset of a `prepare` step with this config; `None` if it depends on the data.
#[must_use]
pub fn plan_task(config: &Value) -> Option<Task> {
    Some(match serde_json::from_value(config.clone()).ok()? {
        Config::ListOps(ListOps { max_length, .. }) => classify(listops::CLASSES, VOCABULARY.len(), max_length),
        Config::Copy(Copy { symbols, length, delay, objective, .. }) => match objective {
            // The symbols, the blank and the questions.
            SequenceObjective::Predict => predict(symbols + 2, 2 * length + delay + 1),
            SequenceObjective::Classify => classify(symbols, symbols + 1 + length, length + delay + 1),
        },
        Config::Recall(Recall { keys, values, pairs, distance, objective, .. }) => match objective {
            SequenceObjective::Predict => predict(keys + values + 1, 4 * pairs + distance),
            SequenceObjective::Classify => classify(values, keys + values + 1, 2 * pairs + distance + 1),
        },
        Config::Text(Text { length, tokenizer: TokenizerChoice::Bytes, .. }) => predict(256, length),
        Config::Pathfinder(Pathfinder { side, .. }) => classify(2, pathfinder::LEVELS, side.saturating_mul(side)),
        // The vocabulary, the classes or the longest sequence depend on the files, or on the generated stories.
        Config::Text(_)
        | Config::Table(_)
        | Config::Images(_)
        | Config::LraListOps(_)
        | Config::LraText(_)
        | Config::LraRetrieval(_)
        | Config::LraPathfinder(_)
        | Config::Babi(_)
        | Config::Plugin(_) => return None,
    })
}

fn predict(vocabulary: usize, max_length: usize) -> Task {
    Task { vocabulary, max_length, objective: Objective::Predict }
}

fn classify(classes: usize, vocabulary: usize, max_length: usize) -> Task {
    Task { vocabulary, max_length, objective: Objective::Classify(classes) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Prepare;
    use super::*;
    use crate::dataset::Dataset;
    use crate::testing::TestContext;

    #[test]
    fn the_planned_task_is_that_of_the_dataset() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("poem.txt");
        std::fs::write(&file, "a rose is a rose is a rose, and so on and so on until it is long enough").unwrap();
        let sizes = json!({"train": 20, "valid": 5, "test": 5});
        for options in [
            json!({"dataset": "listops", "max_length": 30}),
            json!({"dataset": "copy", "symbols": 5, "length": 4, "delay": 3}),
            json!({"dataset": "copy", "symbols": 5, "length": 4, "delay": 3, "objective": "classify"}),
            json!({"dataset": "recall", "keys": 9, "values": 6, "pairs": 3, "distance": 7}),
            json!({"dataset": "recall", "keys": 9, "values": 6, "pairs": 3, "distance": 7, "objective": "classify"}),
            json!({"dataset": "pathfinder", "side": 24, "dashes": 3}),
            json!({"dataset": "text", "file": file, "length": 8}),
        ] {
            let mut config = options;
            if config["dataset"] != "text" {
                config.as_object_mut().unwrap().extend(sizes.as_object().unwrap().clone());
            }
            let mut context = TestContext::new(assay_cpu::device(1).unwrap());
            context.run(&Prepare, config.clone()).unwrap();
            let dataset = Dataset::read(&context.artifacts["dataset"]).unwrap();
            assert_eq!(plan_task(&config), Some(dataset.task()), "{config}");
        }
        assert_eq!(plan_task(&json!({"dataset": "table", "file": "x.csv"})), None);
        assert_eq!(plan_task(&json!({"dataset": "copy"})), None, "sizes are missing");
    }
}
