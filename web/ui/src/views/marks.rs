//! The tags of a run.

use assay_store::{RunSummary, quote_filter_value};
use serde::Serialize;

use crate::query::encode;

/// A tag, and the list of all runs that have it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Tag {
    text: String,
    href: String,
}

/// The tags of a run.
pub(crate) fn tags(run: &RunSummary) -> Vec<Tag> {
    run.tags
        .iter()
        .map(|tag| Tag {
            text: tag.clone(),
            href: format!("/runs?filter={}", encode(&format!("tag:{}", quote_filter_value(tag)))),
        })
        .collect()
}
