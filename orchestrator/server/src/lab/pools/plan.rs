//! What a pool is, and how many pilots it should have: no clock, no cluster.

use std::collections::{BTreeMap, BTreeSet};

use assay_core::{Capacity, Resource};
use serde::{Deserialize, Serialize};

use super::engine::ENGINES;

/// A pool of pilots, as a person describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSettings {
    /// What people call it: letters, digits and `-`.
    pub name: String,
    /// The cluster: `slurm` or `kubernetes`.
    pub engine: String,
    /// Options for the cluster's own command.
    #[serde(default)]
    pub options: Vec<String>,
    /// How many pilots there are at most.
    #[serde(default = "one")]
    pub max: u32,
    /// How many seconds a task has waited before a pilot is submitted for it.
    #[serde(default = "minute")]
    pub grow_seconds: f64,
    /// After how many seconds without a task a pilot ends.
    #[serde(default = "five_minutes")]
    pub idle_seconds: f64,
    /// How many seconds before its time limit a pilot hands its tasks back.
    #[serde(default = "two_minutes")]
    pub signal_seconds: u32,
    /// The processors of a pilot.
    #[serde(default = "one")]
    pub cpus: u32,
    /// The backends that a pilot has.
    #[serde(default = "cpu_alone")]
    pub backends: BTreeSet<String>,
    /// The labels of its pilots.
    #[serde(default)]
    pub labels: BTreeSet<String>,
    /// The server's address, as pilots reach it; by default the address that it listens on.
    #[serde(default)]
    pub server: Option<String>,
    /// The `assay` program on the nodes of the cluster; by default the path of the server's own.
    #[serde(default)]
    pub program: Option<String>,
    /// The image of a pilot's container, where the cluster runs containers.
    #[serde(default)]
    pub image: Option<String>,
}

fn one() -> u32 {
    1
}

fn minute() -> f64 {
    60.0
}

fn five_minutes() -> f64 {
    300.0
}

fn two_minutes() -> u32 {
    120
}

fn cpu_alone() -> BTreeSet<String> {
    ["cpu".to_owned()].into()
}

impl PoolSettings {
    /// A pool with default settings.
    #[must_use]
    pub fn new(name: &str, engine: &str) -> PoolSettings {
        PoolSettings {
            name: name.to_owned(),
            engine: engine.to_owned(),
            options: Vec::new(),
            max: one(),
            grow_seconds: minute(),
            idle_seconds: five_minutes(),
            signal_seconds: two_minutes(),
            cpus: one(),
            backends: cpu_alone(),
            labels: BTreeSet::new(),
            server: None,
            program: None,
            image: None,
        }
    }

    /// Checks what a person wrote.
    ///
    /// # Errors
    /// What is wrong, for a person.
    pub fn check(&self) -> Result<(), String> {
        let word = |text: &str| {
            let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            !text.is_empty() && text.len() <= 40 && text.bytes().all(good)
        };
        if !word(&self.name) {
            return Err(format!("`{}` cannot name a pool: use up to 40 letters, digits and `-`", self.name));
        }
        if !ENGINES.contains(&self.engine.as_str()) {
            return Err(format!("there is no engine `{}`; choose one of {}", self.engine, ENGINES.join(", ")));
        }
        if self.max == 0 || self.cpus == 0 || self.backends.is_empty() {
            return Err("a pool has at least one pilot, and a pilot one processor and one backend".to_owned());
        }
        let seconds = [self.grow_seconds, self.idle_seconds];
        if seconds.iter().any(|seconds| !(0.0..=1e7).contains(seconds)) || self.idle_seconds < 0.1 {
            return Err("the times of a pool are numbers of seconds, at least 0 to grow and 0.1 to end".to_owned());
        }
        if self.engine == "kubernetes" && self.image.is_none() {
            return Err("a pool on Kubernetes needs the image of its pilots: give --image".to_owned());
        }
        Ok(())
    }

    /// What one of its pilots offers.
    pub(super) fn offer(&self) -> Capacity {
        Capacity {
            name: self.name.clone(),
            cpus: self.cpus,
            memory: u64::MAX,
            backends: self.backends.clone(),
            devices: BTreeMap::new(),
            attempts: None,
            labels: self.labels.clone(),
        }
    }
}

/// How many more pilots a pool should have. `waiting` are the tasks that have waited long enough, and how many of each kind; `pending`
/// pilots were submitted and have not joined yet; `live` are all that were submitted and have not ended.
pub(super) fn count_missing(pool: &PoolSettings, waiting: &[(Resource, u32)], pending: u32, live: u32) -> u32 {
    let offer = pool.offer();
    let mut wanted: u64 = 0;
    for (resource, count) in waiting.iter().filter(|(resource, _)| offer.could_ever_run(resource)) {
        let together = if resource.exclusive { 1 } else { (offer.cpus / resource.cpus.max(1)).max(1) };
        wanted += u64::from(count.div_ceil(together));
    }
    let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
    wanted.saturating_sub(pending).min(pool.max.saturating_sub(live))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(cpus: u32, label: Option<&str>) -> Resource {
        let label = label.map(str::to_owned);
        Resource { backend: "cpu".into(), cpus, memory: None, exclusive: false, label }
    }

    #[test]
    fn a_pool_grows_for_tasks_that_it_can_run_and_no_further_than_its_limit() {
        let pool = PoolSettings { max: 4, cpus: 2, ..PoolSettings::new("main", "slurm") };
        let missing = |waiting: &[(Resource, u32)], pending, live| count_missing(&pool, waiting, pending, live);
        assert_eq!(missing(&[], 0, 0), 0);
        assert_eq!(missing(&[(resource(1, None), 3)], 0, 0), 2);
        assert_eq!(missing(&[(resource(1, None), 3)], 1, 1), 1);
        assert_eq!(missing(&[(resource(2, None), 100)], 0, 0), 4);
        assert_eq!(missing(&[(resource(2, None), 100)], 0, 3), 1);
        assert_eq!(missing(&[(resource(2, None), 100)], 0, 9), 0);
        assert_eq!(missing(&[(resource(3, None), 1)], 0, 0), 0, "no pilot is that large");
        assert_eq!(missing(&[(resource(1, Some("bench")), 1)], 0, 0), 0, "no pilot has the label");
        let alone = Resource { exclusive: true, ..resource(1, None) };
        assert_eq!(missing(&[(alone, 2)], 0, 0), 2);
    }

    #[test]
    fn a_pool_that_cannot_be_is_refused() {
        let good = PoolSettings::new("main", "slurm");
        assert_eq!(good.check(), Ok(()));
        let check = |pool: PoolSettings, word: &str| {
            let error = pool.check().unwrap_err();
            assert!(error.contains(word), "{error}");
        };
        check(PoolSettings::new("a b", "slurm"), "cannot name a pool");
        check(PoolSettings::new("a", "pbs"), "slurm, kubernetes");
        check(PoolSettings::new("a", "kubernetes"), "--image");
        check(PoolSettings { max: 0, ..good.clone() }, "at least one pilot");
        check(PoolSettings { idle_seconds: f64::NAN, ..good.clone() }, "seconds");
    }
}
