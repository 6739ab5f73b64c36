//! The twenty bAbI tasks (Weston et al. 2015, "Towards AI-complete question answering"): a reader of the published files, and a generator
//! of stories of the same kinds from simulated worlds.
//!
//! A question consists of the words of its story so far, then its own words; the answer is one class, even if it lists
//! several things (`apple,milk`). The published measure is the error of each task; a task counts as solved if at least 95
//! % of its answers are right.

mod facts;
mod generate;
mod plans;
mod read;
#[cfg(test)]
mod solver;
mod world;

pub use generate::{TASKS, story};
pub use read::read_babi;

/// A question with its story.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The task, from 1 to 20.
    pub task: u32,
    /// The words of the story and of the question, with `.` and `?` as words.
    pub words: Vec<String>,
    /// The answer, in small letters.
    pub answer: String,
}

/// The words of a sentence, in small letters; punctuation marks are separate words.
pub(crate) fn words_of(sentence: &str) -> Vec<String> {
    let mut words = Vec::new();
    for part in sentence.split_whitespace() {
        let word = part.trim_end_matches(['.', '?', ',']);
        if !word.is_empty() {
            words.push(word.to_lowercase());
        }
        words.extend(part[word.len()..].chars().map(String::from));
    }
    words
}
