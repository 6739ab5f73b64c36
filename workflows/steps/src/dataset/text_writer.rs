//! Writes the dataset of a text document by document: no split is ever held in memory. See [`TextWriter`].

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::{Value, json};

use super::about::{About, TextUnits, Units};
use super::store::ABOUT;
use crate::context::StepError;

/// The names of the splits, in the order in which they are written.
const SPLITS: [&str; 3] = ["train", "valid", "test"];

/// A dataset that is being written: the documents of train, then those of valid, then those of test.
///
/// The position of the tokens is known before the first one is written: the numbers of documents are known, and space for the header
/// is reserved.
pub struct TextWriter {
    file: BufWriter<File>,
    about: About,
    /// Bytes of a token.
    width: usize,
    /// The bytes of the header, including the space after it.
    header: usize,
    /// The start of each document of each split, and the end of the last one, in tokens of the split.
    starts: [Vec<u64>; 3],
    /// The number of tokens of each split so far.
    ends: [u64; 3],
    split: usize,
    pending: Pending,
    units: [Units; 3],
}

/// The current sequence, which is not written yet.
#[derive(Default)]
struct Pending {
    /// Its tokens as bytes of the file.
    bytes: Vec<u8>,
    /// The number of its tokens.
    count: usize,
    /// The text of all its tokens except the first, which is not predicted.
    text: Units,
}

impl TextWriter {
    /// Starts a file. `documents` is the number of documents of each split; `about` is complete, except for the amounts of text.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn create(path: &Path, about: About, documents: [usize; 3]) -> Result<TextWriter, StepError> {
        let width = match about.vocabulary.len() {
            0..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 4,
        };
        let mut largest = about.clone();
        let most = Units { bytes: u64::MAX, words: u64::MAX };
        largest.text = Some(TextUnits { train: most, valid: most, test: most });
        let mut writer = TextWriter {
            file: BufWriter::with_capacity(1 << 20, File::create(path).map_err(unwritable)?),
            about,
            width,
            header: 0,
            starts: [(); 3].map(|()| vec![0]),
            ends: [0; 3],
            split: 0,
            pending: Pending::default(),
            units: [Units::default(); 3],
        };
        let most = documents.map(|documents| (documents + 1, u64::MAX / 8));
        writer.header = writer.make_header(&largest, most)?.len().next_multiple_of(8);
        let before: usize = 8 + writer.header + documents.iter().map(|documents| (documents + 1) * 8).sum::<usize>();
        let zeros = [0; 4096];
        for at in (0..before).step_by(zeros.len()) {
            writer.file.write_all(&zeros[..zeros.len().min(before - at)]).map_err(unwritable)?;
        }
        Ok(writer)
    }

    /// Appends a token of the current document, with its text.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn push(&mut self, token: u32, text: Units) -> Result<(), StepError> {
        let pending = &mut self.pending;
        pending.bytes.extend(&token.to_le_bytes()[..self.width]);
        if pending.count > 0 {
            pending.text.add(text);
        }
        pending.count += 1;
        if pending.count == self.about.max_length { self.write_pending() } else { Ok(()) }
    }

    /// Ends a document. A last sequence of one token is dropped, since it leaves nothing to predict.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn end_document(&mut self) -> Result<(), StepError> {
        if self.pending.count < 2 {
            self.pending = Pending::default();
        }
        self.write_pending()?;
        self.starts[self.split].push(self.ends[self.split]);
        Ok(())
    }

    /// Ends a split; the next document belongs to the next one.
    pub fn end_split(&mut self) {
        self.split = (self.split + 1).min(SPLITS.len() - 1);
    }

    /// The number of tokens so far of each split.
    #[must_use]
    pub fn tokens(&self) -> [u64; 3] {
        self.ends
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(self) -> Result<(), StepError> {
        let [train, valid, test] = self.units;
        let about = About { text: Some(TextUnits { train, valid, test }), ..self.about.clone() };
        let layout = [0, 1, 2].map(|split| (self.starts[split].len(), self.ends[split]));
        let mut header = self.make_header(&about, layout)?;
        if header.len() > self.header {
            return Err(StepError::failed("the header of the dataset does not fit the space that was reserved"));
        }
        header.resize(self.header, b' ');
        let file = self.file.into_inner().map_err(|error| unwritable(error.into_error()))?;
        let mut start = (self.header as u64).to_le_bytes().to_vec();
        start.extend(header);
        start.extend(self.starts.iter().flatten().flat_map(|start| start.to_le_bytes()));
        file.write_all_at(&start, 0).map_err(unwritable)
    }

    fn write_pending(&mut self) -> Result<(), StepError> {
        self.file.write_all(&self.pending.bytes).map_err(unwritable)?;
        self.units[self.split].add(self.pending.text);
        self.ends[self.split] += self.pending.count as u64;
        self.pending.bytes.clear();
        (self.pending.count, self.pending.text) = (0, Units::default());
        Ok(())
    }

    /// The header, given for each split the number of document starts and of tokens.
    fn make_header(&self, about: &About, layout: [(usize, u64); 3]) -> Result<Vec<u8>, StepError> {
        let about = serde_json::to_string(about).map_err(|error| StepError::failed(error.to_string()))?;
        let mut header = serde_json::Map::new();
        header.insert("__metadata__".into(), json!({ABOUT: about}));
        let mut at = 0_u64;
        let mut insert = |name: String, dtype: &str, count: u64, width: usize| {
            let end = at.saturating_add(count.saturating_mul(width as u64));
            header.insert(name, json!({"dtype": dtype, "shape": [count], "data_offsets": [at, end]}));
            at = end;
        };
        for (split, (starts, _)) in SPLITS.iter().zip(layout) {
            insert(format!("{split}.documents"), "U64", starts as u64, 8);
        }
        // Without elements, these arrays have the same position as the tokens of `train`.
        for split in SPLITS {
            insert(format!("{split}.labels"), "U32", 0, 4);
        }
        let dtype = ["U8", "U16", "", "U32"][self.width - 1];
        for (split, (_, tokens)) in SPLITS.iter().zip(layout) {
            insert(format!("{split}.tokens"), dtype, tokens, self.width);
        }
        Ok(Value::Object(header).to_string().into_bytes())
    }
}

fn unwritable(error: std::io::Error) -> StepError {
    StepError::failed(format!("the dataset cannot be written: {error}"))
}
