//! Pathfinder as published: below the folder of a difficulty (`curv_baseline`, `curv_contour_length_9`, `curv_contour_length_14`), PNG files in
//! `imgs/N`, and for each N a text file `metadata/N.npy` with a line for each image: folder, file, number, label, and more.

use std::collections::BTreeSet;

use crate::images::{ImageSet, Published, Shape, read_png};
use crate::{DataError, Files, base};

/// This file of the release (in `pathfinder32`) is empty. Its line is skipped, with a remark.
const EMPTY_IN_RELEASE: &str = "curv_baseline/imgs/0/sample_172.png";

/// The size limit of a list of images, in bytes.
const MOST_BYTES: u64 = 256 << 20;

/// The lists of a difficulty in one folder, in the order of their numbers. The release has a folder for each resolution, such as
/// `pathfinder32`. `resolution` chooses one; it is required if the files have more than one of these folders.
fn find_lists<'a>(files: &'a Files, difficulty: &str, resolution: Option<usize>) -> Result<Vec<&'a str>, DataError> {
    let marker = format!("{difficulty}/metadata/");
    let mut lists: Vec<(u64, &str)> = Vec::new();
    let mut folders = BTreeSet::new();
    for name in files.names().filter(|name| format!("/{name}").contains(&format!("/{marker}"))) {
        let folder = name.trim_end_matches(base(name)).trim_end_matches(&marker).trim_end_matches('/');
        let side = base(folder).strip_prefix("pathfinder").and_then(|side| side.parse::<usize>().ok());
        if side.is_some() && resolution.is_some() && side != resolution {
            continue;
        }
        folders.insert(folder);
        let number = base(name).strip_suffix(".npy").and_then(|number| number.parse().ok());
        lists.push((
            number.ok_or_else(|| DataError::new(format!("`{name}` is not a list of images"), "remove it"))?,
            name,
        ));
    }
    lists.sort_unstable();
    if lists.is_empty() {
        let message = format!("`{}` contains no list `{marker}0.npy`", files.name());
        return Err(DataError::new(
            message,
            format!("it contains {}; give another difficulty or resolution", files.some_names()),
        ));
    }
    match folders.iter().collect::<Vec<_>>().as_slice() {
        [first, second, ..] => Err(DataError::new(
            format!("`{}` holds `{difficulty}` in more than one resolution: `{first}` and `{second}`", files.name()),
            "give `resolution`, such as 32",
        )),
        _ => Ok(lists.into_iter().map(|(_, list)| list).collect()),
    }
}

/// Reads the images of a difficulty, in the order of the lists. All of them are training images: no splits are published.
///
/// # Errors
/// If there are no lists, or lists of several resolutions without `resolution`; if a line of a list does not follow the published
/// format, or an image is missing, damaged, or of another size.
pub fn read_pathfinder(files: &Files, difficulty: &str, resolution: Option<usize>) -> Result<Published, DataError> {
    let lists = find_lists(files, difficulty, resolution)?;
    let (mut train, mut shape, mut used) = (ImageSet::default(), None, Vec::new());
    let mut remarks = Vec::new();
    for list in lists {
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
            if name.ends_with(EMPTY_IN_RELEASE) && files.bytes(&name) == 0 {
                remarks.push(format!("`{name}` is empty, as it was published, and is left out"));
                continue;
            }
            let size = read_png(files, &name, true, &mut train.pixels).map_err(|error| wrong(&error.message))?;
            let (width, height) = *shape.get_or_insert(size);
            if (width, height) != size {
                let (other_width, other_height) = size;
                return Err(wrong(&format!(
                    "the image has {other_width} x {other_height} pixels, and those before {width} x {height}"
                )));
            }
            if let Some(side) = resolution.filter(|side| (*side, *side) != size) {
                return Err(wrong(&format!("the image has {width} x {height} pixels, and `resolution` is {side}")));
            }
            train.labels.push(label as u32);
            used.push(name);
        }
    }
    let (width, height) = shape.unwrap_or_default();
    let classes = ["not connected", "connected"].map(String::from).into();
    let shape = Shape { width, height, channels: 1 };
    Published { shape, train, valid: None, test: None, classes, files: used, remarks }.checked()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::testing::png;

    #[test]
    fn the_empty_image_of_the_release_is_left_out_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join("pathfinder32/curv_baseline").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        let read =
            || read_pathfinder(&Files::open(folder.path(), "lra", folder.path()).unwrap(), "curv_baseline", None);
        write("metadata/0.npy", b"imgs/0 sample_171.png 171 1\nimgs/0 sample_172.png 172 0\n");
        write("imgs/0/sample_171.png", &png(2, 1, 0, &[1, 2]));
        write("imgs/0/sample_172.png", b"");
        let found = read().unwrap();
        assert_eq!(found.train.labels, [1]);
        let expected =
            "`pathfinder32/curv_baseline/imgs/0/sample_172.png` is empty, as it was published, and is left out";
        assert_eq!(found.remarks, [expected]);
        // A damaged file with another name, or one that is not empty, is an error.
        write("imgs/0/sample_172.png", b"x");
        assert!(read().unwrap_err().message.contains("line 2: `pathfinder32/curv_baseline/imgs/0/sample_172.png`"));
        write("imgs/0/sample_172.png", b"");
        write("imgs/0/sample_171.png", b"");
        assert!(read().unwrap_err().message.contains("line 1: `pathfinder32/curv_baseline/imgs/0/sample_171.png`"));
    }

    #[test]
    fn the_resolution_chooses_a_folder_of_the_release() {
        let folder = tempfile::tempdir().unwrap();
        for side in [32, 64] {
            let root = folder.path().join(format!("lra_release/pathfinder{side}/curv_baseline"));
            std::fs::create_dir_all(root.join("imgs/0")).unwrap();
            std::fs::create_dir_all(root.join("metadata")).unwrap();
            std::fs::write(root.join("imgs/0/a.png"), png(side, side, 0, &vec![1; (side * side) as usize])).unwrap();
            std::fs::write(root.join("metadata/0.npy"), "imgs/0 a.png 0 1").unwrap();
        }
        let read = |path: &str, resolution| {
            let files = Files::open(&folder.path().join(path), "lra", folder.path()).unwrap();
            read_pathfinder(&files, "curv_baseline", resolution)
        };
        assert_eq!(read("", Some(64)).unwrap().shape.width, 64);
        assert_eq!(read("lra_release/pathfinder32", Some(32)).unwrap().shape.width, 32);
        let message = |path, resolution| read(path, resolution).unwrap_err().message;
        assert!(message("", None).contains("in more than one resolution: `lra_release/pathfinder32` and"));
        assert!(message("", Some(128)).contains("contains no list `curv_baseline/metadata/0.npy`"));
        let other = message("lra_release/pathfinder32", Some(64));
        assert!(other.contains("the image has 32 x 32 pixels, and `resolution` is 64"), "{other}");
    }

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
        read_pathfinder(&Files::open(folder.path(), "lra", folder.path())?, "curv_baseline", None)
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
        assert!(message("imgs/0 sample_9.png 0 1").starts_with(&format!("{list} `lra` contains no file")));
    }
}
