//! `dataset: pathfinder`: generated images with two dots and dashed paths: does one path connect the dots? `assay_data::pathfinder`
//! describes the scenes and their source.
//!
//! A sequence is the pixels of an image row by row, with 256 levels of brightness. Common sides are 32, 64, 128 (Path-X) and 256. The
//! lengths of dashes and gaps grow with the side unless they are given.

use assay_data::pathfinder::Scene;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::prepared::{ConfigProblem, MAX_TOKENS, PreparedDataset, range_problem};
use crate::context::StepError;
use crate::dataset::{Goal, Split};

/// The levels of brightness.
pub const LEVELS: usize = 256;

/// The parameters of `dataset: pathfinder`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pathfinder {
    /// Number of training images.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub train: usize,
    /// Number of validation images.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub valid: usize,
    /// Number of test images.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub test: usize,
    /// Width and height of an image in pixels; a sequence has the square of it. 128 is Path-X.
    #[serde(default = "thirty_two")]
    #[schemars(range(min = 16, max = 256))]
    pub side: usize,
    /// Dashes of the two long paths, the contour length of the published data: 6, 9 and 14 are its difficulties.
    #[serde(default = "six")]
    #[schemars(range(min = 2, max = 64))]
    pub dashes: usize,
    /// Number of further paths, of a third as many dashes; if absent 3, or 1 for more than 9 dashes on a side below 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 64))]
    pub distractors: Option<usize>,
    /// Length of a dash in pixels; a sixteenth of the side if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1.0, max = 64.0))]
    pub dash: Option<f64>,
    /// Distance between two dashes of a path in pixels; half of a dash if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1.0, max = 64.0))]
    pub gap: Option<f64>,
    /// The largest angle between two successive dashes, in degrees.
    #[serde(default = "forty")]
    #[schemars(range(min = 0.0, max = 180.0))]
    pub bend: f64,
    /// The same seed gives the same dataset.
    #[serde(default)]
    pub seed: u64,
}

fn thirty_two() -> usize {
    32
}
fn six() -> usize {
    6
}
fn forty() -> f64 {
    40.0
}

impl Pathfinder {
    /// The first invalid parameter, as far as it can be detected without drawing.
    #[must_use]
    pub fn find_problem(&self) -> Option<ConfigProblem> {
        let scene = self.scene();
        let numbers = [
            ("train", self.train, 1, 1_000_000),
            ("valid", self.valid, 1, 1_000_000),
            ("test", self.test, 1, 1_000_000),
            ("side", self.side, 16, 256),
            ("dashes", self.dashes, 2, 64),
            ("distractors", scene.distractors, 0, 64),
        ];
        let lengths =
            [("dash", scene.dash, 1.0, 64.0), ("gap", scene.gap, 1.0, 64.0), ("bend", scene.bend, 0.0, 180.0)];
        range_problem(&numbers).or_else(|| range_problem(&lengths)).or_else(|| {
            let images = self.train + self.valid + self.test;
            let tokens = images as u64 * (self.side * self.side) as u64;
            let message = format!("{images} images are {tokens} tokens");
            let hint = format!("ask for fewer or smaller ones: the limit is {MAX_TOKENS} tokens in all");
            (tokens > MAX_TOKENS).then_some(("train", message, hint))
        })
    }

    fn scene(&self) -> Scene {
        let dash = self.dash.unwrap_or((self.side as f64 / 16.0).max(2.0));
        Scene {
            side: self.side,
            dashes: self.dashes,
            distractors: self.distractors.unwrap_or(Scene::usual_distractors(self.side, self.dashes)),
            dash,
            gap: self.gap.unwrap_or((dash / 2.0).max(1.0)),
            bend: self.bend,
        }
    }

    /// Draws the dataset. `keep_going` is called at intervals with the number of images so far.
    ///
    /// # Errors
    /// [`StepError::Failed`] if the paths do not fit; [`StepError::Cancelled`] if `keep_going` returns false.
    pub fn make_dataset(&self, mut keep_going: impl FnMut(usize) -> bool) -> Result<PreparedDataset, StepError> {
        let scene = self.scene();
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut drawn = 0;
        let mut draw = |count: usize| {
            let mut split = Split::default();
            for _ in 0..count {
                if drawn % 16 == 0 && !keep_going(drawn) {
                    return Err(StepError::Cancelled);
                }
                let drawing = scene.draw(&mut rng)?;
                let tokens: Vec<u32> = drawing.pixels.iter().map(|pixel| u32::from(*pixel)).collect();
                split.push(&tokens, u32::from(drawing.connected));
                drawn += 1;
            }
            Ok(split)
        };
        let (train, valid, test) = (draw(self.train)?, draw(self.valid)?, draw(self.test)?);
        let side = self.side;
        Ok(PreparedDataset {
            name: "pathfinder",
            description: format!("Are two dots on {side} x {side} pixels the ends of one dashed path? 1 is yes."),
            vocabulary: (0..LEVELS).map(|level| level.to_string()).collect(),
            goal: Goal::Classify,
            classes: 2,
            max_length: side * side,
            train,
            valid,
            test,
            ..PreparedDataset::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(more: serde_json::Value) -> Pathfinder {
        let mut config = json!({"train": 8, "valid": 2, "test": 2});
        more.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
        serde_json::from_value(config).unwrap()
    }

    #[test]
    fn images_of_every_published_size_are_made() {
        for side in [32, 64, 128] {
            let config = config(json!({"side": side, "dashes": 14}));
            assert_eq!(config.find_problem(), None);
            let made = config.make_dataset(|_| true).unwrap();
            assert_eq!([made.train.len(), made.valid.len(), made.test.len()], [8, 2, 2]);
            assert!(made.train.lengths().all(|length| length == side * side));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let key = |more| config(more).find_problem().unwrap().0;
        assert_eq!(key(json!({"side": 8})), "side");
        assert_eq!(key(json!({"gap": 0.5})), "gap");
        assert_eq!(key(json!({"train": 100_000, "side": 128})), "train");
        let crowded = config(json!({"dashes": 64, "distractors": 64})).make_dataset(|_| true).err().unwrap();
        assert!(crowded.to_string().contains("do not fit on 32 x 32 pixels"), "{crowded}");
        assert_eq!(config(json!({})).make_dataset(|_| false).err(), Some(StepError::Cancelled));
    }
}
