//! `dataset: images`: labelled images as sequences of pixels (Le, Jaitly and Hinton 2015, section 4.2; the task Image of Long Range
//! Arena, Tay et al. 2021).
//!
//! A token is a level of brightness. A grey image of `width x height` pixels has that many tokens; a coloured one has three for
//! each pixel: red, green, blue. Colours are converted to grey by the luma of ITU-R BT.601.

use assay_data::images::{self, ImageSet, Published, Shape, luma, pixel_order};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::prepared::{ConfigProblem, PreparedDataset, range_problem};
use super::source::{LocalFile, MOST_BYTES, digests};
use super::splits::{SplitSizes, check_tokens};
use crate::context::{Context, StepError};
use crate::dataset::{Goal, Split};

/// The parameters of `dataset: images`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Images {
    /// The folder or the archive with the published files, relative to the folder of the workflow file. Its content, not its
    /// path, goes into the store and into the cache key.
    #[schemars(with = "String", extend("format" = assay_spec::LOCAL_FILE, "x-max-bytes" = MOST_BYTES))]
    pub path: LocalFile,
    /// How the images are stored.
    pub format: Format,
    /// One token per pixel, or three.
    #[serde(default)]
    pub channels: Channels,
    /// The order of the pixels.
    #[serde(default)]
    pub order: PixelOrder,
    /// Each square of this width and height in pixels is averaged to one pixel. It must divide both sides.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1024))]
    pub shrink: usize,
    /// The number of brightness levels, which is the vocabulary: 256 keeps every published level.
    #[serde(default = "all_levels")]
    #[schemars(range(min = 2, max = 256))]
    pub levels: usize,
    /// The largest number of training images; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub train: Option<usize>,
    /// The largest number of validation images. If none are published, this number of training images is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub valid: Option<usize>,
    /// The largest number of test images. If none are published, this number of training images is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub test: Option<usize>,
    /// The part of the training images that is for validation, if no validation images are published and `valid` is absent.
    #[serde(default = "tenth")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub valid_fraction: f64,
    /// The part of the training images that is for the test, if no test images are published and `test` is absent.
    #[serde(default = "tenth")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub test_fraction: f64,
    /// Decides which images are used.
    #[serde(default)]
    pub seed: u64,
}

/// How images are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// The four files of MNIST, Fashion-MNIST and similar datasets, with `.gz` or without: `train-images-idx3-ubyte`,
    /// `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte`, `t10k-labels-idx1-ubyte`.
    Idx,
    /// The binary version of CIFAR-10: `data_batch_1.bin` to `data_batch_5.bin`, `test_batch.bin`, or the published archive.
    Cifar10,
    /// PNG files of one size in a folder for each class: `CLASS/NAME.png`, or `train/CLASS/NAME.png` with `test` and
    /// optionally `valid`.
    Png,
}

/// What a pixel becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Channels {
    /// One token: the brightness.
    #[default]
    Grey,
    /// Three tokens: red, green and blue. Grey images repeat their brightness.
    Rgb,
}

/// In which order pixels come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PixelOrder {
    /// Row by row, from the top left.
    #[default]
    Rows,
    /// Along Hilbert's curve, which keeps neighbours of the plane closer together.
    Hilbert,
}

fn one() -> usize {
    1
}
fn all_levels() -> usize {
    256
}
fn tenth() -> f64 {
    0.1
}

impl Images {
    /// The first invalid parameter, as far as it can be detected without the images.
    #[must_use]
    pub fn find_problem(&self) -> Option<ConfigProblem> {
        let numbers = [("shrink", self.shrink, 1, 1024), ("levels", self.levels, 2, 256)];
        range_problem(&numbers).or_else(|| self.split_sizes().find_problem())
    }

    fn split_sizes(&self) -> SplitSizes {
        SplitSizes {
            most: [self.train, self.valid, self.test],
            valid_fraction: self.valid_fraction,
            test_fraction: self.test_fraction,
            seed: self.seed,
        }
    }

    /// # Errors
    /// [`StepError::Failed`] if the files cannot be read, or leave a split without images.
    pub fn make_dataset(&self, context: &dyn Context) -> Result<PreparedDataset, StepError> {
        let files = self.path.open(context)?;
        let found = match self.format {
            Format::Idx => images::read_idx(&files)?,
            Format::Cifar10 => images::read_cifar10(&files)?,
            Format::Png => images::read_png_folders(&files, self.channels == Channels::Grey)?,
        };
        if context.cancelled() {
            return Err(StepError::Cancelled);
        }
        let length = self.length(found.shape)?;
        let published = [Some(&found.train), found.valid.as_ref(), found.test.as_ref()];
        let chosen = self.split_sizes().assign_samples(published.map(|set| set.map(|set| set.labels.len())))?;
        let samples: usize = chosen.iter().map(|split| split.samples.len()).sum();
        let what = format!("the images of `{}`", files.name());
        let hint = "take fewer images with train, valid and test, or smaller ones with shrink";
        check_tokens(samples as u64 * length as u64, &what, hint)?;
        let places = self.places(found.shape);
        let [train, valid, test] = chosen.map(|split| {
            // Only published splits are chosen from.
            let set = published[split.from].unwrap_or(&found.train);
            self.sequences(set, found.shape, &places, &split.samples)
        });
        let Published { classes, shape, remarks, .. } = found;
        Ok(PreparedDataset {
            name: "images",
            description: format!(
                "Images of `{}`, {} x {} pixels, as sequences of {length} levels of brightness.",
                files.name(),
                shape.width,
                shape.height
            ),
            vocabulary: (0..self.levels).map(|level| level.to_string()).collect(),
            goal: Goal::Classify,
            classes: classes.len(),
            max_length: length,
            train,
            valid,
            test,
            notes: remarks,
            labels: classes,
            sources: digests(&files, &found.files)?,
            ..PreparedDataset::default()
        })
    }

    /// The tokens of an image.
    fn length(&self, shape: Shape) -> Result<usize, StepError> {
        if !shape.width.is_multiple_of(self.shrink) || !shape.height.is_multiple_of(self.shrink) {
            return Err(StepError::Failed {
                message: format!("shrink {} does not divide images of {} x {}", self.shrink, shape.width, shape.height),
                hint: Some("give a divisor of both sides, such as 2".into()),
            });
        }
        let channels = if self.channels == Channels::Rgb { 3 } else { 1 };
        Ok(shape.width / self.shrink * (shape.height / self.shrink) * channels)
    }

    /// The corners, as column and row of the published image, of the squares that become pixels, in the order of the sequence.
    fn places(&self, shape: Shape) -> Vec<(usize, usize)> {
        let order = match self.order {
            PixelOrder::Rows => images::PixelOrder::Rows,
            PixelOrder::Hilbert => images::PixelOrder::Hilbert,
        };
        let width = shape.width / self.shrink;
        let places = pixel_order(order, width, shape.height / self.shrink).into_iter();
        places.map(|place| (place % width * self.shrink, place / width * self.shrink)).collect()
    }

    fn sequences(&self, set: &ImageSet, shape: Shape, places: &[(usize, usize)], samples: &[usize]) -> Split {
        let mut split = Split::default();
        let mut tokens = Vec::new();
        for sample in samples {
            tokens.clear();
            let image = &set.pixels[sample * shape.bytes()..][..shape.bytes()];
            for corner in places {
                let [red, green, blue] = self.mean(image, shape, *corner);
                match self.channels {
                    Channels::Rgb => tokens.extend([red, green, blue].map(|value| self.level(value))),
                    Channels::Grey if shape.channels == 1 => tokens.push(self.level(red)),
                    Channels::Grey => tokens.push(self.level(luma(red, green, blue))),
                }
            }
            split.push(&tokens, set.labels[*sample]);
        }
        split
    }

    /// The mean colour of a square, rounded to the nearest.
    fn mean(&self, image: &[u8], shape: Shape, (left, top): (usize, usize)) -> [u8; 3] {
        let mut sums = [0_usize; 3];
        for (row, column) in (0..self.shrink).flat_map(|row| (0..self.shrink).map(move |column| (row, column))) {
            let at = ((top + row) * shape.width + left + column) * shape.channels;
            for (channel, sum) in sums.iter_mut().enumerate() {
                *sum += usize::from(image[at + if shape.channels == 3 { channel } else { 0 }]);
            }
        }
        let count = self.shrink * self.shrink;
        sums.map(|sum| u8::try_from((sum + count / 2) / count).unwrap_or(u8::MAX))
    }

    fn level(&self, value: u8) -> u32 {
        (usize::from(value) * self.levels / 256) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;
    use crate::prepare::Prepare;
    use crate::testing::TestContext;

    /// Four training images of 2 x 2 pixels and one for the test, in the form of MNIST.
    fn mnist(folder: &Path) {
        let idx = |name: &str, header: &[u8], content: &[u8]| {
            std::fs::write(folder.join(name), [header, content].concat()).unwrap();
        };
        let train: Vec<u8> = (0..16).map(|pixel| pixel * 16).collect();
        idx("train-images-idx3-ubyte", &[0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 2], &train);
        idx("train-labels-idx1-ubyte", &[0, 0, 8, 1, 0, 0, 0, 4], &[0, 1, 0, 1]);
        idx("t10k-images-idx3-ubyte", &[0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2], &[0, 100, 200, 255]);
        idx("t10k-labels-idx1-ubyte", &[0, 0, 8, 1, 0, 0, 0, 1], &[1]);
    }

    fn made(more: Value) -> Result<(PreparedDataset, TestContext), StepError> {
        let folder = tempfile::tempdir().unwrap();
        mnist(folder.path());
        let mut config = json!({"path": folder.path(), "format": "idx", "valid": 1});
        more.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
        let context = TestContext::new(assay_cpu::device(1).unwrap());
        let config: Images = serde_json::from_value(config).unwrap();
        assert_eq!(config.find_problem(), None);
        config.make_dataset(&context).map(|made| (made, context))
    }

    #[test]
    fn pixels_become_tokens_in_the_asked_order() {
        let test = |more| made(more).unwrap().0.test.sequence(0).to_vec();
        assert_eq!(test(json!({})), [0, 100, 200, 255]);
        assert_eq!(test(json!({"order": "hilbert"})), [0, 200, 255, 100]);
        assert_eq!(test(json!({"levels": 2})), [0, 0, 1, 1]);
        assert_eq!(test(json!({"shrink": 2})), [139]);
        assert_eq!(test(json!({"channels": "rgb", "shrink": 2})), [139, 139, 139]);
        let (made, _) = made(json!({})).unwrap();
        assert_eq!([made.train.len(), made.valid.len(), made.test.len()], [3, 1, 1]);
        assert_eq!((made.classes, made.max_length, made.sources.files.len()), (2, 4, 4));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let error = |more| made(more).err().unwrap().to_string();
        assert_eq!(error(json!({"shrink": 3})), "shrink 3 does not divide images of 2 x 2");
        assert!(error(json!({"valid": 4})).contains("the split `train` has no sample"));
        assert!(error(json!({"format": "cifar10"})).contains("contains no file `data_batch_1.bin`"));
        assert!(error(json!({"format": "png"})).contains("contains no PNG file"));
        assert!(error(json!({"path": "/nowhere"})).contains("`nowhere` cannot be read"));
    }

    /// Debian's package of Fashion-MNIST; tests/run installs it.
    const FASHION: &str = "/usr/share/datasets/fashion-mnist";

    #[test]
    fn fashion_mnist_is_read_as_published() {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        let config = json!({"dataset": "images", "path": FASHION, "format": "idx", "train": 2000, "valid": 500});
        context.run(&Prepare, config).unwrap();
        let dataset = crate::dataset::Dataset::read(&context.artifacts["dataset"]).unwrap();
        assert_eq!(dataset.splits().map(|(_, split)| split.len()), [2000, 500, 10_000]);
        assert_eq!((dataset.about.classes, dataset.about.max_length, dataset.about.vocabulary.len()), (10, 784, 256));
        // The published test set has 1,000 images of each class, and the first is an ankle boot.
        for class in 0..10 {
            assert_eq!(context.last(&format!("data/test/label/{class}")), Some(0.1));
        }
        assert_eq!(dataset.test.labels()[0], 9);
        assert_eq!(context.last("data/test/shared_with/train").map(f64::fract), Some(0.0));
        let hashed = &dataset.about.sources.files;
        assert_eq!(hashed.len(), 4);
        for file in hashed {
            let published = std::fs::read(Path::new(FASHION).join(&file.name)).unwrap();
            assert_eq!(
                (file.bytes, &file.blake3),
                (published.len() as u64, &blake3::hash(&published).to_hex().to_string())
            );
        }
    }
}
