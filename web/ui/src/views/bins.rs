//! Long series in bins of equal width, so that replicates are averaged over all that they measured and not over a selection.
//!
//! A width is a power of two, and bins begin at its multiples. Series of different lengths therefore share one grid: the
//! finer bins are merged in pairs, which is exact.

use std::collections::BTreeMap;

/// A series in bins.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bins {
    /// Training steps per bin; 1 leaves the series as it was measured.
    width: u64,
    /// The sum and the number of the values, by the place of the bin.
    bins: BTreeMap<u64, (f64, u32)>,
}

impl Bins {
    /// Sums values over the narrowest bins of which at most `most` cover the series.
    pub fn of_series(steps: &[u64], values: &[f64], most: u64) -> Bins {
        let mut bins = Bins { width: 1, bins: BTreeMap::new() };
        if steps.len() as u64 > most {
            let (first, last) = steps.iter().fold((u64::MAX, 0), |(low, high), &step| (low.min(step), high.max(step)));
            while last / bins.width - first / bins.width >= most.max(1) {
                bins.width *= 2;
            }
        }
        for (&step, &value) in std::iter::zip(steps, values) {
            bins.add(step / bins.width, value, 1);
        }
        bins
    }

    fn add(&mut self, place: u64, sum: f64, count: u32) {
        let bin = self.bins.entry(place).or_default();
        *bin = (bin.0 + sum, bin.1 + count);
    }

    /// Training steps per bin.
    pub fn width(&self) -> u64 {
        self.width
    }

    /// Merges bins until each covers `width` steps, a power of two.
    pub fn widen(&mut self, width: u64) {
        if width <= self.width {
            return;
        }
        let factor = width / self.width;
        self.width = width;
        for (place, (sum, count)) in std::mem::take(&mut self.bins) {
            self.add(place / factor, sum, count);
        }
    }

    /// The middle step of each bin, and the mean of its values. NaN where a value was NaN.
    pub fn means(&self) -> (Vec<u64>, Vec<f64>) {
        let middle = (self.width - 1) / 2;
        self.bins.iter().map(|(place, (sum, count))| (place * self.width + middle, sum / f64::from(*count))).unzip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_series_stays_as_it_was_measured() {
        let bins = Bins::of_series(&[0, 1000, 5000], &[3.0, 2.0, 1.0], 3);
        assert_eq!(bins.means(), (vec![0, 1000, 5000], vec![3.0, 2.0, 1.0]));
    }

    #[test]
    fn a_long_series_is_averaged_over_all_of_its_points() {
        let steps: Vec<u64> = (0..200_000).collect();
        let values: Vec<f64> = steps.iter().map(|&step| f64::from(u32::from(step % 2 == 0))).collect();
        let (middles, means) = Bins::of_series(&steps, &values, 500).means();
        assert!((250..=500).contains(&means.len()), "{}", means.len());
        assert!(means.iter().all(|mean| (mean - 0.5).abs() < 1e-12));
        assert_eq!(&middles[..2], [255, 767]);
    }

    #[test]
    fn wider_bins_hold_the_same_sums() {
        let steps: Vec<u64> = (0..1000).collect();
        let values: Vec<f64> = steps.iter().map(|&step| step as f64).collect();
        let mut fine = Bins::of_series(&steps, &values, 100);
        fine.widen(64);
        let mut coarse = Bins::of_series(&steps, &values, 16);
        assert_eq!(coarse.width(), 64);
        coarse.widen(32);
        assert_eq!(fine, coarse);
    }

    #[test]
    fn a_value_that_is_not_finite_shows() {
        let steps: Vec<u64> = (0..100).collect();
        let mut values = vec![1.0; 100];
        values[50] = f64::NAN;
        let (_, means) = Bins::of_series(&steps, &values, 10).means();
        assert_eq!(means.iter().filter(|mean| mean.is_nan()).count(), 1);
    }

    #[test]
    fn extreme_steps_do_no_harm() {
        let bins = Bins::of_series(&[u64::MAX, 0, 7], &[1.0, 2.0, 3.0], 2);
        assert_eq!(bins.means().1, [2.5, 1.0]);
    }
}
