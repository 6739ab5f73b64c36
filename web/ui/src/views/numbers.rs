//! Floats in JSON, as everywhere in the API.

use assay_server::number_to_json;
use serde::Serializer;

/// What JSON cannot hold is a string.
pub(crate) fn floats<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|value| number_to_json(*value)))
}
