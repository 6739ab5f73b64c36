//! Metric points as Parquet segments, read with polars.
