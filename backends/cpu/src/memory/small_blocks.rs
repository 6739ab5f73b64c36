//! Small blocks of memory, kept by the thread that drops them and handed out again.
//!
//! Decoding a token requests about a hundred of them. An allocator needs more time to find one and fill it with zeros than most
//! operations need to compute in it.

use std::cell::RefCell;

/// Elements in blocks of about one size that a thread keeps.
const AT_HAND: usize = 16 * 1024;
/// Blocks of about one size that a thread keeps at most.
const MOST: usize = 32;

thread_local! {
    /// What this thread has dropped, by [`size_class`], each block as long as its [`room_for`].
    static KEPT: RefCell<Vec<Vec<Vec<f32>>>> = const { RefCell::new(Vec::new()) };
}

/// The power of two that is not below `length`, and how many eighths of it (or ones, where it is below 8) `length` takes, as
/// exponent, count, and the exponent of an eighth. Shifts: a division takes longer than all else here.
#[inline]
fn size_in_eighths(length: usize) -> (u32, usize, u32) {
    let power = length.next_power_of_two().trailing_zeros();
    let eighth = power.saturating_sub(3);
    (power, (length + (1 << eighth) - 1) >> eighth, eighth)
}

/// How many elements a block for `length` of them has room for: a quarter more at most.
#[inline]
pub(crate) fn room_for(length: usize) -> usize {
    let (_, count, eighth) = size_in_eighths(length);
    count << eighth
}

/// A number for each [`room_for`], of which there are eight at most between two powers of two.
#[inline]
fn size_class(length: usize) -> usize {
    let (power, count, _) = size_in_eighths(length);
    8 * power as usize + count
}

/// `length` elements with arbitrary contents.
pub(crate) fn take_small(length: usize) -> Vec<f32> {
    let kept = |kept: &RefCell<Vec<Vec<Vec<f32>>>>| kept.borrow_mut().get_mut(size_class(length))?.pop();
    // A thread that ends has none any more.
    let mut block = KEPT.try_with(kept).ok().flatten().unwrap_or_else(|| {
        // `vec!` would ask for zeroed memory, which the system's allocator has no quick way to for small blocks.
        let mut block = Vec::with_capacity(room_for(length));
        block.resize(room_for(length), std::hint::black_box(0.0));
        block
    });
    block.truncate(length);
    block
}

/// Keeps a block, if it has the room that its class wants and there are not too many of it.
pub(crate) fn keep_small(mut block: Vec<f32>) {
    let (room, class) = (room_for(block.len()), size_class(block.len()));
    if block.is_empty() || block.capacity() < room || AT_HAND < room {
        return;
    }
    let keep = |kept: &RefCell<Vec<Vec<Vec<f32>>>>| {
        let mut kept = kept.borrow_mut();
        if kept.len() <= class {
            kept.resize_with(class + 1, Vec::new);
        }
        if kept[class].len() < MOST && (kept[class].len() + 1) * room <= AT_HAND {
            block.resize(room, 0.0);
            kept[class].push(block);
        }
    };
    // A thread that ends keeps nothing: the block goes back to the system.
    let _ = KEPT.try_with(keep);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_uses_its_blocks_again_and_never_keeps_too_many() {
        for length in (1..AT_HAND / 2).step_by(61) {
            let first = take_small(length);
            let place = first.as_ptr();
            keep_small(first);
            let (again, other) = (take_small(length), take_small(length));
            assert!(again.as_ptr() == place && other.as_ptr() != place && again.len() == length);
            (0..2 * MOST).map(|_| take_small(length)).collect::<Vec<_>>().into_iter().for_each(keep_small);
            let count = KEPT.with(|kept| kept.borrow()[size_class(length)].len());
            assert!(count <= MOST && count * room_for(length) <= AT_HAND, "{count} of {length}");
        }
    }

    #[test]
    fn what_has_no_room_to_spare_or_is_nothing_is_let_go_of() {
        keep_small(Vec::new());
        keep_small(vec![1.0; 17].into_boxed_slice().into_vec());
        keep_small(vec![1.0; 2 * AT_HAND]);
        assert_eq!(KEPT.with(|kept| kept.borrow().iter().flatten().count()), 0);
        assert!(take_small(0).is_empty());
    }
}
