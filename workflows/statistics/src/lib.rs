//! Intervals, outliers, comparisons and corrections: the statistics of experiments.
