//! Finds files that no run refers to, and removes them on request.
//!
//! An artifact is reachable if it is in the outputs or the config of a task of any run; a metric segment, if the
//! database names it. Runs in progress store files before anything refers to them. So files that are newer than the
//! oldest of these runs are kept.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use assay_schema::{artifact, run, segment, task, verification};
use assay_server::RunStateName;
use assay_spec::{Output, artifacts_in};
use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, QueryFilter, QuerySelect};

use crate::audit::files_below;
use crate::query::{Garbage, GarbageFile};
use crate::session::{Gate, is_alive};
use crate::store::run_blocking;
use crate::{Store, StoreError, rows};

/// Hashes per statement.
const ROWS: usize = 1000;

/// The maximum difference between file timestamps and this program's clock.
const SLACK: Duration = Duration::from_secs(2);

fn query_error(error: sea_orm::DbErr) -> StoreError {
    StoreError::database("look for unreferenced files")(error)
}

impl Store {
    /// Returns what [`Store::remove_garbage`] would remove.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn find_garbage(&self) -> Result<Garbage, StoreError> {
        let tx = self.database.snapshot().await?;
        self.garbage_in(&tx).await
    }

    /// Removes the files that no run refers to.
    ///
    /// # Errors
    /// If the store cannot be written, or a file cannot be removed.
    pub async fn remove_garbage(&self) -> Result<Garbage, StoreError> {
        let layout = self.layout.clone();
        // Held until the end, so that no other process starts or repairs a run meanwhile.
        let _gate = run_blocking(move || Gate::enter_gate(&layout)).await?;
        let tx = self.database.begin_write().await?;
        let garbage = self.garbage_in(&tx).await?;
        let hashes: Vec<String> = garbage.artifacts.iter().map(|file| file.name.clone()).collect();
        for chunk in hashes.chunks(ROWS) {
            let of = |column: artifact::Column| column.is_in(chunk.to_vec());
            artifact::Entity::delete_many().filter(of(artifact::Column::Hash)).exec(&tx).await.map_err(query_error)?;
            let verified = verification::Column::Hash.is_in(chunk.to_vec());
            verification::Entity::delete_many().filter(verified).exec(&tx).await.map_err(query_error)?;
        }
        // The rows are deleted first: a file without a row is garbage the next time, but a row without its file would be a fault.
        tx.commit().await.map_err(query_error)?;
        let young = self.oldest_live_run().await?;
        let files: Vec<PathBuf> = garbage.artifacts.iter().chain(&garbage.segments).map(|f| f.path.clone()).collect();
        run_blocking(move || remove_files(&files, young)).await?;
        Ok(garbage)
    }

    async fn garbage_in(&self, db: &impl ConnectionTrait) -> Result<Garbage, StoreError> {
        let young = self.oldest_live_run().await?;
        let (artifacts, segments) = (reachable_artifacts(db).await?, reachable_segments(db).await?);
        let layout = self.layout.clone();
        run_blocking(move || {
            let mut garbage = Garbage::default();
            for path in files_below(&layout.artifacts()) {
                let name = hash_in(&layout.artifacts(), &path);
                let known = name.as_ref().is_some_and(|name| artifacts.contains(name));
                sort_out(&mut garbage.artifacts, &mut garbage.kept, (path, name), known, young);
            }
            for path in files_below(&layout.metrics()) {
                let name = path.strip_prefix(layout.metrics()).ok().map(|name| name.to_string_lossy().into_owned());
                let known = name.as_ref().is_some_and(|name| segments.contains(name));
                sort_out(&mut garbage.segments, &mut garbage.kept, (path, name), known, young);
            }
            Ok(garbage)
        })
        .await
    }

    /// The start of the oldest run with a live process.
    async fn oldest_live_run(&self) -> Result<Option<SystemTime>, StoreError> {
        let running = run::Entity::find().filter(run::Column::State.eq(RunStateName::Running.name()));
        let mut oldest = None;
        for row in running.all(self.database.reader()).await.map_err(query_error)? {
            if is_alive(&self.layout, &row.session)? {
                let began = SystemTime::UNIX_EPOCH + Duration::from_millis(rows::to_unsigned(row.created_at));
                oldest = Some(oldest.map_or(began, |oldest: SystemTime| oldest.min(began)));
            }
        }
        Ok(oldest)
    }
}

/// Classifies a file: ignored if it is known, kept if a live run may have created it, otherwise garbage.
fn sort_out(
    garbage: &mut Vec<GarbageFile>,
    kept: &mut u64,
    (path, name): (PathBuf, Option<String>),
    known: bool,
    young: Option<SystemTime>,
) {
    if known {
        return;
    }
    if is_young(&path, young) {
        *kept += 1;
        return;
    }
    let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
    let name = name.unwrap_or_else(|| path.display().to_string());
    garbage.push(GarbageFile { name, path, bytes });
}

fn is_young(path: &Path, young: Option<SystemTime>) -> bool {
    let Some(young) = young else { return false };
    let modified = std::fs::metadata(path).and_then(|file| file.modified());
    modified.is_ok_and(|modified| modified + SLACK >= young)
}

fn remove_files(files: &[PathBuf], young: Option<SystemTime>) -> Result<(), StoreError> {
    // A run in progress may have stored the same content again.
    for path in files.iter().filter(|path| !is_young(path, young)) {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::io("remove", path)(error));
            }
            _ => {}
        }
        // Removes the folder if this was its last file.
        let _ = path.parent().map(std::fs::remove_dir);
    }
    Ok(())
}

/// The hash in the path of an artifact.
fn hash_in(folder: &Path, path: &Path) -> Option<String> {
    let parts = path.strip_prefix(folder).ok()?.to_str()?;
    let hash = parts.replace('/', "");
    crate::layout::is_hash(&hash).then_some(hash)
}

async fn reachable_artifacts(db: &impl ConnectionTrait) -> Result<BTreeSet<String>, StoreError> {
    type Row = (Option<sea_orm::JsonValue>, Option<sea_orm::JsonValue>);
    let found: Vec<Row> = task::Entity::find()
        .select_only()
        .column(task::Column::Outputs)
        .column(task::Column::Config)
        .into_tuple()
        .all(db)
        .await
        .map_err(query_error)?;
    let mut reachable = BTreeSet::new();
    for (outputs, config) in found {
        for output in rows::parse_outputs(outputs.as_ref())?.into_values() {
            if let Output::Artifact(artifact) = output {
                reachable.insert(artifact.hash);
            }
        }
        reachable.extend(config.iter().flat_map(artifacts_in).map(|artifact| artifact.hash));
    }
    Ok(reachable)
}

async fn reachable_segments(db: &impl ConnectionTrait) -> Result<BTreeSet<String>, StoreError> {
    let paths = segment::Entity::find().select_only().column(segment::Column::Path).into_tuple();
    Ok(paths.all(db).await.map_err(query_error)?.into_iter().collect())
}
