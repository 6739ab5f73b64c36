//! Kubernetes: a Job for each pilot, by `kubectl`.
//!
//! An option of a pool that begins with `-` is one of `kubectl`, such as `--namespace=lab`; any other is a resource limit of the pilot's
//! container, such as `nvidia.com/gpu=1`.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::engine::{Engine, EngineError, Job, JobState, Pilot, run_command};
use super::plan::PoolSettings;

/// Kubernetes, by its command-line client.
pub(super) struct Kubernetes;

/// The label of everything that belongs to a pool.
const POOL: &str = "assay-pool";
/// The label with the id of a pilot.
const PILOT: &str = "assay-pilot";

fn object_name(pool: &PoolSettings, id: &str) -> String {
    format!("assay-{}-{id}", pool.name.to_lowercase())
}

/// The Job of a pilot. Kubernetes sends SIGTERM to a pod that it ends, and waits for the grace period.
fn write_manifest(pool: &PoolSettings, pilot: &Pilot, id: &str) -> Value {
    let labels = json!({POOL: pool.name, PILOT: id});
    let mut command = vec![pilot.program.clone()];
    let (idle, cpus) = (pool.idle_seconds.to_string(), pool.cpus.to_string());
    let name = format!("{}-{id}", pool.name);
    let words = ["worker", "--pilot", "--server", &pilot.server, "--name", &name, "--cache", "/tmp/assay-pilot"];
    command.extend(words.map(str::to_owned));
    command.extend(["--idle", &idle, "--cpus", &cpus].map(str::to_owned));
    for label in &pool.labels {
        command.extend(["--label".to_owned(), label.clone()]);
    }
    let mut limits = Map::new();
    limits.insert("cpu".to_owned(), json!(cpus));
    for (key, value) in pool.options.iter().filter(|option| !option.starts_with('-')).filter_map(|o| o.split_once('='))
    {
        limits.insert(key.to_owned(), json!(value));
    }
    let token = pilot.token.as_deref().unwrap_or_default();
    let container = json!({
        "name": "pilot",
        "image": pool.image,
        "command": command,
        "env": [{"name": "ASSAY_TOKEN", "value": token}],
        "resources": {"requests": {"cpu": cpus}, "limits": limits},
    });
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": object_name(pool, id), "labels": labels},
        "spec": {
            // The pool replaces a pilot that is gone.
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": 600,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": pool.signal_seconds,
                    "containers": [container],
                },
            },
        },
    })
}

async fn run_kubectl(pool: &PoolSettings, words: &[&str], input: &str) -> Result<String, EngineError> {
    let flags = pool.options.iter().filter(|option| option.starts_with('-')).cloned();
    let args: Vec<String> = words.iter().map(ToString::to_string).chain(flags).collect();
    run_command("kubectl", &args, &[], input).await
}

#[async_trait::async_trait]
impl Engine for Kubernetes {
    async fn submit(&self, pool: &PoolSettings, pilot: &Pilot) -> Result<String, EngineError> {
        // A pool that was removed and described again counts from 1 again.
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let id = format!("{}-{seconds}", pilot.number);
        let manifest = write_manifest(pool, pilot, &id).to_string();
        run_kubectl(pool, &["create", "--filename=-"], &manifest).await?;
        Ok(id)
    }

    async fn list(&self, pool: &PoolSettings) -> Result<Vec<Job>, EngineError> {
        let selector = format!("--selector={POOL}={}", pool.name);
        let jobs = run_kubectl(pool, &["get", "jobs", &selector, "--output=json"], "").await?;
        let pods = run_kubectl(pool, &["get", "pods", &selector, "--output=json"], "").await?;
        let pods = read_items(&pods)?;
        let jobs = read_items(&jobs)?.into_keys().map(|id| {
            // A Job has no pod before it was given one.
            let (phase, reason) = pods.get(&id).map_or(("Pending", ""), |(phase, reason)| (phase, reason));
            let state = self.classify(phase, reason);
            Job { id, state }
        });
        Ok(jobs.collect())
    }

    async fn cancel(&self, pool: &PoolSettings, ids: &[String]) -> Result<(), EngineError> {
        let names: Vec<String> = ids.iter().map(|id| object_name(pool, id)).collect();
        let mut words = vec!["delete", "jobs", "--ignore-not-found", "--wait=false"];
        words.extend(names.iter().map(String::as_str));
        run_kubectl(pool, &words, "").await.map(drop)
    }

    fn classify(&self, state: &str, reason: &str) -> JobState {
        match (state, reason) {
            ("Pending", _) => JobState::Waiting { reason: reason.to_owned() },
            ("Succeeded", _) => JobState::Completed,
            ("Failed", "DeadlineExceeded") => JobState::Preempted { why: "the job reached its time limit".to_owned() },
            ("Failed", "Evicted" | "Preempting" | "Terminated" | "NodeShutdown" | "NodeLost" | "NodeAffinity") => {
                JobState::Preempted { why: format!("the cluster took its node away ({reason})") }
            }
            ("Failed", _) => JobState::Failed { why: format!("its pod failed ({reason})") },
            ("Unknown", _) => JobState::Preempted { why: "its node cannot be reached".to_owned() },
            _ => JobState::Running,
        }
    }
}

/// Reads a list of Jobs or pods: phase and reason of each, by the id of its pilot.
fn read_items(text: &str) -> Result<BTreeMap<String, (String, String)>, EngineError> {
    let wrong = |why: String| EngineError::Output { command: "kubectl".into(), why };
    let value: Value = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let items = value["items"].as_array().ok_or_else(|| wrong("it has no `items`".into()))?;
    let item = |item: &Value| {
        let id = item["metadata"]["labels"][PILOT].as_str()?.to_owned();
        let part = |key: &str| item["status"][key].as_str().unwrap_or_default().to_owned();
        Some((id, (part("phase"), part("reason"))))
    };
    Ok(items.iter().filter_map(item).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_has_what_the_pool_says() {
        let pool = PoolSettings {
            image: Some("registry.test/assay:1".into()),
            cpus: 4,
            labels: ["gpu".to_owned()].into(),
            options: vec!["nvidia.com/gpu=1".into(), "--namespace=lab".into()],
            ..PoolSettings::new("Main", "kubernetes")
        };
        let token = Some("secret".to_owned());
        let pilot = Pilot { server: "http://lab:7177".into(), token, program: "assay".into(), number: 3 };
        let manifest = write_manifest(&pool, &pilot, "3-17");
        assert_eq!(manifest["metadata"]["name"], "assay-main-3-17");
        let pod = &manifest["spec"]["template"];
        assert_eq!(pod["metadata"]["labels"], json!({POOL: "Main", PILOT: "3-17"}));
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["resources"]["limits"], json!({"cpu": "4", "nvidia.com/gpu": "1"}));
        let command: Vec<&str> = container["command"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let expected = "assay worker --pilot --server http://lab:7177 --name Main-3-17 --cache /tmp/assay-pilot --idle 300 --cpus 4 --label gpu";
        assert_eq!(command.join(" "), expected);
    }

    #[test]
    fn what_takes_a_node_away_is_a_preemption() {
        for (state, reason) in [("Failed", "Evicted"), ("Failed", "DeadlineExceeded"), ("Unknown", "")] {
            assert!(matches!(Kubernetes.classify(state, reason), JobState::Preempted { .. }), "{state} {reason}");
        }
        assert!(matches!(Kubernetes.classify("Failed", "Error"), JobState::Failed { .. }));
        assert_eq!(Kubernetes.classify("Running", ""), JobState::Running);
    }

    #[test]
    fn pods_are_read_by_their_pilot() {
        let text = json!({"items": [
            {"metadata": {"labels": {PILOT: "1-7"}}, "status": {"phase": "Failed", "reason": "Evicted"}},
            {"metadata": {"labels": {}}, "status": {}},
        ]});
        let found = read_items(&text.to_string()).unwrap();
        assert_eq!(found, BTreeMap::from([("1-7".to_owned(), ("Failed".to_owned(), "Evicted".to_owned()))]));
        assert!(read_items("{}").is_err() && read_items("").is_err());
    }
}
