//! Comparisons and their curves.

use assay_server::metric_kind;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;

use super::answer;
use super::curves::wanted_metric;
use crate::comparison::{DEFAULT_THRESHOLD, Side, compare_sides};
use crate::error::Failure;
use crate::load::{self, MOST_POINTS, Wanted, XAxis};
use crate::pages::compare::load_sides;
use crate::query::Choices;
use crate::server::Site;
use crate::views::curves::{By, Curve, curves};

/// The number of lines that can have separate colours. With more lines, all lines of a side have the same colour.
const COLOURS: usize = 7;

#[derive(Serialize)]
struct SideCurves {
    metric: String,
    unit: &'static str,
    x: &'static str,
    /// How many tasks have points of the metric, and no time or number of tokens for them.
    left_out: usize,
    curves: Vec<Curve>,
}

fn needs_sides(sides: &[Side], least: usize) -> Result<(), Failure> {
    match sides.len() < least {
        true => Err(Failure::bad_request(
            "too few sides are named",
            "give `of` several times: a run, `RUN:JOB` or `RUN:CELL`",
        )),
        false => Ok(()),
    }
}

pub(super) async fn contrasts(State(site): State<Site>, choices: Choices) -> Result<Response, Failure> {
    let threshold = match choices.get("threshold") {
        None => DEFAULT_THRESHOLD,
        Some(text) => text.parse().ok().filter(|share: &f64| share.is_finite() && *share >= 0.0).ok_or_else(|| {
            Failure::bad_request("`threshold` is not a share", "give a number of zero or more, such as 0.05")
        })?,
    };
    let sides = load_sides(&site, &choices).await?;
    needs_sides(&sides, 2)?;
    let others: Vec<&Side> = sides.iter().skip(1).collect();
    Ok(answer(compare_sides(&sides[0], &others, threshold).json()))
}

pub(super) async fn curves_of_sides(State(site): State<Site>, choices: Choices) -> Result<Response, Failure> {
    let metric = wanted_metric(&choices)?;
    let x = XAxis::of(choices.one_of("x", &XAxis::WORDS)?);
    let points = choices.number("points", 0, MOST_POINTS)?;
    let sides = load_sides(&site, &choices).await?;
    needs_sides(&sides, 1)?;
    let (mut found, mut left_out) = (Vec::new(), 0);
    for (place, side) in sides.iter().enumerate() {
        let tasks: Vec<_> = side.tasks.iter().filter(|task| side.has_task(task)).cloned().collect();
        let wanted = Wanted { x, ..Wanted::new(metric, None, By::Cell, points) };
        let tracks = load::tracks(&site, &tasks, &wanted).await?;
        left_out += tracks.left_out;
        for mut curve in curves(&tracks.tracks, By::Cell) {
            curve.label = format!("{}: {}", side.id(), curve.label);
            found.push((place, curve));
        }
    }
    let many = found.len() > COLOURS;
    let colour = |(at, (place, curve)): (usize, (usize, Curve))| Curve { slot: if many { place } else { at }, ..curve };
    Ok(answer(SideCurves {
        unit: metric_kind(&site.kinds, metric).map_or("", |kind| kind.unit),
        metric: metric.to_owned(),
        x: x.word(),
        left_out,
        curves: found.into_iter().enumerate().map(colour).collect(),
    }))
}
