//! The division of a call's tokens into chunks: [`Pieces`].

/// T tokens from a position on, divided at the multiples of C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pieces {
    /// C.
    pub chunk: usize,
    /// The number of tokens of the first chunk before this call; less than C.
    pub before: usize,
    /// How many of the T tokens continue that chunk; 0 if `before` is.
    pub head: usize,
    /// Whole chunks after the head.
    pub whole: usize,
    /// Tokens after those, of an incomplete chunk; less than C.
    pub tail: usize,
}

impl Pieces {
    /// The pieces of `length` tokens from `position` on.
    pub fn new(position: usize, length: usize, chunk: usize) -> Self {
        let before = position % chunk;
        let head = if before == 0 { 0 } else { length.min(chunk - before) };
        let rest = length - head;
        Pieces { chunk, before, head, whole: rest / chunk, tail: rest % chunk }
    }

    /// The number of tokens of each piece, in order; no piece is empty.
    pub fn lengths(&self) -> Vec<usize> {
        let head = (self.head > 0).then_some(self.head);
        let tail = (self.tail > 0).then_some(self.tail);
        head.into_iter().chain(vec![self.chunk; self.whole]).chain(tail).collect()
    }

    /// Whether the piece `index` of [`Pieces::lengths`] completes a chunk.
    pub fn closes(&self, index: usize) -> bool {
        match (self.head, index) {
            (0, _) => index < self.whole,
            (head, 0) => self.before + head == self.chunk,
            (_, index) => index <= self.whole,
        }
    }

    /// Whether the next token continues an incomplete chunk.
    pub fn open(&self) -> bool {
        self.tail > 0 || (self.head > 0 && self.whole == 0 && self.before + self.head < self.chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_tokens_and_end_at_multiples_of_the_chunk() {
        for chunk in 1..6 {
            for position in 0..12 {
                for length in 1..15 {
                    let pieces = Pieces::new(position, length, chunk);
                    let lengths = pieces.lengths();
                    assert_eq!(lengths.iter().sum::<usize>(), length);
                    let mut at = position;
                    for (index, length) in lengths.iter().enumerate() {
                        assert!(*length > 0 && at / chunk == (at + length - 1) / chunk, "{pieces:?} crosses");
                        at += length;
                        assert_eq!(pieces.closes(index), at.is_multiple_of(chunk), "{pieces:?} piece {index}");
                    }
                    assert_eq!(pieces.open(), !at.is_multiple_of(chunk), "{pieces:?}");
                }
            }
        }
    }
}
