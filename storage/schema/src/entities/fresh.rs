//! A schema that is created directly from the entities; the migrations must lead to the same schema.

use sea_orm::sea_query::{IndexCreateStatement, TableCreateStatement};
use sea_orm::{DbBackend, EntityTrait, Schema};

use super::{
    artifact, attempt, audit_log, cache, claim, experiment, journal, log, metric_point, node, report, run, segment,
    submission, task, token, tracked_metric, tracked_run, verification,
};

/// Every table with its indices, parents before children.
#[must_use]
pub fn create_statements(backend: DbBackend) -> Vec<(TableCreateStatement, Vec<IndexCreateStatement>)> {
    fn of<E: EntityTrait>(entity: E, schema: &Schema) -> (TableCreateStatement, Vec<IndexCreateStatement>) {
        (schema.create_table_from_entity(entity), schema.create_index_from_entity(entity))
    }
    let schema = Schema::new(backend);
    vec![
        of(run::Entity, &schema),
        of(task::Entity, &schema),
        of(attempt::Entity, &schema),
        of(journal::Entity, &schema),
        of(log::Entity, &schema),
        of(metric_point::Entity, &schema),
        of(segment::Entity, &schema),
        of(artifact::Entity, &schema),
        of(cache::Entity, &schema),
        of(verification::Entity, &schema),
        of(claim::Entity, &schema),
        of(submission::Entity, &schema),
        of(node::Entity, &schema),
        of(report::Entity, &schema),
        of(token::Entity, &schema),
        of(experiment::Entity, &schema),
        of(tracked_run::Entity, &schema),
        of(tracked_metric::Entity, &schema),
        of(audit_log::Entity, &schema),
    ]
}
