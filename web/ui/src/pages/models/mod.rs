//! The trained, quantized and exported models of all runs, with their lineage.

use std::collections::BTreeSet;

use assay_core::RunId;
use axum::extract::State;
use axum::response::Html;
use serde::Serialize;

use crate::error::Failure;
use crate::query::{Choices, encode};
use crate::server::{Inner, Site};
use crate::templates::render;
use crate::views::models::{ModelRow, find_models};

/// The parameters of the query.
pub(crate) const PARAMETERS: [&str; 2] = ["family", "before"];
/// The models of how many runs are on a page.
const RUNS: u64 = 20;

#[derive(Debug, Serialize)]
struct ModelsPage {
    title: &'static str,
    live: bool,
    models: Models,
    data: String,
    older: Option<String>,
}

/// The models of some runs.
#[derive(Debug, Serialize)]
pub(crate) struct Models {
    /// The families that occur.
    pub families: BTreeSet<String>,
    /// The family shown; empty for all.
    pub family: String,
    /// The models, those of the latest run first.
    pub models: Vec<ModelRow>,
    /// Where the models of earlier runs begin: what to give as `before`; `None` if there are none.
    pub next: Option<i64>,
}

/// The page.
pub(crate) async fn show(State(site): State<Site>, choices: Choices) -> Result<Html<String>, Failure> {
    choices.only(&PARAMETERS)?;
    let models = list_models(&site, &choices).await?;
    let family = if models.family.is_empty() { String::new() } else { format!("family={}", encode(&models.family)) };
    let address = |path: &str, parts: &[String]| {
        let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        if parts.is_empty() { path.to_owned() } else { format!("{path}?{}", parts.join("&")) }
    };
    let before = choices.get("before").map_or_else(String::new, |before| format!("before={}", encode(before)));
    let page = ModelsPage {
        title: "Models",
        live: false,
        data: address("/api/models", &[family.clone(), before]),
        older: models.next.map(|next| address("/models", &[family, format!("before={next}")])),
        models,
    };
    render(&site, "models.html", page)
}

/// The models of the runs that a query asks for.
pub(crate) async fn list_models(site: &Inner, choices: &Choices) -> Result<Models, Failure> {
    let before = choices.number("before", i64::MAX as u64, i64::MAX as u64)?;
    let family = choices.get("family").unwrap_or_default().to_owned();
    let mut runs = site.store.runs_with_artifacts(RunId(before.cast_signed()), RUNS + 1).await?;
    let has_more = runs.len() as u64 > RUNS;
    runs.truncate(RUNS as usize);
    let next = runs.last().filter(|_| has_more).map(|run| run.0);
    let (mut families, mut models) = (BTreeSet::new(), Vec::new());
    for run in runs {
        let found = find_models(&site.store.tasks(run).await?);
        families.extend(found.iter().filter(|model| !model.family.is_empty()).map(|model| model.family.clone()));
        models.extend(found.into_iter().filter(|model| family.is_empty() || model.family == family));
    }
    Ok(Models { families, family, models, next })
}
