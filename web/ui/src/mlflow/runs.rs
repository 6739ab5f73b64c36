//! Calls on runs.

use std::collections::BTreeMap;

use assay_store::{
    Experiment, NewTrackedRun, Store, TrackedBatch, TrackedMetric, TrackedRun, TrackedRunChange, TrackedStatus,
};
use serde_json::{Value, json};

use super::error::ApiError;
use super::experiments::{artifact_uri, read_experiment_id};
use super::fields::{Fields, invalid_value};
use super::names::choose_names;
use super::search::{ViewType, filter_runs, order_runs};
use super::validation::{
    check_name, check_run_id, cut_page, read_max_results, read_page_token, read_param, read_tag, read_tags,
};

/// The tag that holds a run's name.
const NAME_TAG: &str = "mlflow.runName";

/// A number in the JSON of protocol buffers.
fn number_to_json(value: f64) -> Value {
    match value {
        value if value.is_nan() => "NaN".into(),
        value if value.is_infinite() => if value > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        value => value.into(),
    }
}

pub(super) fn metric_to_json(metric: &TrackedMetric) -> Value {
    json!({"key": metric.name, "value": number_to_json(metric.value), "timestamp": metric.at, "step": metric.step})
}

fn pairs_to_json(pairs: &BTreeMap<String, String>) -> Value {
    pairs.iter().map(|(key, value)| json!({"key": key, "value": value})).collect()
}

fn info_to_json(run: &TrackedRun, experiments: &[Experiment]) -> Value {
    let experiment = experiments.iter().find(|experiment| experiment.id == run.experiment);
    let mut info = json!({
        "run_id": run.key,
        "run_uuid": run.key,
        "run_name": run.name,
        "experiment_id": run.experiment.to_string(),
        "user_id": run.user,
        "status": run.status.name(),
        "start_time": run.start_time,
        "artifact_uri": artifact_uri(experiment, run.experiment, &run.key),
        "lifecycle_stage": if run.deleted { "deleted" } else { "active" },
    });
    if let Some(end) = run.end_time {
        info["end_time"] = end.into();
    }
    info
}

fn to_json(run: &TrackedRun, experiments: &[Experiment]) -> Value {
    let mut data = json!({});
    if !run.metrics.is_empty() {
        data["metrics"] = run.metrics.iter().map(metric_to_json).collect();
    }
    for (name, pairs) in [("params", &run.params), ("tags", &run.tags)] {
        if !pairs.is_empty() {
            data[name] = pairs_to_json(pairs);
        }
    }
    let inputs = if run.inputs.is_empty() { json!({}) } else { json!({"dataset_inputs": run.inputs}) };
    json!({"info": info_to_json(run, experiments), "data": data, "inputs": inputs})
}

/// The run that a request names. Clients before version 1 name it by `run_uuid`.
pub(super) fn read_run_id(fields: &Fields) -> Result<String, ApiError> {
    let name = if fields.has("run_id") || !fields.has("run_uuid") { "run_id" } else { "run_uuid" };
    let id = fields.text(name)?;
    check_run_id(&id)?;
    Ok(id)
}

pub(super) async fn create(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let experiment = fields.text_or_empty("experiment_id")?;
    let experiment = if experiment.is_empty() { 0 } else { read_experiment_id(&experiment)? };
    let mut tags: BTreeMap<String, String> = read_tags(&fields.objects("tags")?)?.into_iter().collect();
    let (key, chosen) = choose_names()?;
    let named = fields.maybe_text("run_name")?.filter(|name| !name.is_empty());
    let tagged = tags.get(NAME_TAG).filter(|name| !name.is_empty()).cloned();
    if let (Some(name), Some(tag)) = (&named, &tagged)
        && name != tag
    {
        return Err(ApiError::invalid(format!(
            "Both 'run_name' argument and 'mlflow.runName' tag are specified, but with different values (run_name='{name}', \
             mlflow.runName='{tag}')."
        )));
    }
    let name = named.or(tagged).unwrap_or(chosen);
    tags.insert(NAME_TAG.to_owned(), name.clone());
    let start_time = match fields.maybe_integer("start_time")? {
        Some(time) => time,
        None => i64::try_from(crate::server::now()).unwrap_or(i64::MAX),
    };
    // Read first: after an error the client opens the run again.
    let experiments = store.experiments().await?;
    let run = store
        .create_tracked_run(NewTrackedRun {
            key,
            experiment,
            name,
            user: fields.text_or_empty("user_id")?,
            start_time,
            created_at: None,
            tags,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })
        .await?;
    Ok(json!({"run": to_json(&run, &experiments)}))
}

pub(super) async fn find(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let id = read_run_id(fields)?;
    let run = store.tracked_run(&id).await?;
    let run = run.ok_or_else(|| ApiError::absent(format!("Run with id={id} not found")))?;
    Ok(json!({"run": to_json(&run, &store.experiments().await?)}))
}

fn read_status(fields: &Fields) -> Result<Option<TrackedStatus>, ApiError> {
    if let Ok(Some(number)) = fields.maybe_integer("status") {
        let index = number.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        let status = index.and_then(|index| TrackedStatus::ALL.get(index).copied());
        return status.map(Some).ok_or_else(|| invalid_value("status", &number.into()));
    }
    let Some(name) = fields.maybe_text("status")? else { return Ok(None) };
    TrackedStatus::from_name(&name).map(Some).ok_or_else(|| invalid_value("status", &name.into()))
}

pub(super) async fn update(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let id = read_run_id(fields)?;
    let change = TrackedRunChange {
        status: read_status(fields)?,
        end_time: fields.maybe_integer("end_time")?,
        name: fields.maybe_text("run_name")?.filter(|name| !name.is_empty()),
        deleted: None,
    };
    let experiments = store.experiments().await?;
    let run = store.change_tracked_run(&id, change).await?;
    Ok(json!({"run_info": info_to_json(&run, &experiments)}))
}

pub(super) async fn set_deleted(store: &Store, fields: &Fields, deleted: bool) -> Result<Value, ApiError> {
    let id = read_run_id(fields)?;
    let change = TrackedRunChange { deleted: Some(deleted), ..TrackedRunChange::default() };
    store.change_tracked_run(&id, change).await?;
    Ok(json!({}))
}

pub(super) async fn search(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let ids = fields.texts("experiment_ids")?;
    let ids = ids.iter().map(|id| read_experiment_id(id)).collect::<Result<Vec<_>, _>>()?;
    let view = ViewType::read(fields, "run_view_type")?;
    let most = read_max_results(fields, 1000, 50_000)?;
    let begin = read_page_token(fields)?;
    let (filter, order_by) = (fields.text_or_empty("filter")?, fields.texts("order_by")?);
    let found = store.tracked_runs(&ids).await?;
    let select_runs = move || -> Result<Vec<TrackedRun>, ApiError> {
        let found = found.into_iter().filter(|run| view.shows(run.deleted)).collect();
        let mut found = filter_runs(found, &filter)?;
        order_runs(&mut found, &order_by)?;
        Ok(found)
    };
    // A long filter over many runs takes time, for which other requests must not wait.
    let found = tokio::task::spawn_blocking(select_runs).await.map_err(ApiError::internal)??;
    let (page, next) = cut_page(found, begin, most);
    let experiments = store.experiments().await?;
    let mut answer = json!({});
    if !page.is_empty() {
        answer["runs"] = page.iter().map(|run| to_json(run, &experiments)).collect();
    }
    if let Some(next) = next {
        answer["next_page_token"] = next;
    }
    Ok(answer)
}

async fn log(store: &Store, fields: &Fields, batch: TrackedBatch) -> Result<Value, ApiError> {
    store.log_tracked(&read_run_id(fields)?, batch).await?;
    Ok(json!({}))
}

pub(super) async fn set_tag(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    log(store, fields, TrackedBatch { tags: vec![read_tag(fields)?], ..TrackedBatch::default() }).await
}

pub(super) async fn delete_tag(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let name = fields.text("key")?;
    check_name("tag", &name)?;
    log(store, fields, TrackedBatch { removed_tags: vec![name], ..TrackedBatch::default() }).await
}

pub(super) async fn log_parameter(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    log(store, fields, TrackedBatch { params: vec![read_param(fields)?], ..TrackedBatch::default() }).await
}

pub(super) async fn log_inputs(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let inputs = fields.list("datasets");
    for input in &inputs {
        let dataset = Fields::of_value("dataset", &input["dataset"])?;
        for name in ["name", "digest", "source_type", "source"] {
            dataset.text(name)?;
        }
    }
    log(store, fields, TrackedBatch { inputs, ..TrackedBatch::default() }).await
}
