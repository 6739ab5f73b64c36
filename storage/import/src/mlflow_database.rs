//! The SQLite database of MLflow. Source of its tables: MLflow, `mlflow/store/tracking/dbmodels/models.py`.

use std::path::{Path, PathBuf};

use assay_store::{TrackedMetric, TrackedStatus};
use sea_orm::{
    ConnectOptions, ConnectionTrait, Database as Connector, DatabaseConnection, DbBackend, DbErr, QueryResult,
    Statement,
};

use crate::{ForeignRun, ImportError};

/// An open database.
#[derive(Debug)]
pub(crate) struct Database {
    path: PathBuf,
    connection: DatabaseConnection,
}

impl Database {
    /// Opens a database for reading.
    pub async fn open(path: &Path) -> Result<Database, ImportError> {
        let absolute = std::path::absolute(path).map_err(|error| ImportError::read(path, error))?;
        let escaped = percent_encoding::utf8_percent_encode(&absolute.to_string_lossy(), percent_encoding::CONTROLS)
            .to_string()
            .replace('?', "%3F")
            .replace('#', "%23");
        let mut options = ConnectOptions::new(format!("sqlite://{escaped}?mode=ro"));
        options.max_connections(1).sqlx_logging(false);
        let connection = Connector::connect(options).await.map_err(|error| ImportError::read(path, error))?;
        Ok(Database { path: path.to_owned(), connection })
    }

    /// The keys of all runs that are not deleted, the oldest first.
    pub async fn list_runs(&self) -> Result<Vec<String>, ImportError> {
        let sql = "SELECT run_uuid FROM runs JOIN experiments ON runs.experiment_id = experiments.experiment_id \
                   WHERE runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active' ORDER BY start_time, run_uuid";
        let rows = self.query(sql, None).await?;
        rows.iter().map(|row| row.try_get("", "run_uuid").map_err(|error| self.failure(error))).collect()
    }

    /// Reads a run.
    pub async fn read_run(&self, key: &str) -> Result<ForeignRun, ImportError> {
        let sql = "SELECT runs.name AS name, user_id, status, start_time, end_time, artifact_uri, experiments.name AS experiment \
                   FROM runs JOIN experiments ON runs.experiment_id = experiments.experiment_id WHERE run_uuid = ?";
        let rows = self.query(sql, Some(key)).await?;
        let row = rows.first().ok_or_else(|| ImportError::read(&self.path, format!("it has no run `{key}`")))?;
        let text = |column: &str| row.try_get::<Option<String>>("", column).map_err(|error| self.failure(error));
        let whole = |column: &str| row.try_get::<Option<i64>>("", column).map_err(|error| self.failure(error));
        let (params, tags) = (self.read_pairs("params", key).await?, self.read_pairs("tags", key).await?);
        let named = tags.iter().find(|(name, _)| name == "mlflow.runName").map(|(_, value)| value.clone());
        let (files, omissions) = self.find_files(&text("artifact_uri")?.unwrap_or_default())?;
        Ok(ForeignRun {
            key: key.to_owned(),
            experiment: text("experiment")?.unwrap_or_default(),
            name: text("name")?.filter(|name| !name.is_empty()).or(named).unwrap_or_else(|| key.to_owned()),
            user: text("user_id")?.unwrap_or_default(),
            status: match text("status")?.as_deref() {
                Some("FINISHED") => TrackedStatus::Finished,
                Some("KILLED") => TrackedStatus::Killed,
                _ => TrackedStatus::Failed,
            },
            start_time: whole("start_time")?.unwrap_or(0),
            end_time: whole("end_time")?,
            params,
            tags,
            metrics: self.read_points(key).await?,
            files,
            omissions,
        })
    }

    async fn read_points(&self, key: &str) -> Result<Vec<TrackedMetric>, ImportError> {
        let sql =
            "SELECT \"key\", value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? ORDER BY step, timestamp";
        let rows = self.query(sql, Some(key)).await?;
        let point = |row: &QueryResult| -> Result<TrackedMetric, DbErr> {
            let value: f64 = row.try_get("", "value")?;
            Ok(TrackedMetric {
                name: row.try_get("", "key")?,
                value: if row.try_get("", "is_nan")? {
                    f64::NAN
                } else if value.abs() == f64::MAX {
                    // The database has no infinities; MLflow writes the largest numbers instead.
                    f64::INFINITY.copysign(value)
                } else {
                    value
                },
                at: row.try_get("", "timestamp")?,
                step: row.try_get("", "step")?,
            })
        };
        rows.iter().map(|row| point(row).map_err(|error| self.failure(error))).collect()
    }

    async fn read_pairs(&self, table: &str, key: &str) -> Result<Vec<(String, String)>, ImportError> {
        let rows = self
            .query(&format!("SELECT \"key\", value FROM {table} WHERE run_uuid = ? ORDER BY \"key\""), Some(key))
            .await?;
        let pair = |row: &QueryResult| -> Result<(String, String), DbErr> {
            Ok((row.try_get("", "key")?, row.try_get::<Option<String>>("", "value")?.unwrap_or_default()))
        };
        rows.iter().map(|row| pair(row).map_err(|error| self.failure(error))).collect()
    }

    /// The files at a location, if it is a folder of this machine; otherwise why there are none.
    fn find_files(&self, location: &str) -> Result<(Vec<(String, PathBuf)>, Vec<String>), ImportError> {
        let path = location.strip_prefix("file://").unwrap_or(location);
        let path = percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned();
        if path.contains("://") || location.starts_with("mlflow-artifacts:") {
            return Ok((
                Vec::new(),
                vec![format!("its files at `{location}` were left out: they are not on this machine")],
            ));
        }
        // A relative path counts from where the server ran, most often beside the database.
        let folder = self.path.parent().unwrap_or(Path::new("")).join(path);
        if !folder.is_dir() {
            return Ok((Vec::new(), Vec::new()));
        }
        let relative =
            |file: PathBuf| (file.strip_prefix(&folder).unwrap_or(&file).to_string_lossy().into_owned(), file);
        Ok((crate::source::find_files(&folder, &|_| true)?.into_iter().map(relative).collect(), Vec::new()))
    }

    async fn query(&self, sql: &str, key: Option<&str>) -> Result<Vec<QueryResult>, ImportError> {
        let statement = match key {
            Some(key) => Statement::from_sql_and_values(DbBackend::Sqlite, sql, [key.into()]),
            None => Statement::from_string(DbBackend::Sqlite, sql),
        };
        self.connection.query_all_raw(statement).await.map_err(|error| self.failure(error))
    }

    fn failure(&self, error: DbErr) -> ImportError {
        let hint = "give the database of an MLflow server: it has the tables `runs`, `experiments`, `metrics`, `params` and `tags`";
        ImportError::unreadable(format!("cannot read `{}`: {error}", self.path.display()), hint)
    }
}
