//! Table `runs`: one submission of one workflow.

use sea_orm::entity::prelude::*;

/// A row of `runs`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "runs")]
pub struct Model {
    /// Counts from 1 and is never given twice.
    #[sea_orm(primary_key)]
    pub id: i64,
    /// The workflow's name.
    pub name: String,
    /// The workflow file, as it was given.
    pub file: String,
    /// The workflow file's text.
    #[sea_orm(column_type = "Text")]
    pub source: String,
    /// The parameters after overrides.
    pub params: Json,
    /// The machine.
    pub machine: Json,
    /// Assay's version and commit.
    pub version: String,
    /// Which session of which process runs it: the name of a lock file.
    pub session: String,
    /// The state's name.
    #[sea_orm(indexed)]
    pub state: String,
    /// Milliseconds since 1970.
    pub created_at: i64,
    /// Milliseconds since 1970.
    pub ended_at: Option<i64>,
    /// What a person sorts it by: an array of words.
    pub tags: Json,
    /// What a person says of it.
    #[sea_orm(column_type = "Text")]
    pub note: String,
    /// The commit of the repository that the workflow file lies in.
    pub git_commit: Option<String>,
    /// Whether the working tree differed from that commit.
    pub git_dirty: Option<bool>,
    /// What it comes from: `workflow`, or `mlflow` for a run that a client logged.
    pub origin: String,
}

/// What other tables are to this one.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
