//! Documents of any size, block by block: see [`Blocks`].

use std::io::{BufRead, Read};

use super::tokenizer::{EncodedText, TextTokenizer, is_word_space};
use crate::DataError;
use crate::files::broken;

/// The bytes that are encoded together. A block ends after a line, if it contains the end of one.
const BLOCK: usize = 1 << 18;

/// What was found in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TextCounts {
    /// Bytes.
    pub bytes: u64,
    /// Tokens that represent text which is not in the vocabulary.
    pub unknown: u64,
    /// Whether the tokens decode to another text.
    pub is_changed: bool,
}

/// A part of a file.
#[derive(Debug, Clone, Copy)]
pub struct TextPart<'a> {
    /// The name of the file in messages.
    pub name: &'a str,
    /// The number of bytes; with a trained tokenizer, the bytes of a character that they divide belong to this part.
    pub bytes: u64,
    /// The lines of the file before this part.
    pub lines: u64,
}

/// Reads a document block by block.
pub struct Blocks<'a> {
    reader: &'a mut dyn BufRead,
    name: &'a str,
    /// The bytes of the document that were not read yet.
    left: u64,
    tokenizer: &'a TextTokenizer,
    block: Vec<u8>,
    /// The lines of the file before the block.
    lines: u64,
    /// Whether there is white space before the block, or nothing.
    starts_word: bool,
    counts: TextCounts,
}

impl<'a> Blocks<'a> {
    /// The next part of a reader.
    pub fn new(reader: &'a mut dyn BufRead, part: TextPart<'a>, tokenizer: &'a TextTokenizer) -> Self {
        Blocks {
            reader,
            name: part.name,
            left: part.bytes,
            tokenizer,
            block: Vec::new(),
            lines: part.lines,
            starts_word: true,
            counts: TextCounts::default(),
        }
    }

    /// The tokens of the next block; `None` after the last one.
    ///
    /// # Errors
    /// If the file cannot be read; with a trained tokenizer, if the text is not UTF-8.
    pub fn next_block(&mut self) -> Result<Option<EncodedText>, DataError> {
        let wanted = (BLOCK - self.block.len().min(BLOCK)) as u64;
        let read = (&mut *self.reader).take(wanted.min(self.left)).read_to_end(&mut self.block);
        self.left -= read.map_err(|error| broken(self.name, &error))? as u64;
        if self.left == 0 {
            self.complete_character()?;
        }
        if self.block.is_empty() {
            return Ok(None);
        }
        let is_last = self.block.len() < BLOCK || self.left == 0;
        let end = if is_last { self.block.len() } else { self.find_end() };
        let rest = self.block.split_off(end);
        let block = std::mem::replace(&mut self.block, rest);
        let encoded = self.tokenizer.encode(&block, self.starts_word).map_err(|problem| {
            let message = match problem.strip_prefix("line ").and_then(|rest| rest.split_once(' ')) {
                Some((line, what)) => {
                    let line = line.parse::<u64>().unwrap_or(1) + self.lines;
                    format!("`{}`, line {line}: the text {what}", self.name)
                }
                None => format!("`{}` cannot be encoded: {problem}", self.name),
            };
            DataError::new(message, "convert it to UTF-8, for example with `iconv`, or take `tokenizer: bytes`")
        })?;
        self.lines += block.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.starts_word = block.last().is_none_or(|byte| is_word_space(*byte));
        self.counts.bytes += block.len() as u64;
        self.counts.unknown += encoded.unknown;
        self.counts.is_changed |= encoded.is_changed;
        Ok(Some(encoded))
    }

    /// What was found so far.
    #[must_use]
    pub fn counts(&self) -> TextCounts {
        self.counts
    }

    /// The lines of the file before the next block.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Where a block ends that is not the last one: after its last line, else before its last space, else at a character.
    fn find_end(&self) -> usize {
        let text = &self.block;
        if self.tokenizer.is_bytes() {
            return text.len();
        }
        let after_line = text.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        let before_space = || text.iter().rposition(|byte| *byte == b' ').filter(|at| *at > 0);
        let at_character = || (1..text.len()).rev().find(|at| !is_inside_character(text[*at]));
        after_line.or_else(before_space).or_else(at_character).unwrap_or(text.len())
    }

    /// Reads the bytes of a character that the end of the part divides.
    fn complete_character(&mut self) -> Result<(), DataError> {
        while !self.tokenizer.is_bytes() && !self.block.is_empty() {
            let next = self.reader.fill_buf().map_err(|error| broken(self.name, &error))?;
            let Some(byte) = next.first().copied().filter(|byte| is_inside_character(*byte)) else { break };
            self.block.push(byte);
            self.reader.consume(1);
        }
        Ok(())
    }
}

fn is_inside_character(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}
