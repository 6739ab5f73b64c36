//! What differs in the configs of the tasks of two sides.

use std::collections::{BTreeMap, BTreeSet};

use assay_store::TaskView;
use serde::Serialize;
use serde_json::Value;

use super::difference::{Difference, differences};
use super::side::{RowPair, Side};

/// A leaf of the configs of a job that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigDifference {
    /// The job of the base.
    pub job: String,
    /// What differs.
    #[serde(flatten)] // Written only, and never read back by this program.
    pub difference: Difference,
    /// The cells of the base in which it does.
    pub cells: Vec<String>,
}

/// The configs of two sides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ConfigComparison {
    /// What differs.
    pub differences: Vec<ConfigDifference>,
    /// The jobs of the base whose configs were compared.
    pub jobs: BTreeSet<String>,
}

/// What differs in the configs behind pairs of rows. Without a pair, the first tasks of the jobs are compared: those of the same name,
/// else of the same step kind.
pub(super) fn config_differences(base: &Side, candidate: &Side, pairs: &[RowPair]) -> ConfigComparison {
    let (mut found, mut jobs) = (BTreeMap::new(), BTreeSet::new());
    // The rows of two whole jobs differ in their axes anyway.
    let single = pairs.iter().filter(|pair| pair.base.len() == 1 && pair.candidate.len() == 1);
    let mut compared = false;
    for pair in single {
        compared = true;
        let (ours, theirs) = (base.first_tasks(&pair.base), candidate.first_tasks(&pair.candidate));
        collect(&ours, &theirs, &mut found, &mut jobs);
    }
    if !compared {
        collect(&base.first_of_jobs(), &candidate.first_of_jobs(), &mut found, &mut jobs);
    }
    let difference = |((job, difference), cells)| ConfigDifference { job, difference, cells };
    ConfigComparison { differences: found.into_iter().map(difference).collect(), jobs }
}

fn collect(
    ours: &BTreeMap<&str, &TaskView>,
    theirs: &BTreeMap<&str, &TaskView>,
    found: &mut BTreeMap<(String, Difference), Vec<String>>,
    jobs: &mut BTreeSet<String>,
) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (job, task) in ours {
        let same_role = theirs.get(job).or_else(|| theirs.values().find(|other| other.kind == task.kind));
        let (Some(other), true) = (same_role, seen.insert(job)) else { continue };
        jobs.insert((*job).to_owned());
        let empty = Value::Null;
        let configs = (task.config.as_ref().unwrap_or(&empty), other.config.as_ref().unwrap_or(&empty));
        for mut difference in differences(configs.0, configs.1) {
            difference.forget_hashes();
            found.entry(((*job).to_owned(), difference)).or_default().push(task.cell.clone());
        }
    }
}
