//! Calls on metrics.

use std::collections::BTreeSet;

use assay_store::{Store, TrackedBatch, TrackedMetric};
use serde_json::{Value, json};

use super::error::ApiError;
use super::fields::Fields;
use super::runs::{metric_to_json, read_run_id};
use super::validation::{check_name, cut_page, read_max_results, read_page_token, read_param, read_tags};

/// The largest batch, in bytes.
const LARGEST_BATCH: usize = 1_000_000;
/// The most metrics in a batch, and the most of everything together.
const MOST_METRICS: usize = 1000;
/// The most parameters or tags in a batch.
const MOST_PAIRS: usize = 100;
/// How many points of a metric are answered at once.
const MOST_POINTS: usize = 25_000;

fn read_metric(fields: &Fields) -> Result<TrackedMetric, ApiError> {
    let name = fields.text("key")?;
    check_name("metric", &name)?;
    Ok(TrackedMetric {
        value: fields.number("value")?,
        at: fields.integer("timestamp")?,
        step: fields.maybe_integer("step")?.unwrap_or(0),
        name,
    })
}

pub(super) async fn log_metric(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let run = read_run_id(fields)?;
    let batch = TrackedBatch { metrics: vec![read_metric(fields)?], ..TrackedBatch::default() };
    store.log_tracked(&run, batch).await?;
    Ok(json!({}))
}

pub(super) async fn log_batch(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let run = read_run_id(fields)?;
    if fields.bytes > LARGEST_BATCH {
        return Err(ApiError::invalid(format!(
            "Batched logging API requests must be at most {LARGEST_BATCH} bytes, got a request of size {}.",
            fields.bytes
        )));
    }
    let (metrics, params, tags) = (fields.objects("metrics")?, fields.objects("params")?, fields.objects("tags")?);
    let counts = [
        ("metrics", metrics.len(), MOST_METRICS),
        ("params", params.len(), MOST_PAIRS),
        ("tags", tags.len(), MOST_PAIRS),
    ];
    for (what, count, most) in counts {
        if count > most {
            let message = format!(
                "A batch logging request can contain at most {most} {what}. Got {count} {what}. Please split up {what} across multiple requests and try again."
            );
            return Err(ApiError::invalid(message));
        }
    }
    let all = metrics.len() + params.len() + tags.len();
    if all > MOST_METRICS {
        return Err(ApiError::invalid(format!(
            "A batch logging request can contain at most {MOST_METRICS} params, tags, and metrics. Got {all}. Please split them up \
             across multiple requests and try again."
        )));
    }
    let batch = TrackedBatch {
        metrics: metrics.iter().map(read_metric).collect::<Result<_, _>>()?,
        params: params.iter().map(read_param).collect::<Result<_, _>>()?,
        tags: read_tags(&tags)?,
        ..TrackedBatch::default()
    };
    store.log_tracked(&run, batch).await?;
    Ok(json!({}))
}

pub(super) async fn list_history(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let (run, name) = (read_run_id(fields)?, fields.text("metric_key")?);
    let most = read_max_results(fields, MOST_POINTS, MOST_POINTS)?;
    let begin = read_page_token(fields)?;
    let (page, next) = cut_page(store.tracked_history(&run, &name).await?, begin, most);
    let mut answer = json!({});
    if !page.is_empty() {
        answer["metrics"] = page.iter().map(metric_to_json).collect();
    }
    if let Some(next) = next {
        answer["next_page_token"] = next;
    }
    Ok(answer)
}

/// The points of a metric of several runs, for a chart: all of them, or those at evenly spread steps.
pub(super) async fn sample_histories(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let (runs, name) = (fields.texts("run_ids")?, fields.text("metric_key")?);
    if runs.is_empty() || runs.len() > 100 {
        return Err(ApiError::invalid("The request must specify at least one and at most 100 run_ids."));
    }
    let most = read_max_results(fields, 320, 2500)?;
    let range = (fields.maybe_integer("start_step")?, fields.maybe_integer("end_step")?);
    let range = match range {
        (None, None) => i64::MIN..=i64::MAX,
        (Some(begin), Some(end)) if begin <= end => begin..=end,
        _ => {
            return Err(ApiError::invalid(
                "start_step and end_step must be given together, and start_step must not be larger.",
            ));
        }
    };
    let mut histories = Vec::with_capacity(runs.len());
    for run in runs {
        let mut points = store.tracked_history(&run, &name).await?;
        points.retain(|point| range.contains(&point.step));
        points.sort_by_key(|point| (point.step, point.at));
        histories.push((run, points));
    }
    let steps: BTreeSet<i64> = histories.iter().flat_map(|(_, points)| points.iter().map(|point| point.step)).collect();
    let steps = spread_evenly(&steps.into_iter().collect::<Vec<_>>(), most);
    let shown = histories.iter().flat_map(|(run, points)| {
        let own = points.iter().filter(|point| steps.contains(&point.step));
        own.map(move |point| {
            let mut object = metric_to_json(point);
            object["run_id"] = run.as_str().into();
            object
        })
    });
    let shown: Vec<Value> = shown.collect();
    Ok(if shown.is_empty() { json!({}) } else { json!({"metrics": shown}) })
}

/// At most `most` of these steps, the first and the last among them.
fn spread_evenly(steps: &[i64], most: usize) -> BTreeSet<i64> {
    if steps.len() <= most || most < 2 {
        return steps.iter().copied().take(most).collect();
    }
    (0..most).map(|nth| steps[nth * (steps.len() - 1) / (most - 1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampled_steps_keep_the_ends() {
        let steps: Vec<i64> = (0..1000).collect();
        let sampled = spread_evenly(&steps, 10);
        assert_eq!((sampled.len(), sampled.first(), sampled.last()), (10, Some(&0), Some(&999)));
        assert_eq!(spread_evenly(&steps[..5], 10).len(), 5);
        assert_eq!(spread_evenly(&steps, 1), BTreeSet::from([0]));
    }
}
