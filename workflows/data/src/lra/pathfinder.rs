//! Pathfinder as published: below the folder of a difficulty (`curv_baseline`, `curv_contour_length_9`, `curv_contour_length_14`), PNG files in
//! `imgs/N`, and for each N a text file `metadata/N.npy` with a line for each image: folder, file, number, label, and more.

use crate::images::{ImageSet, Published, Shape, read_png};
use crate::{DataError, Files, base};

/// No list of images is larger, in bytes.
const MOST_BYTES: u64 = 256 << 20;

/// Reads the images of a difficulty, in the order of the lists. All of them are training images: no splits are published.
///
/// # Errors
/// If there are no lists, a line of a list is not as published, or an image is missing, damaged, or of another size.
pub fn read_pathfinder(files: &Files, difficulty: &str) -> Result<Published, DataError> {
    let marker = format!("{difficulty}/metadata/");
    let mut lists: Vec<(u64, &str)> = Vec::new();
    for name in files.names().filter(|name| format!("/{name}").contains(&format!("/{marker}"))) {
        let number = base(name).strip_suffix(".npy").and_then(|number| number.parse().ok());
        lists
            .push((number.ok_or_else(|| DataError::new(format!("`{name}` is no list of images"), "remove it"))?, name));
    }
    lists.sort_unstable();
    if lists.is_empty() {
        let message = format!("`{}` holds no list `{marker}0.npy`", files.name());
        return Err(DataError::new(message, format!("it holds {}; give another difficulty", files.some_names())));
    }
    let (mut train, mut shape, mut used) = (ImageSet::default(), None, Vec::new());
    for (_, list) in lists {
        let folder = list.trim_end_matches(base(list)).trim_end_matches("metadata/");
        let text = files.read_text(list, MOST_BYTES)?;
        used.push(list.to_owned());
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = |what: &str| {
                let message = format!("`{list}`, line {}: {what}", at + 1);
                DataError::new(message, "give the published files, unchanged")
            };
            let parts: Vec<&str> = line.split_whitespace().collect();
            let [below, file, _, label, ..] = parts.as_slice() else {
                return Err(wrong("it has no folder, file, number and label"));
            };
            let label = ["0", "1"].iter().position(|known| known == label);
            let label = label.ok_or_else(|| wrong("the label is neither 0 nor 1"))?;
            let name = format!("{folder}{below}/{file}");
            let size = read_png(files, &name, true, &mut train.pixels).map_err(|error| wrong(&error.message))?;
            if *shape.get_or_insert(size) != size {
                return Err(wrong("the image has another size than those before"));
            }
            train.labels.push(label as u32);
            used.push(name);
        }
    }
    let (width, height) = shape.unwrap_or_default();
    let classes = ["not connected", "connected"].map(String::from).into();
    let shape = Shape { width, height, channels: 1 };
    Published { shape, train, valid: None, test: None, classes, files: used, remarks: Vec::new() }.checked()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::testing::png;

    fn read(list: &str) -> Result<Published, DataError> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("pathfinder32/curv_baseline");
        for below in ["imgs/0", "imgs/1", "metadata"] {
            std::fs::create_dir_all(root.join(below)).unwrap();
        }
        std::fs::write(root.join("imgs/0/sample_0.png"), png(2, 1, 0, &[1, 2])).unwrap();
        std::fs::write(root.join("imgs/1/sample_0.png"), png(2, 1, 0, &[3, 4])).unwrap();
        std::fs::write(root.join("metadata/1.npy"), "imgs/1 sample_0.png 0 0 0.5\n").unwrap();
        std::fs::write(root.join("metadata/0.npy"), list).unwrap();
        read_pathfinder(&Files::open(folder.path(), "lra", folder.path())?, "curv_baseline")
    }

    #[test]
    fn lists_name_images_and_labels() {
        let found = read("imgs/0 sample_0.png 0 1 0.8 0 1\n").unwrap();
        assert_eq!(found.train, ImageSet { pixels: vec![1, 2, 3, 4], labels: vec![1, 0] });
        assert_eq!((found.shape.width, found.files.len()), (2, 4));
    }

    #[test]
    fn a_bad_line_is_named() {
        let message = |list: &str| read(list).unwrap_err().message;
        let list = "`pathfinder32/curv_baseline/metadata/0.npy`, line 1:";
        assert_eq!(message("imgs/0 sample_0.png 0 2"), format!("{list} the label is neither 0 nor 1"));
        assert_eq!(message("imgs/0 sample_0.png"), format!("{list} it has no folder, file, number and label"));
        assert!(message("imgs/0 sample_9.png 0 1").starts_with(&format!("{list} `lra` holds no file")));
    }
}
