//! CIFAR-10 in its binary form (Krizhevsky 2009): `data_batch_1.bin` to `data_batch_5.bin`, `test_batch.bin` and the names of the
//! classes in `batches.meta.txt`.
//!
//! A record has 3073 bytes: the label, then 32 x 32 bytes of red, as many of green, and as many of blue, row by row.

use super::published::{ImageSet, MOST_PIXELS, Published, Shape};
use crate::{DataError, Files, base};

const SIDE: usize = 32;
const PLANE: usize = SIDE * SIDE;
const RECORD: usize = 1 + 3 * PLANE;
const CLASSES: u8 = 10;

/// Reads the published files, from their folder or from `cifar-10-binary.tar.gz`. Missing training batches are allowed.
///
/// # Errors
/// If a split has no file, or a file is truncated or has a label above 9.
pub fn read_cifar10(files: &Files) -> Result<Published, DataError> {
    let is_batch = |name: &&str| base(name).starts_with("data_batch_") && base(name).ends_with(".bin");
    let batches: Vec<String> = files.names().filter(is_batch).map(str::to_owned).collect();
    if batches.is_empty() {
        // This fails with the message about the missing file.
        files.find(&["data_batch_1.bin"])?;
    }
    let test_file = files.find(&["test_batch.bin"])?.to_owned();
    let (mut train, mut test) = (ImageSet::default(), ImageSet::default());
    for name in &batches {
        read_batch(files, name, &mut train)?;
    }
    read_batch(files, &test_file, &mut test)?;
    let mut used = batches;
    used.push(test_file);
    let mut remarks = Vec::new();
    if used.len() != 6 {
        remarks.push(format!("{} of the 5 training batches are there", used.len() - 1));
    }
    let shape = Shape { width: SIDE, height: SIDE, channels: 3 };
    let classes = class_names(files)?;
    Published { shape, train, valid: None, test: Some(test), classes, files: used, remarks }.checked()
}

fn read_batch(files: &Files, name: &str, set: &mut ImageSet) -> Result<(), DataError> {
    let bytes = files.read(name, MOST_PIXELS)?;
    let (records, rest) = bytes.as_chunks::<RECORD>();
    if !rest.is_empty() || records.is_empty() {
        return Err(DataError::new(
            format!("`{name}` has {} bytes, which is not a multiple of the {RECORD} of a record", bytes.len()),
            "it is truncated or has another format: give the binary version of CIFAR-10",
        ));
    }
    for (at, record) in records.iter().enumerate() {
        if record[0] >= CLASSES {
            return Err(DataError::new(
                format!("`{name}`, record {at}: the label {} is above 9", record[0]),
                "give the binary version of CIFAR-10",
            ));
        }
        set.labels.push(u32::from(record[0]));
        let planes = &record[1..];
        for pixel in 0..PLANE {
            set.pixels.extend([planes[pixel], planes[PLANE + pixel], planes[2 * PLANE + pixel]]);
        }
    }
    Ok(())
}

/// The names of `batches.meta.txt`, or the digits if the file does not exist.
fn class_names(files: &Files) -> Result<Vec<String>, DataError> {
    let numbers = || (0..CLASSES).map(|class| class.to_string()).collect();
    let Ok(name) = files.find(&["batches.meta.txt"]) else { return Ok(numbers()) };
    let text = files.read_text(name, 1 << 16)?;
    let names: Vec<String> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    match names.len() == usize::from(CLASSES) {
        true => Ok(names),
        false => Err(DataError::new(format!("`{name}` names {} classes instead of 10", names.len()), "get it again")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(label: u8, first: [u8; 3]) -> Vec<u8> {
        let mut record = vec![0; RECORD];
        record[0] = label;
        first.into_iter().enumerate().for_each(|(channel, value)| record[1 + channel * PLANE] = value);
        record
    }

    fn read(train: &[u8], test: &[u8]) -> Result<Published, DataError> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("data_batch_2.bin"), train).unwrap();
        std::fs::write(folder.path().join("test_batch.bin"), test).unwrap();
        read_cifar10(&Files::open(folder.path(), "cifar", folder.path()).unwrap())
    }

    #[test]
    fn planes_become_pixels() {
        let train = [record(3, [10, 20, 30]), record(9, [1, 2, 3])].concat();
        let found = read(&train, &record(0, [0; 3])).unwrap();
        assert_eq!(found.train.labels, [3, 9]);
        assert_eq!(found.train.pixels[..3], [10, 20, 30]);
        assert_eq!(found.train.pixels[3 * PLANE..3 * PLANE + 3], [1, 2, 3]);
        assert_eq!(found.train.pixels.len(), 2 * found.shape.bytes());
        assert_eq!(found.remarks, ["1 of the 5 training batches are there"]);
    }

    #[test]
    fn damaged_batches_are_refused() {
        let whole = record(0, [0; 3]);
        let message = |train: &[u8]| read(train, &whole).unwrap_err().message;
        assert!(message(&whole[..RECORD - 1]).contains("3072 bytes, which is not a multiple of the 3073"));
        assert!(message(b"").contains("has 0 bytes"));
        let wrong = [whole.clone(), record(10, [0; 3])].concat();
        assert_eq!(message(&wrong), "`data_batch_2.bin`, record 1: the label 10 is above 9");
    }
}
