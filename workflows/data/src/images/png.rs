//! PNG files in a folder for each class: `CLASS/NAME.png`, or `SPLIT/CLASS/NAME.png` if the splits are published.

use std::collections::{BTreeMap, BTreeSet};

use minipng::{decode_png, decode_png_header};

use super::published::{ImageSet, MOST_PIXELS, Published, Shape, luma};
use crate::{DataError, Files};

/// The folder names that are splits, not classes.
const SPLITS: [(&str, Split); 6] = [
    ("train", Split::Train),
    ("training", Split::Train),
    ("valid", Split::Valid),
    ("val", Split::Valid),
    ("test", Split::Test),
    ("testing", Split::Test),
];

/// The size limit of a PNG file, in bytes.
const MOST_BYTES: u64 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Split {
    Train,
    Valid,
    Test,
}

/// Reads every PNG file; the folder of a file is its class. `grey` converts colours into the luma of ITU-R BT.601, as one byte
/// per pixel; otherwise every pixel has three bytes. Of 16 bits per channel, the upper 8 are read.
///
/// # Errors
/// If a file is not a PNG, is damaged, transparent or interlaced, has a different size than the first, or is not in the folder of a class.
pub fn read_png_folders(files: &Files, grey: bool) -> Result<Published, DataError> {
    let (pngs, others): (Vec<&str>, Vec<&str>) =
        files.names().partition(|name| name.to_ascii_lowercase().ends_with(".png"));
    let placed = place(files, &pngs)?;
    let classes: BTreeSet<&str> = placed.iter().map(|(_, class, _)| *class).collect();
    let index: BTreeMap<&str, u32> = classes.iter().zip(0..).map(|(class, index)| (*class, index)).collect();
    let mut shape = None;
    let mut sets: BTreeMap<Split, ImageSet> = BTreeMap::new();
    for (split, class, name) in &placed {
        let set = sets.entry(*split).or_default();
        let (width, height) = read_png(files, name, grey, &mut set.pixels)?;
        set.labels.push(index[class]);
        let (first, wanted) = shape.get_or_insert((*name, (width, height)));
        if *wanted != (width, height) {
            return Err(DataError::new(
                format!("`{name}` has {width} x {height} pixels and `{first}` {} x {}", wanted.0, wanted.1),
                "bring all images to one size",
            ));
        }
    }
    let (_, (width, height)) = shape.unwrap_or_default();
    let remarks = match others.as_slice() {
        [] => Vec::new(),
        [first, ..] => vec![format!("{} files that are not PNG are left out, such as `{first}`", others.len())],
    };
    let published = Published {
        shape: Shape { width, height, channels: if grey { 1 } else { 3 } },
        train: sets.remove(&Split::Train).unwrap_or_default(),
        valid: sets.remove(&Split::Valid),
        test: sets.remove(&Split::Test),
        classes: classes.into_iter().map(str::to_owned).collect(),
        files: pngs.into_iter().map(str::to_owned).collect(),
        remarks,
    };
    published.checked()
}

/// The split, the class and the name of each file.
fn place<'a>(files: &Files, pngs: &[&'a str]) -> Result<Vec<(Split, &'a str, &'a str)>, DataError> {
    if pngs.is_empty() {
        let message = format!("`{}` contains no PNG file", files.name());
        return Err(DataError::new(message, format!("it contains {}", files.some_names())));
    }
    let split_of =
        |name: &str| SPLITS.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, split)| *split);
    let parts = |name: &'a str| name.split('/').collect::<Vec<_>>();
    let with_splits =
        pngs.iter().all(|name| parts(name).iter().rev().nth(2).is_some_and(|part| split_of(part).is_some()));
    let mut placed = Vec::new();
    let depth = parts(pngs[0]).len();
    for name in pngs {
        let parts = parts(name);
        let at = parts.len();
        if at < 2 || at != depth {
            return Err(DataError::new(
                format!("`{name}` of `{}` is not in the folder of a class", files.name()),
                "give CLASS/NAME.png for every image, or train/CLASS/NAME.png and test/CLASS/NAME.png",
            ));
        }
        let split = if with_splits { split_of(parts[at - 3]) } else { Some(Split::Train) };
        placed.push((split.unwrap_or(Split::Train), parts[at - 2], *name));
    }
    let folders: BTreeSet<_> = pngs.iter().map(|name| parts(name)[..depth.saturating_sub(2)].join("/")).collect();
    match folders.iter().nth(1).filter(|_| !with_splits) {
        None => Ok(placed),
        Some(folder) => Err(DataError::new(
            format!("the classes of `{}` are in more than one folder, such as `{folder}`", files.name()),
            "name the splits train, valid and test, or give the folder of the classes",
        )),
    }
}

/// Appends the pixels of an image, and returns its width and height.
///
/// # Errors
/// If the image cannot be read, or all images together have too many pixels.
pub(crate) fn read_png(
    files: &Files,
    name: &str,
    grey: bool,
    pixels: &mut Vec<u8>,
) -> Result<(usize, usize), DataError> {
    read_png_up_to(files, name, grey, pixels, MOST_PIXELS)
}

/// As [`read_png`], with a limit of `most` bytes for `pixels`.
fn read_png_up_to(
    files: &Files,
    name: &str,
    grey: bool,
    pixels: &mut Vec<u8>,
    most: u64,
) -> Result<(usize, usize), DataError> {
    let bytes = files.read(name, MOST_BYTES)?;
    let damaged = |error: minipng::Error| {
        let hint = match error {
            minipng::Error::UnsupportedInterlace => "save it without interlacing",
            _ => "it is damaged, or not a PNG: get it again",
        };
        DataError::new(format!("`{name}` cannot be read as PNG: {error}"), hint)
    };
    let header = decode_png_header(&bytes).map_err(damaged)?;
    let (width, height) = (header.width() as usize, header.height() as usize);
    let room = header.required_bytes_rgba8bpc().max(header.required_bytes());
    // Data that expand a thousandfold are meant to exhaust the memory: deflate's limit is about that.
    if room as u64 > MOST_PIXELS.min(1032 * 64 * bytes.len() as u64) {
        let message = format!("`{name}` declares {width} x {height} pixels in {} bytes", bytes.len());
        return Err(DataError::new(message, "bring the images to a size that a model can read"));
    }
    let more = (width * height * if grey { 1 } else { 3 }) as u64;
    if pixels.len() as u64 + more > most {
        let message = format!("up to `{name}`, the images have more than {most} bytes of pixels together");
        return Err(DataError::new(message, "take fewer images, or smaller ones"));
    }
    let mut buffer = vec![0; room];
    let mut image = decode_png(&bytes, &mut buffer).map_err(damaged)?;
    image.convert_to_rgba8bpc().map_err(damaged)?;
    for [red, green, blue, alpha] in image.pixels().as_chunks::<4>().0 {
        if *alpha != u8::MAX {
            return Err(DataError::new(format!("`{name}` is transparent"), "save it on a background of your choice"));
        }
        match grey {
            true => pixels.push(luma(*red, *green, *blue)),
            false => pixels.extend([*red, *green, *blue]),
        }
    }
    Ok((width, height))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::testing::png;

    fn read(images: &[(&str, Vec<u8>)], grey: bool) -> Result<Published, DataError> {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in images {
            std::fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        read_png_folders(&Files::open(folder.path(), "pictures", folder.path())?, grey)
    }

    #[test]
    fn folders_are_classes_and_splits() {
        let (grey, red) = (png(2, 1, 0, &[7, 9]), png(2, 1, 2, &[255, 0, 0, 0, 0, 255]));
        let images = [("cat/1.png", grey.clone()), ("dog/2.PNG", red.clone()), ("dog/notes.txt", b"x".to_vec())];
        let found = read(&images, true).unwrap();
        assert_eq!(
            (found.classes.as_slice(), found.train.labels.as_slice()),
            (["cat", "dog"].map(String::from).as_slice(), [0, 1].as_slice())
        );
        assert_eq!(found.train.pixels, [7, 9, 76, 29]);
        assert_eq!(found.remarks, ["1 files that are not PNG are left out, such as `dog/notes.txt`"]);
        assert!(found.test.is_none());
        let images = [("set/train/a/1.png", grey.clone()), ("set/train/b/1.png", grey), ("set/test/b/1.png", red)];
        let found = read(&images, false).unwrap();
        assert_eq!((found.train.labels, found.train.pixels), (vec![0, 1], [[7; 3], [9; 3], [7; 3], [9; 3]].concat()));
        assert_eq!(found.test.unwrap(), ImageSet { pixels: vec![255, 0, 0, 0, 0, 255], labels: vec![1] });
    }

    #[test]
    fn what_is_no_such_image_is_named() {
        let good = png(2, 1, 0, &[7, 9]);
        let message =
            |bytes: &[u8]| read(&[("a/1.png", good.clone()), ("a/2.png", bytes.to_vec())], true).unwrap_err().message;
        assert!(message(b"GIF89a").starts_with("`a/2.png` cannot be read as PNG"));
        assert!(message(b"").starts_with("`a/2.png` cannot be read as PNG"));
        assert!(message(&good[..good.len() - 20]).starts_with("`a/2.png` cannot be read as PNG"));
        assert_eq!(message(&png(1, 2, 0, &[7, 9])), "`a/2.png` has 1 x 2 pixels and `a/1.png` 2 x 1");
        assert_eq!(message(&png(2, 1, 6, &[1, 2, 3, 255, 1, 2, 3, 0])), "`a/2.png` is transparent");
        let mut huge = good.clone();
        huge[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(message(&huge).contains("`a/2.png`"));
        let misplaced = read(&[("a/1.png", good.clone()), ("2.png", good.clone())], true).unwrap_err().message;
        assert!(misplaced.contains("is not in the folder of a class"), "{misplaced}");
        let none = read(&[("a/1.txt", good)], true).unwrap_err();
        assert_eq!(
            (none.message.as_str(), none.hint.as_str()),
            ("`pictures` contains no PNG file", "it contains `a/1.txt`")
        );
    }

    #[test]
    fn too_many_pixels_of_several_images_are_not_blamed_on_one() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("2.png"), png(2, 1, 0, &[7, 9])).unwrap();
        let files = Files::open(folder.path(), "pictures", folder.path()).unwrap();
        let message =
            |most| read_png_up_to(&files, "2.png", true, &mut vec![0; 99], most).map_err(|error| error.message);
        assert_eq!(message(101), Ok((2, 1)));
        let expected = "up to `2.png`, the images have more than 100 bytes of pixels together";
        assert_eq!(message(100), Err(expected.to_owned()));
    }

    #[test]
    fn no_byte_of_an_image_makes_the_reader_panic() {
        let good = png(3, 2, 2, &[5; 18]);
        for at in 0..good.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[at] ^= change;
                // Some bytes make the image valid; the test only requires that the call returns.
                let _ = read(&[("a/1.png", bytes)], true);
            }
        }
    }
}
