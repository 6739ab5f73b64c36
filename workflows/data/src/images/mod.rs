//! Labelled images: IDX files (such as MNIST), CIFAR-10 in its binary form, PNG files with a folder for each class; and the order
//! in which the pixels of an image become a sequence.

mod cifar;
mod idx;
mod order;
mod png;
mod published;
#[cfg(test)]
pub(crate) mod testing;

pub use cifar::read_cifar10;
pub use idx::read_idx;
pub use order::{PixelOrder, pixel_order};
pub(crate) use png::read_png;
pub use png::read_png_folders;
pub use published::{ImageSet, Published, Shape, luma};
