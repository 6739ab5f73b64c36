//! Hubs over a ledger in memory, which can refuse single requests: failures of the store, and workers that join late.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use assay_core::{AttemptId, Capacity, Epoch, RunId, TaskId, TaskIx, WorkerId};
use assay_server::{
    Content, History, Hub, HubSettings, LabLedger, LabSubmission, Ledger, LedgerError, Lookup, NewRun, Record,
    RunStateName, SubmittedFile, TaskStateName,
};
use assay_spec::{ArtifactRef, StepKind};
use assay_wire as wire;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

/// A request that can be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    AppendRecords,
    SaveSubmission,
    SaveNode,
}

#[derive(Default)]
struct Memory {
    /// These requests fail, each once.
    refused: Mutex<Vec<Request>>,
    records: Mutex<Vec<Record>>,
    nodes: Mutex<Vec<WorkerId>>,
}

impl Memory {
    fn refusing(request: Request) -> Arc<Memory> {
        let memory = Memory::default();
        memory.refused.lock().unwrap().push(request);
        Arc::new(memory)
    }

    fn answer(&self, request: Request) -> Result<(), LedgerError> {
        let mut refused = self.refused.lock().unwrap();
        match refused.iter().position(|known| *known == request) {
            Some(place) => {
                refused.remove(place);
                Err(LedgerError::new(format!("{request:?} was refused")))
            }
            None => Ok(()),
        }
    }

    /// How the run ended, and the last state of each task.
    fn states(&self) -> (Vec<RunStateName>, BTreeMap<TaskIx, TaskStateName>) {
        let (mut ended, mut tasks) = (Vec::new(), BTreeMap::new());
        for record in self.records.lock().unwrap().iter() {
            match record {
                Record::Ended { state, .. } => ended.push(*state),
                Record::State { task, state, .. } => drop(tasks.insert(*task, *state)),
                _ => {}
            }
        }
        (ended, tasks)
    }
}

#[async_trait::async_trait]
impl Ledger for Memory {
    async fn begin_run(&self, _: NewRun) -> Result<RunId, LedgerError> {
        Ok(RunId(1))
    }

    async fn append_records(&self, _: RunId, batch: Vec<Record>) -> Result<(), LedgerError> {
        self.answer(Request::AppendRecords)?;
        self.records.lock().unwrap().extend(batch);
        Ok(())
    }

    async fn look_up_result(&self, _: &str) -> Result<Lookup, LedgerError> {
        Ok(Lookup::Unknown)
    }

    async fn claim_work(&self, _: RunId, work: &[(TaskIx, String)]) -> Result<Vec<Option<TaskId>>, LedgerError> {
        Ok(vec![None; work.len()])
    }

    async fn ingest_file(&self, _: &Path, name: &str) -> Result<ArtifactRef, LedgerError> {
        Ok(ArtifactRef { hash: "0".repeat(64), name: name.to_owned(), bytes: 1 })
    }

    /// The content was there when it was verified, and cannot be linked.
    async fn locate_content(&self, artifact: &ArtifactRef) -> Result<Content, LedgerError> {
        Ok(Content::Whole(PathBuf::from("/nowhere").join(&artifact.hash)))
    }

    async fn create_workdir(&self, _: RunId, _: TaskIx, _: Epoch) -> Result<PathBuf, LedgerError> {
        Ok(PathBuf::from("/nowhere"))
    }

    fn resume_dir(&self, key: &str) -> PathBuf {
        Path::new("/nowhere/resume").join(key)
    }
}

#[async_trait::async_trait]
impl LabLedger for Memory {
    async fn save_submission(&self, _: RunId, _: String) -> Result<(), LedgerError> {
        self.answer(Request::SaveSubmission)
    }

    async fn adopt_submissions(&self) -> Result<Vec<(RunId, String)>, LedgerError> {
        Ok(Vec::new())
    }

    async fn submission(&self, _: RunId) -> Result<Option<String>, LedgerError> {
        Ok(None)
    }

    async fn load_history(&self, run: RunId) -> Result<History, LedgerError> {
        Err(LedgerError::new(format!("run {run} has no history")))
    }

    async fn record_action(&self, _: String) -> Result<(), LedgerError> {
        Ok(())
    }

    async fn save_node(&self, worker: WorkerId, _: String) -> Result<(), LedgerError> {
        self.answer(Request::SaveNode)?;
        self.nodes.lock().unwrap().push(worker);
        Ok(())
    }

    async fn retire_node(&self, _: WorkerId) -> Result<(), LedgerError> {
        Ok(())
    }

    async fn load_nodes(&self) -> Result<Vec<(WorkerId, String, bool)>, LedgerError> {
        Ok(Vec::new())
    }
}

fn kinds() -> Vec<StepKind> {
    vec![StepKind {
        name: "prepare",
        version: 1,
        measures: false,
        about: "makes a number",
        schema: json!({"type": "object", "properties": {"n": {}}, "additionalProperties": false}).into(),
        outputs: &[],
        metrics: &[],
        check: |_| Vec::new(),
    }]
}

async fn open_hub(memory: &Arc<Memory>, home: &Path) -> Arc<Hub> {
    let settings = HubSettings {
        kinds: kinds(),
        machine: Value::Null,
        version: "0".to_owned(),
        home: home.to_owned(),
        lease: Duration::from_secs(60),
        notify: Box::new(|_| {}),
    };
    let ledger: Arc<dyn LabLedger> = memory.clone();
    Hub::open(ledger, settings).await.expect("an empty store opens")
}

fn submission(files: Vec<SubmittedFile>) -> LabSubmission {
    let text = "name: pair\njobs:\n  a:\n    uses: prepare\n    strategy: {matrix: {n: [1, 2]}}\n    with: {n: \"${{ matrix.n }}\"}\n";
    LabSubmission {
        file: "pair.yaml".to_owned(),
        text: text.to_owned(),
        included: BTreeMap::new(),
        params: Vec::new(),
        only: Vec::new(),
        force: false,
        tags: Vec::new(),
        note: String::new(),
        git: None,
        files,
    }
}

fn registration() -> wire::Register {
    let capacity = Capacity {
        name: "node".to_owned(),
        cpus: 2,
        memory: 1 << 30,
        backends: BTreeSet::from(["cpu".to_owned()]),
        devices: BTreeMap::new(),
        attempts: None,
        labels: BTreeSet::new(),
    };
    wire::Register {
        wire: wire::WIRE,
        version: "0".to_owned(),
        life: "0123456789abcdef".to_owned(),
        labels: BTreeSet::new(),
        capacity,
        devices: BTreeMap::new(),
        held: Vec::new(),
    }
}

/// No run may stay in the state `running` if nothing will ever continue it.
async fn check_failed_submission(memory: Arc<Memory>, files: Vec<SubmittedFile>, message: &str) {
    let home = tempfile::tempdir().unwrap();
    let hub = open_hub(&memory, home.path()).await;
    let error = hub.submit(submission(files)).await.expect_err("the store fails").to_string();
    assert!(error.contains(message), "{error}");
    let (ended, tasks) = memory.states();
    assert_eq!(ended, [RunStateName::Failed], "{message}");
    assert_eq!(tasks.into_values().collect::<Vec<_>>(), [TaskStateName::Cancelled; 2], "{message}");
    assert_eq!(hub.running_count(), 0, "{message}");
}

#[tokio::test]
async fn a_submission_whose_files_cannot_be_kept_leaves_no_running_run() {
    let files = vec![SubmittedFile { path: "data.bin".into(), hash: "0".repeat(64) }];
    check_failed_submission(Arc::default(), files, "cannot keep the files").await;
}

#[tokio::test]
async fn a_submission_that_cannot_be_written_leaves_no_running_run() {
    for request in [Request::AppendRecords, Request::SaveSubmission] {
        check_failed_submission(Memory::refusing(request), Vec::new(), &format!("{request:?} was refused")).await;
    }
}

#[tokio::test]
async fn a_store_that_fails_at_a_registration_does_not_refuse_the_worker() {
    let home = tempfile::tempdir().unwrap();
    let memory = Memory::refusing(Request::SaveNode);
    let hub = open_hub(&memory, home.path()).await;
    let Err(answer) = hub.connect_worker(registration()).await else { panic!("a worker without a number was let in") };
    assert_eq!(answer, None, "the connection is closed without an answer, and the worker tries again");
    assert!(hub.workers().is_empty());
    let Ok((_connection, mut outgoing)) = hub.connect_worker(registration()).await else {
        panic!("the second registration was refused")
    };
    assert!(matches!(outgoing.recv().await, Some(wire::ToWorker::Welcome { worker: WorkerId(0), .. })));
    assert_eq!(*memory.nodes.lock().unwrap(), [WorkerId(0)]);
    assert_eq!(hub.workers().len(), 1);
}

/// The next assignment for a worker. A hub that never sends one fails the test by its timeout.
async fn next_start(outgoing: &mut UnboundedReceiver<wire::ToWorker>) -> AttemptId {
    let received = async {
        while let Some(message) = outgoing.recv().await {
            if let wire::ToWorker::Start { assignment } = message {
                return Some(assignment.attempt);
            }
        }
        None
    };
    let received = tokio::time::timeout(Duration::from_secs(60), received).await;
    received.expect("an assignment within a minute").expect("the connection stays open")
}

#[tokio::test]
async fn a_worker_that_joins_after_the_runs_is_given_tasks() {
    let home = tempfile::tempdir().unwrap();
    let hub = open_hub(&Arc::default(), home.path()).await;
    hub.submit(submission(Vec::new())).await.expect("the workflow is valid");
    // The workers are divided before the worker joins, and nothing else about the run changes.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let Ok((connection, mut outgoing)) = hub.connect_worker(registration()).await else { panic!("refused") };
    let first = next_start(&mut outgoing).await;
    assert_ne!(first, next_start(&mut outgoing).await);
    drop(connection);
}
