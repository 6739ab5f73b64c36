//! Packed copies of a weight, kept beside its elements: `matmul/weights.rs` and `matmul/vnni.rs` make and read them.

use std::sync::OnceLock;

use crate::memory::blocks::Block;

/// What has been packed of a weight: nothing until it is asked for, none where there was no memory.
#[derive(Default)]
pub(crate) struct PackedPair {
    pub(crate) forward: OnceLock<Option<PackedStrips>>,
    pub(crate) back: OnceLock<Option<PackedStrips>>,
}

/// A whole weight in strips.
pub(crate) struct PackedStrips {
    pub(crate) strips: Block,
    /// N and K.
    pub(crate) dims: [usize; 2],
}

/// Int8 weights [N, K] in the order of `matmul/vnni.rs`, with what their sums begin at.
#[derive(Debug)]
pub(crate) struct PackedBytes {
    /// N and K.
    pub(crate) shape: [usize; 2],
    pub(crate) lines: Lines,
    /// Of each column, and zeros up to a whole strip.
    pub(crate) starts: Vec<i32>,
}

/// Few lines, or many: in huge pages then, as decoding reads all of them for each token.
#[derive(Debug)]
pub(crate) enum Lines {
    Few(Vec<Line>),
    /// Exactly these.
    Many(Block),
}

/// Columns of a strip of bytes.
pub(crate) const STRIP: usize = 16;
/// Depths of a line.
pub(crate) const DEPTHS: usize = 4;

/// The bytes of a strip's columns at [`DEPTHS`] depths.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u8; 64]);

/// A weight as products read it.
#[derive(Default)]
pub(crate) struct Prepared {
    /// Where the elements are f32 or bf16.
    pub(crate) packed: PackedPair,
    /// Where they are int8: made when the first product asks for it.
    pub(crate) bytes: OnceLock<PackedBytes>,
}
