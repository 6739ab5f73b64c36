//! Scratch memory of a thread, kept from call to call: intermediate results of fused products and packed operands. Some MiB a
//! thread, which `blocks.rs` does not count.

use std::cell::RefCell;

use crate::memory::blocks::is_exact;
use crate::simd::instructions::LINE;

/// Elements that a thread keeps of each scratch. What is larger, such as the scores of `full` attention, goes with the call.
const KEPT: usize = 1 << 20;
/// How many there are at a time.
const MOST: usize = 6;

/// Elements with arbitrary contents, which grow as they are asked for.
#[derive(Debug)]
pub(crate) struct Scratch(Vec<f32>);

impl Scratch {
    pub(crate) const EMPTY: Scratch = Scratch(Vec::new());

    /// The first `length` elements.
    pub(crate) fn prefix_of_length(&mut self, length: usize) -> &mut [f32] {
        if is_exact() {
            self.0 = vec![f32::NAN; length];
            return &mut self.0;
        }
        // It begins at a line of the cache: a vector that crosses lines costs two accesses.
        let room = length + LINE;
        if self.0.len() < room {
            self.0.resize(room, 0.0);
        }
        let start = self.0.as_ptr().align_offset(size_of::<[f32; LINE]>());
        &mut self.0[start..start + length]
    }
}

thread_local! {
    static SCRATCH: RefCell<[Scratch; MOST]> = const { RefCell::new([Scratch::EMPTY; MOST]) };
}

/// Calls `work` with scratch of these lengths, up to [`MOST`]. It must not call this again.
pub(crate) fn with_scratch<const N: usize>(lengths: [usize; N], work: impl FnOnce([&mut [f32]; N])) {
    const { assert!(N <= MOST, "there are not so many") };
    SCRATCH.with_borrow_mut(|all| {
        let mut rest = all.iter_mut();
        work(lengths.map(|length| rest.next().map_or(&mut [][..], |scratch| scratch.prefix_of_length(length))));
        for large in all.iter_mut().filter(|scratch| scratch.0.len() > KEPT) {
            *large = Scratch::EMPTY;
        }
    });
}
