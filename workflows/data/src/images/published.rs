//! The result of an image reader: all images of each published split, in the order of the files.

use crate::DataError;

/// The most bytes of pixels that are read into memory.
pub const MOST_PIXELS: u64 = 4 << 30;

/// The size of every image of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Pixels per row.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// Bytes per pixel: 1 for grey, 3 for red, green and blue.
    pub channels: usize,
}

impl Shape {
    /// Bytes per image.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.width * self.height * self.channels
    }
}

/// The images of one split.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageSet {
    /// All pixels: image by image, row by row, the channels of a pixel together.
    pub pixels: Vec<u8>,
    /// The class of each image.
    pub labels: Vec<u32>,
}

/// A dataset of images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The size of each image.
    pub shape: Shape,
    /// The official training images.
    pub train: ImageSet,
    /// The official validation images, if published.
    pub valid: Option<ImageSet>,
    /// The official test images, if published.
    pub test: Option<ImageSet>,
    /// The name of each class.
    pub classes: Vec<String>,
    /// The files that were read.
    pub files: Vec<String>,
    /// Messages for the user, such as how many files were skipped.
    pub remarks: Vec<String>,
}

impl Published {
    /// Returns `self` if every label is the class of a training image and no split is empty.
    ///
    /// # Errors
    /// If not, with the split and the image.
    pub(crate) fn checked(self) -> Result<Self, DataError> {
        let splits = [("train", Some(&self.train)), ("valid", self.valid.as_ref()), ("test", self.test.as_ref())];
        for (name, split) in splits {
            let Some(split) = split else { continue };
            if split.labels.is_empty() {
                return Err(DataError::new(format!("the split `{name}` has no image"), "give the files as published"));
            }
            let classes = self.classes.len();
            if let Some(at) = split.labels.iter().position(|label| *label as usize >= classes) {
                let label = split.labels[at];
                return Err(DataError::new(
                    format!("image {at} of the split `{name}` has the label {label}, and there are {classes} classes"),
                    "check that the labels belong to these images",
                ));
            }
        }
        Ok(self)
    }
}

/// The brightness of a colour by ITU-R BT.601, rounded to the nearest.
#[must_use]
pub fn luma(red: u8, green: u8, blue: u8) -> u8 {
    let sum = 299 * u32::from(red) + 587 * u32::from(green) + 114 * u32::from(blue);
    u8::try_from((sum + 500) / 1000).unwrap_or(u8::MAX)
}
