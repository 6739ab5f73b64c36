//! The interface of the store for the server.

use std::path::{Path, PathBuf};

use assay_core::{Epoch, RunId, TaskId, TaskIx};
use assay_server::{Content, Ledger, LedgerError, Lookup, NewRun, Record};
use assay_spec::ArtifactRef;

use crate::{Store, StoreError, StoreErrorKind};

#[async_trait::async_trait]
impl Ledger for Store {
    async fn begin_run(&self, run: NewRun) -> Result<RunId, LedgerError> {
        Ok(Store::begin_run(self, run).await?)
    }

    async fn append_records(&self, run: RunId, batch: Vec<Record>) -> Result<(), LedgerError> {
        Ok(Store::append_records(self, run, batch).await?)
    }

    async fn look_up_result(&self, key: &str) -> Result<Lookup, LedgerError> {
        Ok(Store::look_up_result(self, key).await?)
    }

    async fn claim_work(&self, run: RunId, work: &[(TaskIx, String)]) -> Result<Vec<Option<TaskId>>, LedgerError> {
        Ok(Store::claim_work(self, run, work).await?)
    }

    async fn ingest_file(&self, file: &Path, name: &str) -> Result<ArtifactRef, LedgerError> {
        Ok(Store::ingest_file(self, file, name).await?)
    }

    async fn locate_content(&self, artifact: &ArtifactRef) -> Result<Content, LedgerError> {
        Ok(self.verify_artifact(&artifact.hash).await?)
    }

    async fn create_workdir(&self, run: RunId, task: TaskIx, epoch: Epoch) -> Result<PathBuf, LedgerError> {
        Ok(Store::create_workdir(self, run, task, epoch).await?)
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
