//! How the tokens of one call fall into chunks: [`Pieces`].

/// T tokens from a position on, cut at the multiples of C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pieces {
    /// C.
    pub chunk: usize,
    /// How many tokens of the first chunk were read before this call; less than C.
    pub before: usize,
    /// How many of the T tokens go on with that chunk; 0 if `before` is.
    pub head: usize,
    /// Whole chunks after the head.
    pub whole: usize,
    /// Tokens after those, of a chunk that does not end here; less than C.
    pub tail: usize,
}

impl Pieces {
    /// Of `length` tokens from `position` on.
    pub fn new(position: usize, length: usize, chunk: usize) -> Self {
        let before = position % chunk;
        let head = if before == 0 { 0 } else { length.min(chunk - before) };
        let rest = length - head;
        Pieces { chunk, before, head, whole: rest / chunk, tail: rest % chunk }
    }

    /// How many tokens each piece has, in order; no piece is empty.
    pub fn lengths(&self) -> Vec<usize> {
        let head = (self.head > 0).then_some(self.head);
        let tail = (self.tail > 0).then_some(self.tail);
        head.into_iter().chain(vec![self.chunk; self.whole]).chain(tail).collect()
    }

    /// Whether the chunk ends with the piece `index` of [`Pieces::lengths`].
    pub fn closes(&self, index: usize) -> bool {
        match (self.head, index) {
            (0, _) => index < self.whole,
            (head, 0) => self.before + head == self.chunk,
            (_, index) => index <= self.whole,
        }
    }

    /// Whether the next token goes on with a chunk that has begun.
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
