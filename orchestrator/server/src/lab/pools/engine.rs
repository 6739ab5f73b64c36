//! What a cluster has to offer, and how its commands are run.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::kubernetes::Kubernetes;
use super::plan::PoolSettings;
use super::slurm::Slurm;

/// How long a command of a cluster may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster.
#[async_trait::async_trait]
pub trait Engine: Send + Sync {
    /// Submits a job that runs one pilot; returns the job's id.
    async fn submit(&self, pool: &PoolSettings, pilot: &Pilot) -> Result<String, EngineError>;

    /// The jobs of a pool that the cluster knows, those that ended recently included.
    async fn list(&self, pool: &PoolSettings) -> Result<Vec<Job>, EngineError>;

    /// Cancels jobs. To cancel a job that has ended is not an error.
    async fn cancel(&self, pool: &PoolSettings, ids: &[String]) -> Result<(), EngineError>;

    /// What a state means that the cluster reports, with its reason.
    fn classify(&self, state: &str, reason: &str) -> JobState;
}

/// The engines by their names.
#[must_use]
pub fn find_engine(name: &str) -> Option<Box<dyn Engine>> {
    match name {
        "slurm" => Some(Box::new(Slurm)),
        "kubernetes" => Some(Box::new(Kubernetes)),
        _ => None,
    }
}

/// The names that [`find_engine`] knows.
pub(super) const ENGINES: &[&str] = &["slurm", "kubernetes"];

/// A pilot to submit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pilot {
    /// The server's address, as the pilot reaches it.
    pub server: String,
    /// The token with which the pilot connects, if the server asks for one.
    pub token: Option<String>,
    /// The `assay` program on the nodes of the cluster.
    pub program: String,
    /// A number that no other pilot of the pool has.
    pub number: u64,
}

/// A job of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its id.
    pub id: String,
    /// What it does.
    pub state: JobState,
}

/// What a job does, or how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// It waits in the queue.
    Waiting {
        /// For what, as the cluster says; may be empty.
        reason: String,
    },
    /// It runs, or is about to.
    Running,
    /// It ended without an error.
    Completed,
    /// The cluster took its node away: a time limit, a preemption or a failure of the node.
    Preempted {
        /// Why.
        why: String,
    },
    /// Somebody cancelled it.
    Cancelled,
    /// It failed.
    Failed {
        /// How.
        why: String,
    },
}

impl JobState {
    /// Whether it neither waits nor runs.
    #[must_use]
    pub fn is_over(&self) -> bool {
        !matches!(self, JobState::Waiting { .. } | JobState::Running)
    }
}

impl std::fmt::Display for JobState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            JobState::Waiting { reason } if reason.is_empty() => f.write_str("waiting"),
            JobState::Waiting { reason } => write!(f, "waiting: {reason}"),
            JobState::Running => f.write_str("running"),
            JobState::Completed => f.write_str("completed"),
            JobState::Preempted { why } => write!(f, "preempted: {why}"),
            JobState::Cancelled => f.write_str("cancelled"),
            JobState::Failed { why } => write!(f, "failed: {why}"),
        }
    }
}

/// Why a command to a cluster failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// A command is missing or failed.
    #[error("`{command}` failed: {why}")]
    Command {
        /// Its name.
        command: String,
        /// What it printed, or why it could not be started.
        why: String,
    },
    /// A command's output cannot be understood.
    #[error("the output of `{command}` cannot be understood: {why}")]
    Output {
        /// Its name.
        command: String,
        /// What is wrong.
        why: String,
    },
}

/// Runs a command of a cluster with a text on its standard input; returns its standard output.
pub(super) async fn run_command(
    program: &str,
    args: &[String],
    environment: &[(&str, &str)],
    input: &str,
) -> Result<String, EngineError> {
    let failed = |why: String| EngineError::Command { command: program.to_owned(), why };
    let mut command = Command::new(program);
    command.args(args).envs(environment.iter().copied()).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(format!("it cannot be started: {error}")))?;
    let stdin = child.stdin.take();
    let finished = async {
        if let Some(mut stdin) = stdin {
            // A command that does not read its input reports that with its exit code.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(PATIENCE, finished).await;
    let output = output.map_err(|_| failed(format!("it took longer than {} seconds", PATIENCE.as_secs())))?;
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", output.status, said.trim().chars().take(500).collect::<String>())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A text as one word of a POSIX shell.
pub(super) fn quote_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_that_fails_or_is_missing_says_so() {
        let missing = run_command("assay-no-such-command", &[], &[], "").await.unwrap_err();
        assert!(missing.to_string().contains("cannot be started"), "{missing}");
        let script = ["-c".to_owned(), "cat; echo \"$WORD\"; echo broken >&2; exit 3".to_owned()];
        let failed = run_command("sh", &script, &[], "").await.unwrap_err();
        assert!(failed.to_string().contains("broken") && failed.to_string().contains('3'), "{failed}");
        let echo = ["-c".to_owned(), "cat; echo \"$WORD\"".to_owned()];
        assert_eq!(run_command("sh", &echo, &[("WORD", "b")], "a\n").await.unwrap(), "a\nb\n");
    }

    #[test]
    fn every_engine_of_the_list_is_found() {
        assert!(ENGINES.iter().all(|name| find_engine(name).is_some()));
        assert!(find_engine("other").is_none());
    }
}
