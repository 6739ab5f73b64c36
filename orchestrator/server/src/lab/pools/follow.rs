//! The pools of a server: submits pilots when tasks wait for them, follows them in the cluster's queue, and remembers them over a restart.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::engine::{Engine, EngineError, Job, JobState, Pilot, find_engine};
use super::plan::{PoolSettings, count_missing};
use crate::lab::hub::{Hub, HubError};
use crate::ports::LedgerError;

/// How often the queue of a cluster is read.
const LOOK: Duration = Duration::from_secs(2);
/// The pause after a pilot failed; doubled after each further one, up to the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));
/// How many remarks of a pool are kept.
const REMARKS: usize = 20;

/// Creates the token of pilots, or gives the one that they have.
pub type TokenSource = dyn Fn() -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>> + Send + Sync;

/// What pilots are started with.
pub struct Pilots {
    /// The server's address, as pilots reach it if their pool says nothing else.
    pub server: String,
    /// Gives a token for workers, if the server asks for one.
    pub token: Option<Box<TokenSource>>,
    /// The `assay` program, if a pool says nothing else.
    pub program: String,
}

/// The pools of a server.
pub struct Pools {
    hub: Arc<Hub>,
    pilots: Pilots,
    file: PathBuf,
    pools: Mutex<BTreeMap<String, Pool>>,
}

struct Pool {
    settings: PoolSettings,
    engine: Box<dyn Engine>,
    /// The jobs that have not ended, and the last state of each.
    jobs: BTreeMap<String, JobState>,
    submitted: u64,
    /// Failures in a row.
    failures: u32,
    /// No pilot is submitted before.
    resume_at: Option<Instant>,
    remarks: VecDeque<String>,
}

/// A pool as it is kept over a restart.
#[derive(Serialize, Deserialize)]
struct StoredPool {
    settings: PoolSettings,
    jobs: Vec<String>,
    submitted: u64,
}

/// A pool as a person sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PoolView {
    /// Its settings.
    pub settings: PoolSettings,
    /// Its jobs: id and state.
    pub jobs: BTreeMap<String, String>,
    /// What happened last, the oldest first.
    pub remarks: Vec<String>,
}

impl Pools {
    /// Opens the pools of a hub, which are kept in a file, and follows them from then on.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn open(hub: Arc<Hub>, file: PathBuf, pilots: Pilots) -> Result<Arc<Pools>, HubError> {
        let wrong = |why: String| LedgerError::new(format!("the pools in `{}` cannot be read: {why}", file.display()));
        let stored: Vec<StoredPool> = match tokio::fs::read_to_string(&file).await {
            Ok(text) => serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(wrong(error.to_string()).into()),
        };
        let mut pools = BTreeMap::new();
        for StoredPool { settings, jobs, submitted } in stored {
            let mut pool = Pool::new(settings).map_err(wrong)?;
            pool.jobs = jobs.into_iter().map(|id| (id, JobState::Running)).collect();
            pool.submitted = submitted;
            pools.insert(pool.settings.name.clone(), pool);
        }
        let pools = Arc::new(Pools { hub, pilots, file, pools: Mutex::new(pools) });
        tokio::spawn(follow_pools(Arc::downgrade(&pools)));
        Ok(pools)
    }

    /// Adds a pool, or changes the settings of the one with its name.
    ///
    /// # Errors
    /// If the settings are invalid, or cannot be stored.
    pub async fn allocate(&self, settings: PoolSettings) -> Result<(), HubError> {
        settings.check().map_err(HubError::Refused)?;
        let mut pools = self.pools.lock().await;
        let mut pool = Pool::new(settings).map_err(HubError::Refused)?;
        if let Some(before) = pools.remove(&pool.settings.name) {
            if before.settings.engine != pool.settings.engine && !before.jobs.is_empty() {
                let name = before.settings.name.clone();
                pools.insert(name.clone(), before);
                let why = format!("the pool `{name}` has jobs of another engine; remove it first");
                return Err(HubError::Refused(why));
            }
            (pool.jobs, pool.submitted, pool.remarks) = (before.jobs, before.submitted, before.remarks);
        }
        pools.insert(pool.settings.name.clone(), pool);
        self.store(&pools).await
    }

    /// Removes a pool, and cancels its jobs.
    ///
    /// # Errors
    /// If there is no such pool, or the cluster does not cancel its jobs.
    pub async fn remove(&self, name: &str) -> Result<(), HubError> {
        let mut pools = self.pools.lock().await;
        let missing = || HubError::Absent(format!("there is no pool `{name}`; `assay allocate list` lists them"));
        let pool = pools.get_mut(name).ok_or_else(missing)?;
        pool.cancel_jobs(|_| true).await.map_err(|error| HubError::Refused(error.to_string()))?;
        pools.remove(name);
        self.store(&pools).await
    }

    /// The pools.
    pub async fn list(&self) -> Vec<PoolView> {
        let pools = self.pools.lock().await;
        let view = |pool: &Pool| PoolView {
            settings: pool.settings.clone(),
            jobs: pool.jobs.iter().map(|(id, state)| (id.clone(), state.to_string())).collect(),
            remarks: pool.remarks.iter().cloned().collect(),
        };
        pools.values().map(view).collect()
    }

    async fn store(&self, pools: &BTreeMap<String, Pool>) -> Result<(), HubError> {
        let stored = |pool: &Pool| StoredPool {
            settings: pool.settings.clone(),
            jobs: pool.jobs.keys().cloned().collect(),
            submitted: pool.submitted,
        };
        let stored: Vec<StoredPool> = pools.values().map(stored).collect();
        let failed = |why: String| LedgerError::new(format!("cannot write `{}`: {why}", self.file.display()));
        let text = serde_json::to_string_pretty(&stored).map_err(|error| failed(error.to_string()))?;
        let part = self.file.with_extension("part");
        tokio::fs::write(&part, text).await.map_err(|error| failed(error.to_string()))?;
        tokio::fs::rename(&part, &self.file).await.map_err(|error| failed(error.to_string()))?;
        Ok(())
    }

    /// Reads the queues, and submits or cancels what the tasks that wait ask for.
    async fn look(&self) {
        let mut pools = self.pools.lock().await;
        let mut changed = false;
        for pool in pools.values_mut() {
            let jobs = pool.jobs.len();
            if let Err(error) = self.look_after(pool).await {
                pool.note_failure(&error.to_string(), self);
            }
            changed |= pool.jobs.len() != jobs;
        }
        if changed && let Err(error) = self.store(&pools).await {
            self.hub.notify(error.to_string());
        }
    }

    async fn look_after(&self, pool: &mut Pool) -> Result<(), EngineError> {
        if !pool.jobs.is_empty() {
            let listed = pool.engine.list(&pool.settings).await?;
            self.note_states(pool, listed).await;
        }
        let name = pool.settings.name.clone();
        let joined: Vec<String> = self.hub.workers().into_iter().map(|worker| worker.name).collect();
        let has_joined = |id: &String| joined.contains(&format!("{name}-{id}"));
        let pending = pool.jobs.keys().filter(|id| !has_joined(id)).count() as u32;
        if self.hub.waiting_tasks(0.0).iter().all(|(resource, _)| !pool.settings.offer().could_ever_run(resource)) {
            // Nothing waits any more: a pilot that is still in the queue would come for nothing.
            return pool.cancel_jobs(|state| matches!(state, JobState::Waiting { .. })).await;
        }
        if pool.resume_at.is_some_and(|at| at > Instant::now()) {
            return Ok(());
        }
        let waiting = self.hub.waiting_tasks(pool.settings.grow_seconds);
        let missing = count_missing(&pool.settings, &waiting, pending, pool.jobs.len() as u32);
        let token = match &self.pilots.token {
            Some(source) if missing > 0 => {
                let failed = |why: String| EngineError::Command { command: "assay token create".to_owned(), why };
                Some(source().await.map_err(failed)?)
            }
            _ => None,
        };
        for _ in 0..missing {
            pool.submitted += 1;
            let pilot = Pilot {
                server: pool.settings.server.clone().unwrap_or_else(|| self.pilots.server.clone()),
                token: token.clone(),
                program: pool.settings.program.clone().unwrap_or_else(|| self.pilots.program.clone()),
                number: pool.submitted,
            };
            let id = pool.engine.submit(&pool.settings, &pilot).await?;
            pool.remark(format!("submitted the job {id}"), self);
            pool.jobs.insert(id, JobState::Waiting { reason: String::new() });
        }
        Ok(())
    }

    /// Records the states of the jobs of a pool. The worker of a job that is over is gone, even if its lease still
    /// runs.
    async fn note_states(&self, pool: &mut Pool, listed: Vec<Job>) {
        let listed: BTreeMap<String, JobState> = listed.into_iter().map(|job| (job.id, job.state)).collect();
        for id in pool.jobs.keys().cloned().collect::<Vec<_>>() {
            // A cluster forgets jobs that are over.
            let state = listed.get(&id).cloned().unwrap_or(JobState::Completed);
            if !state.is_over() {
                pool.jobs.insert(id, state);
                continue;
            }
            pool.jobs.remove(&id);
            match &state {
                JobState::Failed { why } => pool.note_failure(&format!("the job {id} failed: {why}"), self),
                _ => {
                    (pool.failures, pool.resume_at) = (0, None);
                    pool.remark(format!("the job {id} is over: {state}"), self);
                }
            }
            self.hub.retire_named(&format!("{}-{id}", pool.settings.name)).await;
        }
    }
}

impl Pool {
    fn new(settings: PoolSettings) -> Result<Pool, String> {
        settings.check()?;
        let engine =
            find_engine(&settings.engine).ok_or_else(|| format!("there is no engine `{}`", settings.engine))?;
        let (jobs, remarks) = (BTreeMap::new(), VecDeque::new());
        Ok(Pool { settings, engine, jobs, submitted: 0, failures: 0, resume_at: None, remarks })
    }

    /// Cancels jobs whose state is such.
    async fn cancel_jobs(&mut self, such: impl Fn(&JobState) -> bool) -> Result<(), EngineError> {
        let ids: Vec<String> = self.jobs.iter().filter(|(_, state)| such(state)).map(|(id, _)| id.clone()).collect();
        if ids.is_empty() { Ok(()) } else { self.engine.cancel(&self.settings, &ids).await }
    }

    /// Keeps a remark, and tells it to a person.
    fn remark(&mut self, remark: String, pools: &Pools) {
        pools.hub.notify(format!("pool `{}`: {remark}", self.settings.name));
        self.remarks.push_back(remark);
        if self.remarks.len() > REMARKS {
            self.remarks.pop_front();
        }
    }

    /// Waits before the next pilot is submitted: what failed now would fail again at once.
    fn note_failure(&mut self, why: &str, pools: &Pools) {
        let pause = PAUSES.0.saturating_mul(1 << self.failures.min(10)).min(PAUSES.1);
        self.failures = self.failures.saturating_add(1);
        self.resume_at = Some(Instant::now() + pause);
        if self.remarks.back().is_none_or(|last| last != why) {
            self.remark(why.to_owned(), pools);
        }
    }
}

async fn follow_pools(pools: Weak<Pools>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(pools) = pools.upgrade() else { return };
        pools.look().await;
    }
}
