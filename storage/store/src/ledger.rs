//! The store as the server sees it.

use std::path::{Path, PathBuf};

use assay_core::{Epoch, RunId, TaskId, TaskIx};
use assay_server::{Content, Ledger, LedgerError, Lookup, NewRun, Record};
use assay_spec::ArtifactRef;

use crate::{Store, StoreError, StoreErrorKind};

#[async_trait::async_trait]
impl Ledger for Store {
    async fn begin(&self, run: NewRun) -> Result<RunId, LedgerError> {
        Ok(Store::begin(self, run).await?)
    }

    async fn record(&self, run: RunId, batch: Vec<Record>) -> Result<(), LedgerError> {
        Ok(Store::record(self, run, batch).await?)
    }

    async fn lookup(&self, key: &str) -> Result<Lookup, LedgerError> {
        Ok(Store::lookup(self, key).await?)
    }

    async fn claim(&self, run: RunId, work: &[(TaskIx, String)]) -> Result<Vec<Option<TaskId>>, LedgerError> {
        Ok(Store::claim(self, run, work).await?)
    }

    async fn ingest(&self, file: &Path, name: &str) -> Result<ArtifactRef, LedgerError> {
        Ok(Store::ingest(self, file, name).await?)
    }

    async fn content(&self, artifact: &ArtifactRef) -> Result<Content, LedgerError> {
        Ok(self.verify_artifact(&artifact.hash).await?)
    }

    async fn workdir(&self, run: RunId, task: TaskIx, epoch: Epoch) -> Result<PathBuf, LedgerError> {
        Ok(Store::workdir(self, run, task, epoch).await?)
    }

    fn resume_dir(&self, key: &str) -> PathBuf {
        Store::resume_dir(self, key)
    }
}

impl From<StoreError> for LedgerError {
    fn from(error: StoreError) -> Self {
        match error.kind() {
            StoreErrorKind::NoSpace => LedgerError::disk_full(error.to_string()),
            _ => LedgerError::new(error.to_string()),
        }
    }
}
