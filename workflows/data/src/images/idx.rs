//! The IDX format of MNIST (LeCun, Cortes and Burges 1998), as Fashion-MNIST (Xiao, Rasul and Vollgraf 2017) and others use it.
//!
//! ```text
//! images   00 00 08 03   count   rows    columns   one byte a pixel, row by row
//! labels   00 00 08 01   count                     one byte a label
//! ```
//!
//! Counts are big-endian 32-bit integers.

use super::published::{ImageSet, MOST_PIXELS, Published, Shape};
use crate::{DataError, Files, WHOLE};

/// Reads the four files `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
/// `t10k-labels-idx1-ubyte`, with `.gz` or without.
///
/// # Errors
/// If one of them is missing, not an IDX file, truncated, or inconsistent with the others.
pub fn read_idx(files: &Files) -> Result<Published, DataError> {
    let mut used = Vec::new();
    let (train, shape) = read_split(files, "train", &mut used)?;
    let (test, other) = read_split(files, "t10k", &mut used)?;
    if shape != other {
        return Err(DataError::new(
            format!(
                "the training images of `{}` have {} x {} pixels and its test images {} x {}",
                files.name(),
                shape.width,
                shape.height,
                other.width,
                other.height
            ),
            "give the files of one dataset",
        ));
    }
    let classes = train.labels.iter().max().map_or(0, |label| label + 1);
    let classes = (0..classes).map(|class| class.to_string()).collect();
    Published { shape, train, valid: None, test: Some(test), classes, files: used, remarks: Vec::new() }.checked()
}

fn read_split(files: &Files, split: &str, used: &mut Vec<String>) -> Result<(ImageSet, Shape), DataError> {
    let find = |what: &str, dims: u8| {
        let (one, two) = (format!("{split}-{what}-idx{dims}-ubyte"), format!("{split}-{what}.idx{dims}-ubyte"));
        files.find(&[&one, &two]).map(str::to_owned)
    };
    let (images, labels) = (find("images", 3)?, find("labels", 1)?);
    let (dims, pixels) = read_array(files, &images, 3)?;
    let (counts, bytes) = read_array(files, &labels, 1)?;
    if dims[0] != counts[0] {
        return Err(DataError::new(
            format!("`{images}` has {} images and `{labels}` {} labels", dims[0], counts[0]),
            "give the files of one dataset",
        ));
    }
    used.extend([images, labels]);
    let labels = bytes.into_iter().map(u32::from).collect();
    Ok((ImageSet { pixels, labels }, Shape { width: dims[2], height: dims[1], channels: 1 }))
}

/// An array of bytes: its dimensions, and its elements.
fn read_array(files: &Files, name: &str, dims: usize) -> Result<(Vec<usize>, Vec<u8>), DataError> {
    let mut bytes = files.read(name, MOST_PIXELS.min(WHOLE))?;
    let header = 4 + 4 * dims;
    let magic = [0, 0, 8, dims as u8];
    if bytes.len() < header || bytes[..4] != magic {
        let start = bytes.iter().take(4).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
        return Err(DataError::new(
            format!("`{name}` is not an IDX file of bytes with {dims} dimensions: it begins with {start}"),
            "the published file begins with 00 00 08 and the number of dimensions",
        ));
    }
    let sizes: Vec<usize> =
        bytes[4..header].as_chunks::<4>().0.iter().map(|bytes| u32::from_be_bytes(*bytes) as usize).collect();
    let wanted = sizes.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
    if wanted != Some(bytes.len() - header) || wanted == Some(0) {
        let sizes = sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ");
        let rest = bytes.len() - header;
        return Err(DataError::new(
            format!("`{name}` declares {sizes} bytes and contains {rest}"),
            "it is truncated or damaged: get it again",
        ));
    }
    bytes.drain(..header);
    Ok((sizes, bytes))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn write(folder: &Path, name: &str, dims: &[u32], content: &[u8]) {
        let mut bytes = vec![0, 0, 8, dims.len() as u8];
        dims.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
        bytes.extend(content);
        std::fs::write(folder.join(name), bytes).unwrap();
    }

    fn four(folder: &Path) {
        write(folder, "train-images-idx3-ubyte", &[2, 1, 3], &[1, 2, 3, 4, 5, 6]);
        write(folder, "train-labels-idx1-ubyte", &[2], &[0, 2]);
        write(folder, "t10k-images-idx3-ubyte", &[1, 1, 3], &[7, 8, 9]);
        write(folder, "t10k-labels-idx1-ubyte", &[1], &[1]);
    }

    fn read(change: impl FnOnce(&Path)) -> Result<Published, DataError> {
        let folder = tempfile::tempdir().unwrap();
        four(folder.path());
        change(folder.path());
        read_idx(&Files::open(folder.path(), "mnist", folder.path())?)
    }

    #[test]
    fn the_published_files_are_read() {
        let found = read(|_| {}).unwrap();
        assert_eq!(found.shape, Shape { width: 3, height: 1, channels: 1 });
        assert_eq!((found.train.pixels.len(), found.train.labels.as_slice()), (6, [0, 2].as_slice()));
        assert_eq!(found.test.unwrap(), ImageSet { pixels: vec![7, 8, 9], labels: vec![1] });
        assert_eq!((found.classes.len(), found.files.len()), (3, 4));
    }

    #[test]
    fn damaged_files_are_refused() {
        let message = |change: fn(&Path)| read(change).unwrap_err().message;
        let truncated = message(|folder| write(folder, "train-images-idx3-ubyte", &[2, 1, 3], &[1, 2, 3, 4]));
        assert_eq!(truncated, "`train-images-idx3-ubyte` declares 2 x 1 x 3 bytes and contains 4");
        let huge = message(|folder| write(folder, "train-images-idx3-ubyte", &[u32::MAX; 3], &[1]));
        assert!(huge.contains("and contains 1"), "{huge}");
        let empty = message(|folder| std::fs::write(folder.join("t10k-labels-idx1-ubyte"), b"").unwrap());
        assert!(empty.contains("not an IDX file of bytes with 1 dimensions"), "{empty}");
        let counts = message(|folder| write(folder, "t10k-labels-idx1-ubyte", &[2], &[1, 1]));
        assert!(counts.contains("1 images and `t10k-labels-idx1-ubyte` 2 labels"), "{counts}");
        let label = message(|folder| write(folder, "t10k-labels-idx1-ubyte", &[1], &[9]));
        assert_eq!(label, "image 0 of the split `test` has the label 9, and there are 3 classes");
        let shape = message(|folder| write(folder, "t10k-images-idx3-ubyte", &[1, 3, 1], &[7, 8, 9]));
        assert!(shape.contains("3 x 1 pixels and its test images 1 x 3"), "{shape}");
        let none = message(|folder| write(folder, "t10k-images-idx3-ubyte", &[0, 1, 3], &[]));
        assert!(none.contains("declares 0 x 1 x 3 bytes"), "{none}");
        let missing = message(|folder| std::fs::remove_file(folder.join("t10k-labels-idx1-ubyte")).unwrap());
        assert_eq!(missing, "`mnist` contains no file `t10k-labels-idx1-ubyte`");
    }
}
