//! Whole runs over a ledger in memory and a worker that follows a script: no process, no disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use assay_core::{AttemptId, Capacity, Entry, Epoch, RunId, TaskId, TaskIx, replay};
use assay_protocol::{AttemptEvent, AttemptOutcome, Failure, FailureClass, MetricPoint};
use assay_server::{
    CachedResult, Content, Ledger, LedgerError, Lookup, Marks, NewRun, Record, RunReport, RunStateName, Submission,
    TaskStateName, WorkerLink, execute_run,
};
use assay_spec::{ArtifactRef, StepKind, Workflow, check};
use assay_worker::link::{Assignment, FromWorker, ToWorker};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Remembers everything, and answers the cache from what succeeded.
#[derive(Default)]
struct Memory {
    records: Mutex<Vec<Record>>,
    cache: Mutex<BTreeMap<String, CachedResult>>,
    keys: Mutex<BTreeMap<TaskIx, String>>,
    /// The tasks that do the work of a key.
    claims: Mutex<BTreeMap<String, TaskIx>>,
    /// Whether every artifact is damaged.
    damaged: bool,
}

#[async_trait::async_trait]
impl Ledger for Memory {
    async fn begin_run(&self, _: NewRun) -> Result<RunId, LedgerError> {
        Ok(RunId(1))
    }

    async fn append_records(&self, run: RunId, batch: Vec<Record>) -> Result<(), LedgerError> {
        for record in batch {
            match &record {
                Record::Resolved { task, key, .. } => {
                    self.keys.lock().unwrap().insert(*task, key.clone());
                }
                Record::Succeeded { task, epoch, outputs, metrics, .. } => {
                    let result = CachedResult {
                        run,
                        task: *task,
                        epoch: *epoch,
                        outputs: outputs.clone(),
                        metrics: metrics.clone(),
                    };
                    let key = self.keys.lock().unwrap()[task].clone();
                    self.cache.lock().unwrap().insert(key, result);
                }
                Record::State { task, state, .. } if state.is_final() => {
                    self.claims.lock().unwrap().retain(|_, holder| holder != task);
                }
                _ => {}
            }
            self.records.lock().unwrap().push(record);
        }
        Ok(())
    }

    async fn look_up_result(&self, key: &str) -> Result<Lookup, LedgerError> {
        Ok(self.cache.lock().unwrap().get(key).cloned().map_or(Lookup::Unknown, Lookup::Known))
    }

    async fn claim_work(&self, run: RunId, work: &[(TaskIx, String)]) -> Result<Vec<Option<TaskId>>, LedgerError> {
        let mut claims = self.claims.lock().unwrap();
        let claim = |(task, key): &(TaskIx, String)| {
            let holder = *claims.entry(key.clone()).or_insert(*task);
            (holder != *task).then_some(TaskId { run, task: holder })
        };
        Ok(work.iter().map(claim).collect())
    }

    async fn ingest_file(&self, _: &Path, name: &str) -> Result<ArtifactRef, LedgerError> {
        Ok(ArtifactRef { hash: "0".repeat(64), name: name.to_owned(), bytes: 1 })
    }

    async fn locate_content(&self, artifact: &ArtifactRef) -> Result<Content, LedgerError> {
        let why = "its content is damaged".to_owned();
        Ok(if self.damaged { Content::Lost { why } } else { Content::Whole(PathBuf::from(&artifact.hash)) })
    }

    async fn create_workdir(&self, _: RunId, _: TaskIx, _: Epoch) -> Result<PathBuf, LedgerError> {
        Ok(PathBuf::from("nowhere"))
    }

    fn resume_dir(&self, key: &str) -> PathBuf {
        Path::new("nowhere/resume").join(key)
    }
}

/// A step kind that takes any number and offers one value.
fn kinds() -> Vec<StepKind> {
    vec![StepKind {
        name: "prepare",
        version: 1,
        measures: false,
        about: "makes a number",
        schema: json!({"type": "object", "properties": {"n": {}}, "additionalProperties": false}).into(),
        outputs: &[assay_spec::OutputKind { name: "made", about: "the number" }],
        metrics: &[],
        check: |_| Vec::new(),
    }]
}

fn workflow(text: &str) -> Workflow {
    check("test.yaml", text, &kinds(), &[]).unwrap_or_else(|problems| panic!("{problems}"))
}

const CHAIN: &str = "
name: chain
jobs:
  a:
    uses: prepare
    with: {n: 1}
    retry: {max: 1, when: [crashed], backoff: {duration: 1s, factor: 1}}
  b:
    needs: [a]
    strategy: {matrix: {x: [1, 2]}}
    uses: prepare
    with: {n: \"${{ needs.a.outputs.made + matrix.x }}\"}
";

fn completed_messages(assignment: &Assignment) -> Vec<FromWorker> {
    let id = assignment.attempt;
    let point = MetricPoint { name: "loss".into(), step: 1, value: 0.5 };
    vec![
        FromWorker::AttemptEvent(id, AttemptEvent::Started),
        FromWorker::AttemptEvent(id, AttemptEvent::Metrics(vec![point])),
        FromWorker::AttemptEnded(id, AttemptOutcome::Completed(BTreeMap::from([("made".to_owned(), Value::from(7))]))),
    ]
}

fn crashed_message(id: AttemptId) -> FromWorker {
    let failure = Failure { class: FailureClass::Crashed, message: "killed by SIGKILL".into(), hint: None };
    FromWorker::AttemptEnded(id, AttemptOutcome::Failed(failure))
}

/// Runs a workflow over a worker that answers each message as `script` says.
async fn run_workflow(
    ledger: Arc<Memory>,
    text: &str,
    cancel: mpsc::Receiver<()>,
    mut script: impl FnMut(ToWorker) -> Vec<FromWorker> + Send + 'static,
) -> RunReport {
    let (to, mut orders) = mpsc::channel(8);
    let (answers, from) = mpsc::channel(8);
    tokio::spawn(async move {
        while let Some(order) = orders.recv().await {
            for answer in script(order) {
                if answers.send(answer).await.is_err() {
                    return;
                }
            }
        }
    });
    let backends = ["cpu".to_owned()].into_iter().collect();
    let capacity = Capacity {
        name: "here".into(),
        cpus: 2,
        memory: 1 << 30,
        backends,
        devices: BTreeMap::new(),
        attempts: None,
        labels: BTreeSet::new(),
    };
    let link = WorkerLink { name: "here".into(), capacity, to, from };
    let submission = Submission {
        workflow: workflow(text),
        file: "test.yaml".into(),
        source: text.into(),
        machine: Value::Null,
        version: "test".into(),
        marks: Marks::default(),
        forced: BTreeSet::new(),
    };
    let (watch, _) = mpsc::unbounded_channel();
    execute_run(ledger, submission, vec![link], cancel, watch).await.expect("the ledger does not fail")
}

fn states(report: &RunReport) -> Vec<(&str, TaskStateName, u32)> {
    report.tasks.iter().map(|task| (task.address.as_str(), task.state, task.attempts)).collect()
}

#[tokio::test]
async fn a_run_goes_through_and_the_next_one_is_cached() {
    let ledger = Arc::new(Memory::default());
    for expected in [TaskStateName::Succeeded, TaskStateName::Cached] {
        let (_keep, cancel) = mpsc::channel(1);
        let report = run_workflow(ledger.clone(), CHAIN, cancel, |order| match order {
            ToWorker::Start(assignment) => completed_messages(&assignment),
            ToWorker::Stop(_) | ToWorker::Preempt(_) => Vec::new(),
        })
        .await;
        assert_eq!(report.state, RunStateName::Succeeded);
        assert!(report.tasks.iter().all(|task| task.state == expected), "{report:#?}");
        assert!(report.tasks.iter().all(|task| task.metrics["loss"] == 0.5));
    }
}

#[tokio::test]
async fn what_a_superseded_attempt_says_is_refused() {
    let ledger = Arc::new(Memory::default());
    let (_keep, cancel) = mpsc::channel(1);
    let mut first = None;
    let report = run_workflow(ledger.clone(), CHAIN, cancel, move |order| match order {
        ToWorker::Start(assignment) if assignment.address == "a" && first.is_none() => {
            first = Some(assignment.attempt);
            vec![crashed_message(assignment.attempt)]
        }
        ToWorker::Start(assignment) => {
            // The dead attempt speaks once more before each of the others does.
            let ghost = first.expect("the first attempt came first");
            let point = MetricPoint { name: "ghost".into(), step: 1, value: 1.0 };
            let mut said = vec![FromWorker::AttemptEvent(ghost, AttemptEvent::Metrics(vec![point]))];
            said.push(FromWorker::AttemptEnded(ghost, AttemptOutcome::Completed(BTreeMap::new())));
            said.extend(completed_messages(&assignment));
            said
        }
        ToWorker::Stop(_) | ToWorker::Preempt(_) => Vec::new(),
    })
    .await;
    let succeeded = TaskStateName::Succeeded;

    assert_eq!(states(&report), [("a", succeeded, 2), ("b[x=1]", succeeded, 1), ("b[x=2]", succeeded, 1)]);
    let records = ledger.records.lock().unwrap();
    let ghosts =
        records.iter().filter(|record| matches!(record, Record::Metrics { points, .. } if points[0].name == "ghost"));
    assert_eq!(ghosts.count(), 0);
}

#[tokio::test]
async fn attempts_at_the_same_work_share_a_place_to_go_on_from_and_others_have_another() {
    let (_keep, cancel) = mpsc::channel(1);
    let places = Arc::new(Mutex::new(Vec::new()));
    let seen = places.clone();
    run_workflow(Arc::new(Memory::default()), CHAIN, cancel, move |order| match order {
        ToWorker::Start(assignment) => {
            let mut seen = seen.lock().unwrap();
            seen.push((assignment.address.clone(), assignment.resume.clone()));
            if seen.len() == 1 { vec![crashed_message(assignment.attempt)] } else { completed_messages(&assignment) }
        }
        ToWorker::Stop(_) | ToWorker::Preempt(_) => Vec::new(),
    })
    .await;
    let places = places.lock().unwrap();
    let [(first, one), (again, two), (_, three), (_, four)] = &places[..] else { panic!("{places:?}") };
    assert_eq!((first.as_str(), again.as_str()), ("a", "a"));
    assert!(one == two && one != three && three != four, "{places:?}");
}

#[tokio::test]
async fn nothing_begins_with_an_input_that_is_damaged() {
    let ledger = Arc::new(Memory { damaged: true, ..Memory::default() });
    let (_keep, cancel) = mpsc::channel(1);
    let hash = "0".repeat(64);
    let text = format!(
        "name: damaged\njobs:\n  a:\n    uses: prepare\n    with: {{n: {{$artifact: '{hash}', name: f, bytes: 1}}}}\n"
    );
    let report = run_workflow(ledger.clone(), &text, cancel, |order| panic!("{order:?}")).await;
    assert_eq!(states(&report), [("a", TaskStateName::Failed, 1)]);
    let failure = report.tasks[0].error.as_ref().unwrap();
    assert_eq!(failure.message, format!("its input `f` ({hash}) cannot be used: its content is damaged"));
    assert!(failure.hint.as_ref().unwrap().contains("run the workflow again"));
    // The store refuses the end of an attempt that never began.
    let records = ledger.records.lock().unwrap();
    let place = |wanted: fn(&Record) -> bool| records.iter().position(wanted).expect("it is recorded");
    let began = place(|record| matches!(record, Record::AttemptBegan { .. }));
    assert!(began < place(|record| matches!(record, Record::AttemptEnded { .. })));
}

#[tokio::test]
async fn a_failure_skips_what_needs_it() {
    let ledger = Arc::new(Memory::default());
    let (_keep, cancel) = mpsc::channel(1);
    let report = run_workflow(ledger, CHAIN, cancel, |order| match order {
        ToWorker::Start(assignment) => vec![crashed_message(assignment.attempt)],
        ToWorker::Stop(_) | ToWorker::Preempt(_) => Vec::new(),
    })
    .await;
    assert_eq!(report.state, RunStateName::Failed);
    let skipped = TaskStateName::Skipped;
    assert_eq!(states(&report), [("a", TaskStateName::Failed, 2), ("b[x=1]", skipped, 0), ("b[x=2]", skipped, 0)]);
    assert_eq!(report.tasks[0].error.as_ref().unwrap().class, FailureClass::Crashed);
}

#[tokio::test]
async fn a_cancelled_run_stops_its_attempts_and_its_journal_replays() {
    let ledger = Arc::new(Memory::default());
    let (press, cancel) = mpsc::channel(1);
    let report = run_workflow(ledger.clone(), CHAIN, cancel, move |order| match order {
        ToWorker::Start(assignment) => {
            press.try_send(()).expect("one start, one press");
            vec![FromWorker::AttemptEvent(assignment.attempt, AttemptEvent::Started)]
        }
        ToWorker::Stop(attempt) | ToWorker::Preempt(attempt) => {
            let failure = Failure { class: FailureClass::Cancelled, message: "cancelled".into(), hint: None };
            vec![FromWorker::AttemptEnded(attempt, AttemptOutcome::Failed(failure))]
        }
    })
    .await;
    assert_eq!(report.state, RunStateName::Cancelled);
    assert!(report.tasks.iter().all(|task| task.state == TaskStateName::Cancelled));
    let records = ledger.records.lock().unwrap();
    let entries = records.iter().filter_map(|record| match record {
        Record::Journal { entry, .. } => Some(serde_json::from_str::<Entry>(entry).expect("an entry")),
        _ => None,
    });
    let state = replay(entries).expect("the journal is whole");
    assert!(matches!(state.run(RunId(1)).unwrap().phase(), assay_core::RunPhase::Ended(_)));
}

const DECIDED: &str = "
name: decided
jobs:
  a:
    uses: prepare
    with: {n: 1}
  b:
    needs: [a]
    strategy: {matrix: {x: \"${{ [needs.a.outputs.made, 8] }}\"}}
    uses: prepare
    with: {n: \"${{ matrix.x }}\"}
  c:
    strategy: {each: b}
    if: matrix.x > 7
    uses: prepare
    with: {n: \"c${{ each.matrix.x }}\"}
  d:
    needs: [c]
    if: always() and 'skipped' in needs.c.cells | map(attribute='result')
    uses: prepare
    with: {n: d}
";

#[tokio::test]
async fn tasks_are_added_while_the_run_is_in_progress_and_the_journal_replays() {
    let ledger = Arc::new(Memory::default());
    let (_keep, cancel) = mpsc::channel(1);
    let report = run_workflow(ledger.clone(), DECIDED, cancel, |order| match order {
        ToWorker::Start(assignment) => completed_messages(&assignment),
        ToWorker::Stop(_) | ToWorker::Preempt(_) => Vec::new(),
    })
    .await;
    let (succeeded, skipped) = (TaskStateName::Succeeded, TaskStateName::Skipped);
    let expected = [
        ("a", succeeded, 1),
        ("b[x=7]", succeeded, 1),
        ("b[x=8]", succeeded, 1),
        ("c[x=7]", skipped, 0),
        ("c[x=8]", succeeded, 1),
        ("d", succeeded, 1),
    ];
    assert_eq!((states(&report).as_slice(), report.state), (expected.as_slice(), RunStateName::Succeeded));
    let records = ledger.records.lock().unwrap();
    let added = records.iter().find_map(|record| match record {
        Record::TasksAdded { first, tasks } => Some((first.0, tasks.len())),
        _ => None,
    });
    assert_eq!(added, Some((1, 5)));
    let reason = records.iter().find_map(|record| match record {
        Record::State { state: TaskStateName::Skipped, detail, .. } => Some(detail.as_str()),
        _ => None,
    });
    assert_eq!(reason, Some("its condition `matrix.x > 7` is false"));
    let entries = records.iter().filter_map(|record| match record {
        Record::Journal { entry, .. } => Some(serde_json::from_str::<Entry>(entry).expect("an entry")),
        _ => None,
    });
    let state = replay(entries).expect("the journal is whole");
    assert_eq!(state.run(RunId(1)).map(|run| run.tasks().len()), Some(6));
    state.sanity_check().expect("the state is sound");
}

const TWINS: &str = "
name: twins
jobs:
  a:
    strategy: {matrix: {seed: [1, 2, 3]}}
    uses: prepare
    with: {n: 1}
    retry: {max: 0}
  b:
    strategy: {each: a}
    uses: prepare
    with: {n: \"${{ each.outputs.made + each.matrix.seed }}\"}
";

#[tokio::test]
async fn cells_with_the_same_config_run_once() {
    let ledger = Arc::new(Memory::default());
    let (_keep, cancel) = mpsc::channel(1);
    let started = Arc::new(Mutex::new(Vec::new()));
    let seen = started.clone();
    // The worker has room for two: without care the second would start beside the first.
    let report = run_workflow(ledger.clone(), TWINS, cancel, move |order| match order {
        ToWorker::Start(assignment) => {
            seen.lock().unwrap().push(assignment.address.clone());
            completed_messages(&assignment)
        }
        ToWorker::Stop(_) | ToWorker::Preempt(_) => Vec::new(),
    })
    .await;
    assert_eq!(report.state, RunStateName::Succeeded);
    let started = started.lock().unwrap();
    assert_eq!(started.iter().filter(|address| address.starts_with("a[")).collect::<Vec<_>>(), ["a[seed=1]"]);
    assert_eq!(started.len(), 4, "what uses the axis runs for each of its values: {started:?}");
    let cached = TaskStateName::Cached;
    assert_eq!(states(&report)[1..3], [("a[seed=2]", cached, 0), ("a[seed=3]", cached, 0)]);
    let records = ledger.records.lock().unwrap();
    let sources = records.iter().filter_map(|record| match record {
        Record::Cached { task, result, .. } => Some((task.0, result.run, result.task, result.epoch)),
        _ => None,
    });
    let first = |task| (task, RunId(1), TaskIx(0), Epoch(1));
    assert_eq!(sources.collect::<Vec<_>>(), [first(1), first(2)]);
}

#[tokio::test]
async fn if_the_first_of_several_cells_with_one_config_fails_the_next_one_runs() {
    let (_keep, cancel) = mpsc::channel(1);
    let report = run_workflow(Arc::new(Memory::default()), TWINS, cancel, |order| match order {
        ToWorker::Start(assignment) if assignment.address == "a[seed=1]" => vec![crashed_message(assignment.attempt)],
        ToWorker::Start(assignment) => completed_messages(&assignment),
        ToWorker::Stop(_) | ToWorker::Preempt(_) => Vec::new(),
    })
    .await;
    use TaskStateName::{Cached, Failed, Succeeded};
    let of_a: Vec<TaskStateName> = report.tasks[..3].iter().map(|task| task.state).collect();
    assert_eq!(of_a, [Failed, Succeeded, Cached]);
}
