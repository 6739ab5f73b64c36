//! The order in which the pixels of an image become a sequence.

/// An order of pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PixelOrder {
    /// Row by row, from the top left.
    Rows,
    /// Along Hilbert's curve (1891), which keeps neighbours of the plane closer together than rows do. An image whose sides are not
    /// the same power of two is put into the upper left of the smallest such square, and points of the curve outside of the image
    /// are skipped.
    Hilbert,
}

/// The indices of all pixels of an image, as `row * width + column`, in this order.
#[must_use]
pub fn pixel_order(order: PixelOrder, width: usize, height: usize) -> Vec<usize> {
    match order {
        PixelOrder::Rows => (0..width * height).collect(),
        PixelOrder::Hilbert => {
            let mut places = Vec::with_capacity(width * height);
            let side = width.max(height).max(1).next_power_of_two();
            visit_squares(&mut places, (width, height), side, side * side, 0);
            places
        }
    }
}

/// Appends the indices of the image in the square of the curve that starts at `start` and has `count` points. A square outside
/// of the image is skipped as a whole, so that the cost of an image of one long row is proportional to its pixels.
fn visit_squares(places: &mut Vec<usize>, image: (usize, usize), side: usize, count: usize, start: usize) {
    let (x, y) = hilbert(side, start);
    let across = count.isqrt();
    // The square's upper left corner; the curve may enter it at any corner.
    let (left, top) = (x / across * across, y / across * across);
    if left >= image.0 || top >= image.1 {
        return;
    }
    if count == 1 {
        places.push(y * image.0 + x);
        return;
    }
    (0..4).for_each(|part| visit_squares(places, image, side, count / 4, start + part * (count / 4)));
}

/// Column and row of a point on Hilbert's curve through a square whose side is a power of two.
fn hilbert(side: usize, at: usize) -> (usize, usize) {
    let (mut x, mut y, mut rest, mut size) = (0, 0, at, 1);
    while size < side {
        let right = 1 & (rest / 2);
        let down = 1 & (rest ^ right);
        if down == 0 {
            if right == 1 {
                (x, y) = (size - 1 - x, size - 1 - y);
            }
            (x, y) = (y, x);
        }
        (x, y) = (x + size * right, y + size * down);
        rest /= 4;
        size *= 2;
    }
    (x, y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pixel_comes_once_in_every_order() {
        for (width, height) in [(1, 1), (8, 8), (28, 28), (5, 9)] {
            for order in [PixelOrder::Rows, PixelOrder::Hilbert] {
                let mut places = pixel_order(order, width, height);
                places.sort_unstable();
                assert_eq!(places, (0..width * height).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_long_row_is_visited_without_its_square() {
        // The square has 2^40 points.
        assert_eq!(pixel_order(PixelOrder::Hilbert, 1 << 20, 1).len(), 1 << 20);
        assert!(pixel_order(PixelOrder::Hilbert, 0, 0).is_empty());
    }

    #[test]
    fn steps_of_the_curve_are_between_neighbours() {
        for pair in pixel_order(PixelOrder::Hilbert, 16, 16).windows(2) {
            let (from, to) = (pair[0], pair[1]);
            assert_eq!((from / 16).abs_diff(to / 16) + (from % 16).abs_diff(to % 16), 1, "{from} to {to}");
        }
        assert_eq!(pixel_order(PixelOrder::Hilbert, 2, 2), [0, 2, 3, 1]);
    }
}
