//! The store: journal, runs, artifacts by content hash, metric points.
