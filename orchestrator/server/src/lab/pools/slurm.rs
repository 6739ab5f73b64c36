//! Slurm: `sbatch`, `squeue`, `scancel`.

use serde_json::Value;

use super::engine::{Engine, EngineError, Job, JobState, Pilot, quote_word, run_command};
use super::plan::PoolSettings;

/// Slurm, by its commands.
pub(super) struct Slurm;

/// The name of a pool's jobs.
fn job_name(pool: &PoolSettings) -> String {
    format!("assay-{}", pool.name)
}

/// The script of a pilot. `exec` makes the worker the process that `--signal=B:` reaches.
fn write_script(pool: &PoolSettings, pilot: &Pilot) -> String {
    let mut words = vec![quote_word(&pilot.program), "worker --pilot".to_owned()];
    words.push(format!("--server {}", quote_word(&pilot.server)));
    words.push(format!("--name {}-\"$SLURM_JOB_ID\"", quote_word(&pool.name)));
    words.push("--cache \"$folder\"".to_owned());
    words.push(format!("--idle {}", pool.idle_seconds));
    words.extend(pool.labels.iter().map(|label| format!("--label {}", quote_word(label))));
    words.push("--cpus \"${SLURM_CPUS_ON_NODE:-1}\"".to_owned());
    format!(
        "#!/bin/sh\n\
         # A worker of an Assay server.\n\
         folder=\"${{SLURM_TMPDIR:-${{TMPDIR:-/tmp}}}}/assay-pilot-$SLURM_JOB_ID\"\n\
         mkdir -p \"$folder\"\n\
         # The processors and devices of the job are this pilot's alone.\n\
         export ASSAY_MACHINE=\"$folder/machine\"\n\
         exec {}\n",
        words.join(" ")
    )
}

fn submit_args(pool: &PoolSettings) -> Vec<String> {
    let mut args = vec!["--parsable".to_owned(), format!("--job-name={}", job_name(pool))];
    args.push(format!("--signal=B:TERM@{}", pool.signal_seconds));
    // A pilot that was preempted is replaced by the pool, so Slurm must not requeue it.
    args.push("--no-requeue".to_owned());
    args.push("--export=ALL".to_owned());
    // Options of the pool come last, so that they win.
    args.extend(pool.options.iter().cloned());
    args
}

#[async_trait::async_trait]
impl Engine for Slurm {
    async fn submit(&self, pool: &PoolSettings, pilot: &Pilot) -> Result<String, EngineError> {
        // The token travels in the environment of the job: a script can be read by others.
        let token = pilot.token.as_deref().unwrap_or_default();
        let environment = [("ASSAY_TOKEN", token), ("SBATCH_EXPORT", "ALL")];
        let printed = run_command("sbatch", &submit_args(pool), &environment, &write_script(pool, pilot)).await?;
        // With several clusters: `ID;CLUSTER`.
        let id = printed.trim().split(';').next().unwrap_or_default();
        match !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()) {
            true => Ok(id.to_owned()),
            false => Err(EngineError::Output { command: "sbatch".into(), why: format!("no job id in `{printed}`") }),
        }
    }

    async fn list(&self, pool: &PoolSettings) -> Result<Vec<Job>, EngineError> {
        let name = job_name(pool);
        let filters = [format!("--name={name}"), "--states=all".to_owned()];
        let json = [&["--json".to_owned()][..], &filters].concat();
        if let Ok(printed) = run_command("squeue", &json, &[], "").await
            && let Ok(jobs) = read_json(&printed, &name)
        {
            return Ok(jobs.into_iter().map(|(id, state, reason)| self.job(id, &state, &reason)).collect());
        }
        // Versions before 21.08, and those without the serializer, have no JSON.
        let plain = [&["--noheader".to_owned(), "--format=%i|%T|%r".to_owned()][..], &filters].concat();
        let printed = run_command("squeue", &plain, &[], "").await?;
        Ok(read_lines(&printed).into_iter().map(|(id, state, reason)| self.job(id, &state, &reason)).collect())
    }

    async fn cancel(&self, _: &PoolSettings, ids: &[String]) -> Result<(), EngineError> {
        let args = [&["--quiet".to_owned()][..], ids].concat();
        run_command("scancel", &args, &[], "").await.map(drop)
    }

    fn classify(&self, state: &str, reason: &str) -> JobState {
        let why = |text: &str| text.to_owned();
        match state {
            "PENDING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "SPECIAL_EXIT" | "RESV_DEL_HOLD" => {
                JobState::Waiting { reason: if reason == "None" { String::new() } else { reason.to_owned() } }
            }
            "COMPLETED" => JobState::Completed,
            "TIMEOUT" | "DEADLINE" => JobState::Preempted { why: why("the job reached its time limit") },
            "PREEMPTED" | "REVOKED" => JobState::Preempted { why: why("the cluster gave its node to another job") },
            "NODE_FAIL" | "BOOT_FAIL" => JobState::Preempted { why: why("its node failed") },
            "CANCELLED" => JobState::Cancelled,
            "OUT_OF_MEMORY" => JobState::Failed { why: why("the job used more memory than it had asked for") },
            "FAILED" => JobState::Failed { why: format!("the job ended with an error ({reason})") },
            // Configuring, completing, suspended, staging and so on: the job has its node.
            _ => JobState::Running,
        }
    }
}

impl Slurm {
    fn job(&self, id: String, state: &str, reason: &str) -> Job {
        Job { id, state: self.classify(state, reason) }
    }
}

/// Reads `squeue --json`: id, state and reason of each job with a name. `--name` does not filter the JSON of all versions.
fn read_json(text: &str, name: &str) -> Result<Vec<(String, String, String)>, EngineError> {
    let wrong = |why: String| EngineError::Output { command: "squeue".into(), why };
    let value: Value = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let jobs = value["jobs"].as_array().ok_or_else(|| wrong("it has no `jobs`".into()))?;
    let mut found = Vec::new();
    for job in jobs.iter().filter(|job| job["name"] == name) {
        let id = job["job_id"].as_u64().ok_or_else(|| wrong("a job has no `job_id`".into()))?;
        // A list of a base state and flags since 23.11.
        let state = job["job_state"].as_str().or_else(|| job["job_state"][0].as_str());
        let state = state.ok_or_else(|| wrong(format!("the job {id} has no `job_state`")))?;
        let reason = job["state_reason"].as_str().unwrap_or_default();
        found.push((id.to_string(), state.to_owned(), reason.to_owned()));
    }
    Ok(found)
}

/// Reads lines of the form `ID|STATE|REASON`.
fn read_lines(text: &str) -> Vec<(String, String, String)> {
    let line = |line: &str| {
        let mut parts = line.trim().splitn(3, '|');
        Some((parts.next()?.to_owned(), parts.next()?.to_owned(), parts.next().unwrap_or_default().to_owned()))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_read_in_all_of_its_forms() {
        let old = r#"{"jobs": [{"job_id": 7, "name": "assay-gpu", "job_state": "RUNNING", "state_reason": "None"},
            {"job_id": 8, "name": "other", "job_state": "RUNNING"}]}"#;
        let new = r#"{"jobs": [{"job_id": 7, "name": "assay-gpu", "job_state": ["PENDING", "REQUEUED"], "state_reason": "Priority"}]}"#;
        let job = |state: &str, reason: &str| vec![("7".to_owned(), state.to_owned(), reason.to_owned())];
        assert_eq!(read_json(old, "assay-gpu"), Ok(job("RUNNING", "None")));
        assert_eq!(read_json(new, "assay-gpu"), Ok(job("PENDING", "Priority")));
        assert_eq!(read_lines("7|PENDING|Priority\n"), job("PENDING", "Priority"));
        for bad in ["", "{}", r#"{"jobs": [{"name": "assay-gpu"}]}"#] {
            assert!(read_json(bad, "assay-gpu").is_err(), "{bad}");
        }
    }

    #[test]
    fn what_takes_a_node_away_is_a_preemption() {
        let preempted = |state: &str| matches!(Slurm.classify(state, ""), JobState::Preempted { .. });
        for state in ["TIMEOUT", "DEADLINE", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL"] {
            assert!(preempted(state), "{state}");
        }
        for state in ["COMPLETED", "CANCELLED", "FAILED", "OUT_OF_MEMORY", "PENDING", "RUNNING", "COMPLETING"] {
            assert!(!preempted(state), "{state}");
        }
        assert_eq!(Slurm.classify("PENDING", "None"), JobState::Waiting { reason: String::new() });
        assert_eq!(Slurm.classify("CONFIGURING", ""), JobState::Running);
    }

    #[test]
    fn a_script_quotes_what_a_person_wrote() {
        let pool = PoolSettings {
            labels: ["it's".to_owned()].into(),
            options: vec!["--partition".into(), "gpu".into()],
            ..PoolSettings::new("gpu", "slurm")
        };
        let pilot = Pilot {
            server: "http://head:7177".into(),
            token: Some("secret".into()),
            program: "/opt/a b/assay".into(),
            number: 1,
        };
        let script = write_script(&pool, &pilot);
        assert!(script.contains("exec '/opt/a b/assay' worker --pilot --server 'http://head:7177'"), "{script}");
        assert!(script.contains(r"--label 'it'\''s'") && !script.contains("secret"), "{script}");
        assert_eq!(submit_args(&pool).last().map(String::as_str), Some("gpu"));
    }
}
