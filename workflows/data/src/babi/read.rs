//! The published files: `qa1_single-supporting-fact_train.txt`, `qa1_single-supporting-fact_test.txt` and so on, in the folder of an
//! edition such as `en` or `en-10k`.
//!
//! ```text
//! 1 Mary moved to the bathroom.
//! 2 Where is Mary?<TAB>bathroom<TAB>1
//! ```
//!
//! The number of a line is 1 where a story begins. A question names its answer and the lines that support it.

use super::{Question, words_of};
use crate::{DataError, Files, base};

/// The size limit of a file, in bytes.
const MOST_BYTES: u64 = 256 << 20;

/// The questions of a split (`train`, `valid` or `test`) of a task in an edition, and the path of the file. `None` if the file does not
/// exist.
///
/// # Errors
/// If two files match, or a line does not follow the published format; the message names the line.
pub fn read_babi(
    files: &Files,
    edition: &str,
    task: u32,
    split: &str,
) -> Result<Option<(Vec<Question>, String)>, DataError> {
    let (start, end) = (format!("qa{task}_"), format!("_{split}.txt"));
    let in_edition = |name: &&str| match name.rsplit('/').nth(1) {
        Some(folder) => folder == edition,
        // The path is the folder of an edition.
        None => true,
    };
    let fits = |name: &&str| base(name).starts_with(&start) && base(name).ends_with(&end);
    let found: Vec<&str> = files.names().filter(in_edition).filter(fits).collect();
    let name = match found.as_slice() {
        [] => return Ok(None),
        [only] => *only,
        [first, second, ..] => {
            let message = format!("`{}` contains both `{first}` and `{second}`", files.name());
            return Err(DataError::new(message, "keep the intended one"));
        }
    };
    let text = files.read_text(name, MOST_BYTES)?;
    let (mut story, mut questions): (Vec<String>, _) = (Vec::new(), Vec::new());
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |what: &str| {
            let message = format!("`{name}`, line {}: {what}", at + 1);
            DataError::new(message, "give the published files, unchanged")
        };
        let (number, rest) = line.trim().split_once(' ').ok_or_else(|| wrong("it has no number and sentence"))?;
        let number: usize = number.parse().map_err(|_| wrong("it does not begin with a number"))?;
        if number == 1 {
            story.clear();
        } else if at == 0 {
            return Err(wrong("the first story does not begin with line 1"));
        }
        match rest.split_once('\t') {
            None => story.extend(words_of(rest)),
            Some((question, rest)) => {
                let answer = rest.split('\t').next().unwrap_or_default().trim().to_lowercase();
                if answer.is_empty() {
                    return Err(wrong("the question has no answer"));
                }
                let words = [story.as_slice(), &words_of(question)].concat();
                questions.push(Question { task, words, answer });
            }
        }
    }
    match questions.is_empty() {
        true => Err(DataError::new(format!("`{name}` contains no question"), "give the published files")),
        false => Ok(Some((questions, name.to_owned()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<(Vec<Question>, String)>, DataError> {
        let folder = tempfile::tempdir().unwrap();
        for edition in ["en", "en-10k"] {
            std::fs::create_dir_all(folder.path().join("tasks").join(edition)).unwrap();
        }
        std::fs::write(folder.path().join("tasks/en/qa1_single_train.txt"), text).unwrap();
        std::fs::write(folder.path().join("tasks/en/qa11_basic_train.txt"), "other").unwrap();
        std::fs::write(folder.path().join("tasks/en-10k/qa1_single_train.txt"), "other").unwrap();
        read_babi(&Files::open(folder.path(), "babi", folder.path())?, "en", 1, "train")
    }

    #[test]
    fn stories_begin_anew_at_line_one() {
        let text = "1 Mary moved to the hall.\n2 Where is Mary? \thall\t1\n3 John ran.\n4 Where is John?\tPark\t3\n1 He slept.\n2 Why?\ta,b\t1\n";
        let (questions, name) = read(text).unwrap().unwrap();
        assert_eq!(name, "tasks/en/qa1_single_train.txt");
        let shown: Vec<String> = questions.iter().map(|q| format!("{} = {}", q.words.join(" "), q.answer)).collect();
        let expected = [
            "mary moved to the hall . where is mary ? = hall",
            "mary moved to the hall . john ran . where is john ? = park",
            "he slept . why ? = a,b",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_bad_line_is_named() {
        let message = |text: &str| read(text).unwrap_err().message;
        let line = |at: usize, what: &str| format!("`tasks/en/qa1_single_train.txt`, line {at}: {what}");
        assert_eq!(message("2 He ran.\n"), line(1, "the first story does not begin with line 1"));
        assert_eq!(message("1 He ran.\nShe ran.\n"), line(2, "it does not begin with a number"));
        assert_eq!(message("1 He ran.\n2 Why?\t\t1\n"), line(2, "the question has no answer"));
        assert_eq!(message("1\n"), line(1, "it has no number and sentence"));
        assert!(message("1 He ran.\n").ends_with("contains no question"));
    }
}
