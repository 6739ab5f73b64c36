//! Token sequences, one after another, in memory or in a file: [`Sequences`].

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::file::StoredArray;
use crate::context::StepError;

/// Sequences of tokens.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sequences {
    tokens: Tokens,
    bounds: Bounds,
}

/// All tokens of the sequences.
#[derive(Debug, Clone)]
enum Tokens {
    Memory(Vec<u32>),
    /// Tokens that are read when they are needed; each must be below `vocabulary`.
    File {
        array: StoredArray,
        vocabulary: usize,
    },
}

/// Where each sequence starts and ends, in tokens. Copies share their memory.
#[derive(Debug, Clone, PartialEq)]
pub enum Bounds {
    /// The start of each sequence, and the end of the last one; empty without sequences.
    Each(Arc<Vec<u32>>),
    /// Documents that are divided into sequences of equal length.
    Documents(Arc<Documents>),
}

/// Documents, one after another, each divided into sequences of `length` tokens; the last sequence of a document may be shorter.
#[derive(Debug, PartialEq)]
pub struct Documents {
    /// The start of each document, and the end of the last one.
    starts: Vec<u64>,
    /// The number of sequences before each document, and of all.
    first: Vec<usize>,
    length: u64,
}

impl Default for Tokens {
    fn default() -> Self {
        Tokens::Memory(Vec::new())
    }
}

impl PartialEq for Tokens {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Tokens::Memory(one), Tokens::Memory(other)) => one == other,
            (Tokens::File { array: one, .. }, Tokens::File { array: other, .. }) => one.is_same(other),
            _ => false,
        }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds::Each(Arc::default())
    }
}

impl Documents {
    fn new(starts: Vec<u64>, length: usize) -> Documents {
        let length = length.max(1) as u64;
        let mut first: Vec<usize> = vec![0];
        for pair in starts.windows(2) {
            let sequences = pair[1].saturating_sub(pair[0]).div_ceil(length);
            first.push(first.last().copied().unwrap_or(0).saturating_add(sequences as usize));
        }
        Documents { starts, first, length }
    }

    fn range(&self, index: usize) -> Range<u64> {
        let document = self.first.partition_point(|first| *first <= index).saturating_sub(1);
        let start = self.starts[document] + (index - self.first[document]) as u64 * self.length;
        start..self.starts[document + 1].min(start + self.length)
    }
}

impl Bounds {
    /// The number of sequences.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Bounds::Each(offsets) => offsets.len().saturating_sub(1),
            Bounds::Documents(documents) => documents.first.last().copied().unwrap_or(0),
        }
    }

    /// The tokens of sequence `index`, which must be below [`Bounds::len`].
    fn range(&self, index: usize) -> Range<u64> {
        match self {
            Bounds::Each(offsets) => u64::from(offsets[index])..u64::from(offsets[index + 1]),
            Bounds::Documents(documents) => documents.range(index),
        }
    }

    /// The number of tokens of sequence `index`, which must be below [`Bounds::len`].
    #[must_use]
    pub fn length(&self, index: usize) -> usize {
        let range = self.range(index);
        (range.end - range.start) as usize
    }

    /// Whether they span `tokens` tokens, in order; otherwise the problem.
    fn problem(&self, tokens: u64) -> Option<String> {
        let spans = |first: Option<u64>, last: Option<u64>| {
            ((first, last) != (Some(0), Some(tokens))).then(|| format!("its offsets do not span its {tokens} tokens"))
        };
        match self {
            Bounds::Each(offsets) => {
                let end = |offset: Option<&u32>| offset.map(|offset| u64::from(*offset));
                let empty = offsets.windows(2).position(|pair| pair[0] >= pair[1]);
                spans(end(offsets.first()), end(offsets.last()))
                    .or_else(|| empty.map(|at| format!("sequence {at} has no token")))
            }
            Bounds::Documents(documents) => {
                let starts = &documents.starts;
                let back = starts.windows(2).position(|pair| pair[0] > pair[1]);
                spans(starts.first().copied(), starts.last().copied())
                    .or_else(|| back.map(|at| format!("document {at} ends before its start")))
            }
        }
    }
}

impl Sequences {
    /// Sequences in memory.
    pub fn in_memory(tokens: Vec<u32>, offsets: Vec<u32>) -> Sequences {
        Sequences { tokens: Tokens::Memory(tokens), bounds: Bounds::Each(Arc::new(offsets)) }
    }

    /// The sequences of `length` tokens of documents. Up to `most_in_memory` tokens are read into memory now, more only when they are
    /// needed; each must be below `vocabulary`.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn of_documents(
        array: StoredArray,
        starts: Vec<u64>,
        (length, vocabulary): (usize, usize),
        most_in_memory: u64,
    ) -> std::io::Result<Sequences> {
        let bounds = Bounds::Documents(Arc::new(Documents::new(starts, length)));
        let tokens = match array.count <= most_in_memory {
            true => Tokens::Memory(array.read_tokens(0, array.count)?),
            false => Tokens::File { array, vocabulary },
        };
        Ok(Sequences { tokens, bounds })
    }

    /// Appends a sequence; only to sequences in memory without documents.
    pub fn push(&mut self, sequence: &[u32]) {
        if let (Tokens::Memory(tokens), Bounds::Each(offsets)) = (&mut self.tokens, &mut self.bounds) {
            let offsets = Arc::make_mut(offsets);
            if offsets.is_empty() {
                offsets.push(0);
            }
            tokens.extend(sequence);
            offsets.push(tokens.len() as u32);
        }
    }

    /// Where each sequence starts and ends.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// The tokens of sequence `index`.
    ///
    /// # Errors
    /// If they cannot be read from the file.
    pub fn read(&self, index: usize) -> Result<Cow<'_, [u32]>, StepError> {
        let range = self.bounds.range(index);
        match &self.tokens {
            Tokens::Memory(tokens) => Ok(Cow::Borrowed(&tokens[range.start as usize..range.end as usize])),
            Tokens::File { array, vocabulary } => {
                let failed = |error: String| StepError::failed(format!("the dataset cannot be read: {error}"));
                let tokens = array.read_tokens(range.start, range.end - range.start);
                let tokens = tokens.map_err(|error| failed(error.to_string()))?;
                match tokens.iter().find(|token| **token as usize >= *vocabulary) {
                    Some(token) => Err(failed(format!("token {token} is outside the vocabulary of {vocabulary}"))),
                    None => Ok(Cow::Owned(tokens)),
                }
            }
        }
    }

    /// All tokens, if they are in memory.
    pub fn tokens(&self) -> Option<&[u32]> {
        match &self.tokens {
            Tokens::Memory(tokens) => Some(tokens),
            Tokens::File { .. } => None,
        }
    }

    /// The number of tokens.
    pub fn count(&self) -> u64 {
        match &self.tokens {
            Tokens::Memory(tokens) => tokens.len() as u64,
            Tokens::File { array, .. } => array.count,
        }
    }

    /// The start of each sequence and the end of the last one, except for documents.
    pub fn offsets(&self) -> &[u32] {
        match &self.bounds {
            Bounds::Each(offsets) => offsets,
            Bounds::Documents(_) => &[],
        }
    }

    /// Whether its parts are consistent; otherwise the problem. Tokens in a file are not read.
    pub fn problem(&self, vocabulary: usize) -> Option<String> {
        self.bounds.problem(self.count()).or_else(|| {
            let token = self.tokens()?.iter().find(|token| **token as usize >= vocabulary)?;
            Some(format!("token {token} is outside the vocabulary of {vocabulary}"))
        })
    }
}
