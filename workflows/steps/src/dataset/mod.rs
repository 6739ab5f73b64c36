//! Datasets: token sequences in three splits, in one file, for a classifier or for a language model.
//!
//! The file is in safetensors format. For each split S of `train`, `valid` and `test` it contains:
//!
//! | array | content |
//! |---|---|
//! | `S.tokens` | all sequences, one after another: U32, or for text the smallest of U8, U16 and U32 that holds the vocabulary |
//! | `S.offsets`, U32 | the start of each sequence in `S.tokens`, and the end of the last one |
//! | `S.documents`, U64 | for text, in place of `S.offsets`: the start of each document in `S.tokens`, and the end of the last one. A document is divided into sequences of `max_length` tokens; its last one may be shorter |
//! | `S.labels`, U32 | one per sequence; empty for a language model, whose targets are the next tokens |
//! | `S.groups`, U32 | one per sequence, if sequences are also scored by groups |
//! | `S.second_tokens`, `S.second_offsets`, U32 | of a dataset of pairs: the second document of each sample |
//!
//! The metadata `assay.dataset` is the JSON of [`About`]. The tokens of a large split are not held in memory: they are read from the
//! file when they are needed.

mod about;
mod file;
mod sequences;
mod split;
mod store;
mod text_writer;

pub use about::{About, Goal, OtherFiles, SourceFile, Sources, TextUnits, Units};
pub use split::{SampleLengths, Split};
pub use store::Dataset;
pub use text_writer::TextWriter;
