//! The curves of a run.

use assay_core::RunId;
use assay_server::metric_kind;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;

use super::answer;
use crate::error::Failure;
use crate::load::{self, MOST_POINTS, Wanted};
use crate::query::{Choices, RunAt};
use crate::server::{Inner, Site};
use crate::views::curves::{By, Curve, curves};

#[derive(Serialize)]
struct Curves {
    metric: String,
    unit: &'static str,
    by: By,
    curves: Vec<Curve>,
}

async fn drawn(site: &Inner, run: RunId, choices: &Choices) -> Result<Curves, Failure> {
    load::run(site, run).await?;
    let metric = wanted_metric(choices)?;
    let tasks = load::tasks(site, run).await?;
    let by = By::of(choices.one_of("by", &["cell", "task"])?);
    let cell = choices.get("cell").map(str::to_owned);
    let of_cell = cell.is_some();
    let wanted =
        Wanted { cell, ..Wanted::new(metric, choices.get("job"), by, choices.number("points", 0, MOST_POINTS)?) };
    let mut curves = curves(&load::tracks(site, &tasks, &wanted).await?.tracks, by);
    if of_cell && by == By::Task {
        // Within one cell, the colour distinguishes its tasks.
        curves.iter_mut().enumerate().for_each(|(at, curve)| curve.slot = at);
    }
    Ok(Curves { unit: unit(site, metric), metric: metric.to_owned(), by, curves })
}

pub(super) async fn data(State(site): State<Site>, RunAt(id): RunAt, choices: Choices) -> Result<Response, Failure> {
    Ok(answer(drawn(&site, id, &choices).await?))
}

fn unit(site: &Inner, metric: &str) -> &'static str {
    metric_kind(&site.kinds, metric).map_or("", |kind| kind.unit)
}

pub(super) fn wanted_metric(choices: &Choices) -> Result<&str, Failure> {
    let missing = || Failure::bad_request("no metric is named", "add `?metric=` and a name, such as train/loss");
    choices.get("metric").ok_or_else(missing)
}
