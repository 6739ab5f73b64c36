//! Calls on experiments.

use std::collections::BTreeMap;

use assay_store::{Experiment, ExperimentChange, Store};
use serde_json::{Value, json};

use super::error::ApiError;
use super::fields::Fields;
use super::search::{ViewType, filter_experiments, order_experiments};
use super::validation::{
    check_experiment_name, check_name, cut_page, read_max_results, read_page_token, read_tag, read_tags, shorten,
};

/// The number of the experiment that a field names.
pub(super) fn read_experiment_id(text: &str) -> Result<i64, ApiError> {
    text.parse().map_err(|_| {
        ApiError::invalid(format!("Invalid experiment ID: '{}'. It must be a whole number.", shorten(text)))
    })
}

pub(super) fn to_json(experiment: &Experiment) -> Value {
    let location = match experiment.location.as_str() {
        "" => format!("mlflow-artifacts:/{}", experiment.id),
        location => location.to_owned(),
    };
    let mut object = json!({
        "experiment_id": experiment.id.to_string(),
        "name": experiment.name,
        "artifact_location": location,
        "lifecycle_stage": if experiment.deleted { "deleted" } else { "active" },
        "creation_time": experiment.created_at,
        "last_update_time": experiment.updated_at,
    });
    if !experiment.tags.is_empty() {
        let tags = experiment.tags.iter().map(|(key, value)| json!({"key": key, "value": value}));
        object["tags"] = tags.collect();
    }
    object
}

/// The address of the artifacts of a run.
pub(super) fn artifact_uri(experiment: Option<&Experiment>, id: i64, key: &str) -> String {
    match experiment.map(|experiment| experiment.location.trim_end_matches('/')) {
        None | Some("") => format!("mlflow-artifacts:/{id}/{key}/artifacts"),
        Some(location) => format!("{location}/{key}/artifacts"),
    }
}

pub(super) async fn find_by_name(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let name = fields.text("experiment_name")?;
    let found = store.experiments().await?.into_iter().find(|experiment| experiment.name == name);
    let missing = || ApiError::absent(format!("Could not find experiment with name '{}'", shorten(&name)));
    Ok(json!({"experiment": to_json(&found.ok_or_else(missing)?)}))
}

pub(super) async fn find(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let id = read_experiment_id(&fields.text("experiment_id")?)?;
    let found = store.experiments().await?.into_iter().find(|experiment| experiment.id == id);
    let missing = || ApiError::absent(format!("No Experiment with id={id} exists"));
    Ok(json!({"experiment": to_json(&found.ok_or_else(missing)?)}))
}

pub(super) async fn search(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let view = ViewType::read(fields, "view_type")?;
    let most = read_max_results(fields, 1000, 50_000)?;
    let begin = read_page_token(fields)?;
    let found = store.experiments().await?.into_iter().filter(|experiment| view.shows(experiment.deleted));
    let mut found = filter_experiments(found.collect(), &fields.text_or_empty("filter")?)?;
    order_experiments(&mut found, &fields.texts("order_by")?)?;
    let (page, next) = cut_page(found, begin, most);
    let mut answer = json!({});
    if !page.is_empty() {
        answer["experiments"] = page.iter().map(to_json).collect();
    }
    if let Some(next) = next {
        answer["next_page_token"] = next;
    }
    Ok(answer)
}

pub(super) async fn create(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let name = fields.text("name")?;
    check_experiment_name(&name)?;
    let location = fields.text_or_empty("artifact_location")?;
    if location.contains(['?', '#']) || location.split('/').any(|part| part == "..") {
        return Err(ApiError::invalid(format!("Invalid artifact location: '{}'", shorten(&location))));
    }
    let tags: BTreeMap<String, String> = read_tags(&fields.objects("tags")?)?.into_iter().collect();
    let id = store.create_experiment(&name, &location, &tags).await?;
    Ok(json!({"experiment_id": id.to_string()}))
}

async fn change(store: &Store, fields: &Fields, change: ExperimentChange) -> Result<Value, ApiError> {
    let id = read_experiment_id(&fields.text("experiment_id")?)?;
    store.change_experiment(id, change).await?;
    Ok(json!({}))
}

pub(super) async fn rename(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let name = fields.text("new_name")?;
    check_experiment_name(&name)?;
    change(store, fields, ExperimentChange::Rename(name)).await
}

pub(super) async fn delete(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    change(store, fields, ExperimentChange::Delete).await
}

pub(super) async fn restore(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    change(store, fields, ExperimentChange::Restore).await
}

pub(super) async fn set_tag(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let (name, value) = read_tag(fields)?;
    change(store, fields, ExperimentChange::SetTag(name, value)).await
}

pub(super) async fn delete_tag(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let name = fields.text("key")?;
    check_name("tag", &name)?;
    change(store, fields, ExperimentChange::RemoveTag(name)).await
}
