//! The film reviews of Maas et al. (2011), the task Text of Long Range Arena: a folder, or `aclImdb_v1.tar.gz` as published, with
//! `train/neg`, `train/pos`, `test/neg` and `test/pos`, and a file for each review.

use crate::{DataError, Files, base};

/// The length limit of a review, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// A review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// Its text, in UTF-8.
    pub text: String,
    /// 0 if negative, 1 if positive.
    pub label: u32,
}

/// All labelled reviews.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reviews {
    /// The official training reviews.
    pub train: Vec<Review>,
    /// The official test reviews.
    pub test: Vec<Review>,
    /// The files that were read.
    pub files: Vec<String>,
    /// How many other files exist: those of `unsup`, and lists.
    pub others: usize,
}

/// Reads every labelled review, in the order of the paths.
///
/// # Errors
/// If one of the four folders is missing or empty, or a file is empty or not UTF-8.
pub fn read_reviews(files: &Files) -> Result<Reviews, DataError> {
    let mut found = Reviews::default();
    let mut counts = [[0; 2]; 2];
    for name in files.names() {
        let mut parts = name.rsplit('/');
        let text = parts.next().is_some_and(|file| file.ends_with(".txt"));
        let (class, split) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let label = ["neg", "pos"].iter().position(|known| *known == class);
        let place = ["train", "test"].iter().position(|known| *known == split);
        let (true, Some(label), Some(place)) = (text, label, place) else {
            found.others += 1;
            continue;
        };
        let text = files.read_text(name, MOST_BYTES)?;
        if text.trim().is_empty() {
            return Err(DataError::new(format!("the review `{name}` is empty"), "get the data again"));
        }
        counts[place][label] += 1;
        let reviews = if place == 0 { &mut found.train } else { &mut found.test };
        reviews.push(Review { text, label: label as u32 });
        found.files.push(name.to_owned());
    }
    for (split, counts) in ["train", "test"].iter().zip(counts) {
        for (class, count) in ["neg", "pos"].iter().zip(counts) {
            if count == 0 {
                let message = format!("`{}` contains no review `{split}/{class}/NAME.txt`", base(files.name()));
                return Err(DataError::new(message, format!("it contains {}", files.some_names())));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reviews: &[(&str, &str)]) -> Result<Reviews, DataError> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in reviews {
            let path = folder.path().join("aclImdb").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        read_reviews(&Files::open(folder.path(), "imdb", folder.path())?)
    }

    const FOUR: [(&str, &str); 5] = [
        ("train/neg/0_1.txt", "bad"),
        ("train/pos/0_9.txt", "good"),
        ("test/neg/0_2.txt", "worse"),
        ("test/pos/0_10.txt", "better"),
        ("train/unsup/0_0.txt", "who knows"),
    ];

    #[test]
    fn folders_are_labels() {
        let found = read(&FOUR).unwrap();
        assert_eq!((found.train[0].text.as_str(), found.train[0].label), ("bad", 0));
        assert_eq!((found.test[1].text.as_str(), found.test[1].label, found.others), ("better", 1, 1));
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(read(&FOUR[..3]).unwrap_err().message, "`imdb` contains no review `test/pos/NAME.txt`");
        let empty = [FOUR[0], FOUR[1], FOUR[2], ("test/pos/1_8.txt", " \n")];
        assert_eq!(read(&empty).unwrap_err().message, "the review `aclImdb/test/pos/1_8.txt` is empty");
    }
}
