//! Table `runs`: one submission of one workflow.

use sea_orm::entity::prelude::*;

/// A row of `runs`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "runs")]
pub struct Model {
    /// Counts from 1; numbers are never reused.
    #[sea_orm(primary_key)]
    pub id: i64,
    /// The workflow's name.
    pub name: String,
    /// The path of the workflow file, as given.
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
    /// The session that runs it: the name of a lock file.
    pub session: String,
    /// The state's name.
    #[sea_orm(indexed)]
    pub state: String,
    /// Milliseconds since 1970.
    pub created_at: i64,
    /// Milliseconds since 1970.
    pub ended_at: Option<i64>,
    /// The tags that users gave it: an array of words.
    pub tags: Json,
    /// The note that a user gave it.
    #[sea_orm(column_type = "Text")]
    pub note: String,
    /// The commit of the repository that contains the workflow file.
    pub git_commit: Option<String>,
    /// Whether the working tree differed from that commit.
    pub git_dirty: Option<bool>,
    /// Its origin: `workflow`, or `mlflow` for a run that a client logged.
    pub origin: String,
}

/// Relations to other tables.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
