//! How much of the variance of a metric each axis of a sweep, and each pair of axes, accounts for.

use assay_server::{Results, SweepDesign};
use assay_statistics::Scale;
use assay_statistics::factorial::{VarianceShare, variance_shares};
use serde::Serialize;

use super::strips::{Strip, StripScale};

/// The level of confidence of intervals.
const LEVEL: f64 = 0.95;

/// The importance of the axes of a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ImportanceView {
    /// The jobs that sweep an axis.
    pub jobs: Vec<String>,
    /// The job shown; empty if no job sweeps an axis.
    pub job: String,
    /// The metric: the title of its column.
    pub metric: String,
    /// The scale on which the variance is shared out.
    pub scale: Scale,
    /// The axes and their interactions, the largest share first; then what is left. Empty if it cannot be computed.
    pub parts: Vec<VariancePart>,
    /// Why it cannot be computed; empty if it can.
    pub obstacle: String,
    /// The cells that were left out, with the reason.
    pub left_out: Vec<String>,
    /// How many observations there are.
    pub n: usize,
}

/// A part of the variance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct VariancePart {
    /// Such as `states`, or `chunk and states`.
    pub name: String,
    /// What it is: `axis`, `interaction`, `higher`, or `replicates`.
    pub kind: &'static str,
    /// The share, from 0 to 1; `None` where missing cells leave nothing of it.
    pub share: Option<f64>,
    /// The lower end of its 95 % interval.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// The share as text.
    pub text: String,
}

/// Shares out the variance of a column, by its place.
pub(crate) fn view_importance(results: &Results, column: usize, job: Option<&str>) -> ImportanceView {
    let mut jobs: Vec<String> = Vec::new();
    for row in &results.rows {
        if !jobs.contains(&row.job) && !row.matrix.is_empty() {
            jobs.push(row.job.clone());
        }
    }
    let axes_of = |job: &String| results.rows.iter().filter(|row| row.job == *job).map(|row| row.matrix.len()).max();
    let asked = job.filter(|job| jobs.iter().any(|known| known == job)).map(str::to_owned);
    let job = asked.or_else(|| jobs.iter().rev().max_by_key(|job| axes_of(job)).cloned()).unwrap_or_default();
    let metric = results.columns[column].title.clone();
    let design = SweepDesign::collect(&results.rows, column, &job).filter(|design| !design.axes.is_empty());
    let mut view = ImportanceView {
        jobs,
        job,
        metric,
        scale: Scale::Linear,
        parts: Vec::new(),
        obstacle: "no axis of this job has several values".to_owned(),
        left_out: Vec::new(),
        n: 0,
    };
    let Some(design) = design else { return view };
    view.left_out = design.left_out.clone();
    view.n = design.observations.len();
    match variance_shares(&design.design(), &design.observations, LEVEL) {
        Err(error) if design.observations.is_empty() => {
            drop(error);
            view.obstacle = "no cell has a value".to_owned();
        }
        Err(error) => view.obstacle = error.to_string(),
        Ok(found) => {
            let name = |share: &VarianceShare| {
                share.axes.iter().map(|&axis| design.axes[axis].name.as_str()).collect::<Vec<_>>().join(" and ")
            };
            view.scale = found.scale;
            view.obstacle = String::new();
            view.parts = found.shares.iter().map(|share| part(name(share), share)).collect();
            view.parts.sort_by(|a, b| b.share.unwrap_or(-1.0).total_cmp(&a.share.unwrap_or(-1.0)));
            if design.axes.len() > 2 {
                view.parts.push(plain_part("interactions of three or more axes", "higher", found.higher));
            }
            view.parts.push(plain_part("between replicates", "replicates", found.error));
        }
    }
    view
}

fn part(name: String, share: &VarianceShare) -> VariancePart {
    let (low, high) = (share.interval.map(|interval| interval.low), share.interval.map(|interval| interval.high));
    let text = match (share.share, share.interval) {
        (None, _) => "missing cells leave nothing to estimate".to_owned(),
        (Some(value), None) => percent(value),
        (Some(value), Some(interval)) => {
            format!("{} ({} to {})", percent(value), percent(interval.low), percent(interval.high))
        }
    };
    let kind = if share.axes.len() == 1 { "axis" } else { "interaction" };
    VariancePart { name, kind, share: share.share, low, high, text }
}

fn plain_part(name: &str, kind: &'static str, share: f64) -> VariancePart {
    let (low, high, text) = (None, None, percent(share));
    VariancePart { name: name.to_owned(), kind, share: Some(share), low, high, text }
}

/// The shares drawn, parallel to the parts, on one scale from 0 to 1.
pub(crate) fn draw_shares(view: &ImportanceView) -> Vec<Option<Strip>> {
    let scale = StripScale::spanning([0.0, 1.0].into_iter());
    view.parts.iter().map(|part| scale?.strip(part.share?, part.low.zip(part.high), Some(0.0))).collect()
}

fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent > 0.0 && percent < 1.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percent_for_people() {
        assert_eq!([0.0, 0.004, 0.05, 0.925, 1.0].map(percent), ["0 %", "0.4 %", "5 %", "92 %", "100 %"]);
    }
}
