//! The fields of runs and experiments that searches use.

use assay_store::{Experiment, TrackedRun};

use super::super::error::ApiError;
use super::super::fields::{Fields, invalid_value};
use super::clause::{Clause, Entity, Field, Key, Searchable, parse_filter};
use super::order::{Order, parse_order};

const RUNS: Searchable = Searchable {
    numbers: &["start_time", "end_time"],
    texts: &["run_id", "run_name", "status", "user_id", "artifact_uri", "experiment_id", "lifecycle_stage"],
    aliases: &[
        ("created", "start_time"),
        ("run id", "run_id"),
        ("run name", "run_name"),
        ("name", "run_name"),
        ("user", "user_id"),
    ],
    entities: &[Entity::Metric, Entity::Param, Entity::Tag, Entity::Dataset],
};

const EXPERIMENTS: Searchable = Searchable {
    numbers: &["creation_time", "last_update_time"],
    texts: &["name", "experiment_id"],
    aliases: &[],
    entities: &[Entity::Tag],
};

/// Whether a search shows active or deleted records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum ViewType {
    Active,
    Deleted,
    All,
}

impl ViewType {
    /// Reads a name or a number; without a value, active records are shown.
    pub fn read(fields: &Fields, name: &str) -> Result<ViewType, ApiError> {
        if let Ok(Some(number)) = fields.maybe_integer(name) {
            let known = [ViewType::Active, ViewType::Deleted, ViewType::All];
            let index = number.checked_sub(1).and_then(|index| usize::try_from(index).ok());
            let known = index.and_then(|index| known.get(index).copied());
            return known.ok_or_else(|| invalid_value(name, &number.into()));
        }
        match fields.text_or_empty(name)?.as_str() {
            "" | "ACTIVE_ONLY" => Ok(ViewType::Active),
            "DELETED_ONLY" => Ok(ViewType::Deleted),
            "ALL" => Ok(ViewType::All),
            other => Err(invalid_value(name, &other.into())),
        }
    }

    /// Whether a record is shown.
    pub fn shows(self, deleted: bool) -> bool {
        match self {
            ViewType::Active => !deleted,
            ViewType::Deleted => deleted,
            ViewType::All => true,
        }
    }
}

/// The values that a run has of a key.
fn run_fields(run: &TrackedRun, key: &Key) -> Vec<Field> {
    let text = |text: &str| vec![Field::Text(text.to_owned())];
    let of = |map: &std::collections::BTreeMap<String, String>| {
        map.get(&key.name).map_or_else(Vec::new, |value| text(value))
    };
    match key.entity {
        Entity::Param => of(&run.params),
        Entity::Tag => of(&run.tags),
        Entity::Metric => {
            let own = run.metrics.iter().filter(|metric| metric.name == key.name);
            own.map(|metric| Field::Number(metric.value)).collect()
        }
        Entity::Dataset => {
            let values = run.inputs.iter().filter_map(|input| match key.name.as_str() {
                "context" => {
                    let tags = input["tags"].as_array()?;
                    tags.iter().find(|tag| tag["key"] == "mlflow.data.context")?["value"].as_str()
                }
                name => input["dataset"][name].as_str(),
            });
            values.map(|value| Field::Text(value.to_owned())).collect()
        }
        Entity::Attribute => match key.name.as_str() {
            "start_time" => vec![Field::Number(run.start_time as f64)],
            "end_time" => run.end_time.map_or_else(Vec::new, |end| vec![Field::Number(end as f64)]),
            "run_id" => text(&run.key),
            "run_name" => text(&run.name),
            "status" => text(run.status.name()),
            "user_id" => text(&run.user),
            "experiment_id" => text(&run.experiment.to_string()),
            "lifecycle_stage" => text(if run.deleted { "deleted" } else { "active" }),
            _ => text(&super::super::experiments::artifact_uri(None, run.experiment, &run.key)),
        },
    }
}

fn experiment_fields(experiment: &Experiment, key: &Key) -> Vec<Field> {
    match (key.entity, key.name.as_str()) {
        (Entity::Tag, name) => {
            experiment.tags.get(name).map_or_else(Vec::new, |value| vec![Field::Text(value.clone())])
        }
        (_, "creation_time") => vec![Field::Number(experiment.created_at as f64)],
        (_, "last_update_time") => vec![Field::Number(experiment.updated_at as f64)],
        (_, "name") => vec![Field::Text(experiment.name.clone())],
        _ => vec![Field::Text(experiment.id.to_string())],
    }
}

fn retain<T>(mut records: Vec<T>, clauses: &[Clause], fields: impl Fn(&T, &Key) -> Vec<Field>) -> Vec<T> {
    records.retain(|record| clauses.iter().all(|clause| clause.matches(&fields(record, &clause.key))));
    records
}

/// The runs that a filter lets through.
pub(in super::super) fn filter_runs(runs: Vec<TrackedRun>, filter: &str) -> Result<Vec<TrackedRun>, ApiError> {
    Ok(retain(runs, &parse_filter(filter, &RUNS)?, run_fields))
}

/// The experiments that a filter lets through.
pub(in super::super) fn filter_experiments(all: Vec<Experiment>, filter: &str) -> Result<Vec<Experiment>, ApiError> {
    Ok(retain(all, &parse_filter(filter, &EXPERIMENTS)?, experiment_fields))
}

fn parse_orders(texts: &[String], searchable: &Searchable) -> Result<Vec<Order>, ApiError> {
    texts.iter().map(|text| parse_order(text, searchable)).collect()
}

/// Sorts by keys that are computed once a record; equal ones by `last`.
fn sort_records<T>(
    records: &mut Vec<T>,
    orders: &[Order],
    fields: impl Fn(&T, &Key) -> Vec<Field>,
    last: impl Fn(&T, &T) -> std::cmp::Ordering,
) {
    let keyed = records.drain(..).map(|record| {
        let keys: Vec<Option<Field>> =
            orders.iter().map(|order| fields(&record, &order.key).into_iter().next()).collect();
        (keys, record)
    });
    let mut keyed: Vec<_> = keyed.collect();
    keyed.sort_by(|(a, first), (b, second)| {
        let pairs = orders.iter().zip(a.iter().zip(b));
        let order = pairs.map(|(order, (a, b))| order.compare(a.as_ref(), b.as_ref())).find(|order| order.is_ne());
        order.unwrap_or_else(|| last(first, second))
    });
    records.extend(keyed.into_iter().map(|(_, record)| record));
}

/// Sorts runs; equal ones have the latest first.
pub(in super::super) fn order_runs(runs: &mut Vec<TrackedRun>, order_by: &[String]) -> Result<(), ApiError> {
    let orders = parse_orders(order_by, &RUNS)?;
    let latest = |a: &TrackedRun, b: &TrackedRun| b.start_time.cmp(&a.start_time).then_with(|| a.key.cmp(&b.key));
    sort_records(runs, &orders, run_fields, latest);
    Ok(())
}

/// Sorts experiments; equal ones have the latest first.
pub(in super::super) fn order_experiments(all: &mut Vec<Experiment>, order_by: &[String]) -> Result<(), ApiError> {
    let orders = parse_orders(order_by, &EXPERIMENTS)?;
    let latest = |a: &Experiment, b: &Experiment| b.created_at.cmp(&a.created_at).then(a.id.cmp(&b.id));
    sort_records(all, &orders, experiment_fields, latest);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use assay_core::RunId;
    use assay_store::{TrackedMetric, TrackedStatus};
    use serde_json::json;

    use super::*;

    fn run(number: i64, loss: Option<f64>, model: &str, end_time: Option<i64>) -> TrackedRun {
        let metric = |value| TrackedMetric { name: "train/loss".into(), value, at: 1, step: 1 };
        let tags = BTreeMap::from([("mlflow.source.name".to_owned(), format!("train_{number}.py"))]);
        TrackedRun {
            run: RunId(number),
            key: number.to_string().repeat(32),
            experiment: 0,
            name: format!("run {number}"),
            user: "me".into(),
            status: TrackedStatus::Finished,
            start_time: number,
            end_time,
            deleted: false,
            params: BTreeMap::from([("model".to_owned(), model.to_owned())]),
            tags,
            metrics: loss.map(metric).into_iter().collect(),
            inputs: vec![
                json!({"dataset": {"name": "iris", "digest": "1"}, "tags": [{"key": "mlflow.data.context", "value": "train"}]}),
            ],
        }
    }

    fn runs() -> Vec<TrackedRun> {
        vec![
            run(1, Some(0.5), "ten", Some(10)),
            run(2, Some(f64::NAN), "Pulse", None),
            run(3, None, "ten 50%", Some(5)),
            run(4, Some(0.25), "a_b", Some(7)),
        ]
    }

    #[test]
    fn a_filter_lets_through_what_mlflow_would() {
        let check = |filter: &str, expected: &[i64]| {
            let found = filter_runs(runs(), filter).unwrap_or_else(|error| panic!("{filter}: {error:?}"));
            assert_eq!(found.iter().map(|run| run.run.0).collect::<Vec<_>>(), expected, "{filter}");
        };
        check("", &[1, 2, 3, 4]);
        check("metrics.`train/loss` < 0.3", &[4]);
        check("metric.\"train/loss\" >= 2.5e-1 and params.model != 'a_b'", &[1]);
        check("metrics.train/loss != 0.5", &[2, 4]);
        check("params.model LIKE 'ten%'", &[1, 3]);
        check("params.model ILIKE 'P_LSE'", &[2]);
        check("params.model LIKE 'p%'", &[]);
        check("parameters.model = \"ten\"", &[1]);
        check("tags.mlflow.source.name = 'train_3.py'", &[3]);
        check("tags.`mlflow.source.name` LIKE '%_3.py' AND status = 'FINISHED'", &[3]);
        check("attributes.start_time > 2 AND end_time < 7", &[3]);
        check("run_name IN ('run 1', 'run 4')", &[1, 4]);
        check("attributes.run_name NOT IN ('run 1')", &[2, 3, 4]);
        check("params.absent != 'x'", &[]);
        check("params.absent IS NULL and tags.absent is null", &[1, 2, 3, 4]);
        check("params.model IS NOT NULL", &[1, 2, 3, 4]);
        check("dataset.name = 'iris' AND datasets.context LIKE 'tr%'", &[1, 2, 3, 4]);
        check("created <= 1", &[1]);
    }

    #[test]
    fn a_wrong_filter_is_refused() {
        let many = "(".repeat(10_000);
        let wrong = [
            "metrics.loss",
            "metrics.loss >",
            "metrics.loss > 'a'",
            "params.a = 5",
            "params.a > 'x'",
            "a = 'b'",
            "x.y = 'z'",
            "and",
            "status = 'x' or status = 'y'",
            "status = 'x' status = 'y'",
            "status IN ()",
            "params.a IN ('x')",
            "status = 'x",
            "metrics.a IS NULL",
            "status IN ('a' 'b')",
            "start_time = 'x'",
            "status LIKE 5",
            "metrics. > 1",
            "!",
            "`",
            "status = 'x' and",
            "start_time LIKE 'x'",
            "status = ",
            "= 'x'",
            "('a')",
            &many,
        ];
        for filter in wrong {
            let refused = filter_runs(runs(), filter).unwrap_err();
            assert!(format!("{refused:?}").contains("INVALID_PARAMETER_VALUE"), "{filter}: {refused:?}");
        }
    }

    #[test]
    fn orders_put_what_is_missing_last() {
        let check = |orders: &[&str], expected: &[i64]| {
            let orders: Vec<String> = orders.iter().map(ToString::to_string).collect();
            let mut found = runs();
            order_runs(&mut found, &orders).unwrap();
            assert_eq!(found.iter().map(|run| run.run.0).collect::<Vec<_>>(), expected, "{orders:?}");
        };
        check(&[], &[4, 3, 2, 1]);
        check(&["metrics.`train/loss`"], &[4, 1, 2, 3]);
        check(&["metrics.`train/loss` DESC"], &[1, 4, 2, 3]);
        check(&["end_time asc"], &[3, 4, 1, 2]);
        check(&["attributes.end_time desc"], &[1, 4, 3, 2]);
        check(&["status", "attribute.start_time ASC"], &[1, 2, 3, 4]);
        for wrong in ["", "metrics.a UP", "a", "metrics.a ASC DESC", "'a'"] {
            assert!(order_runs(&mut runs(), &[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }
}
