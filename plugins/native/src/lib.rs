//! The one place that names the concrete backends.
