//! A workflow as it is submitted to a server: its text, the files that it includes and names, and the options of the command line.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use assay_spec::{StepKind, Workflow, check_with_files};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ports::{GitState, Marks};

/// A submission. Nothing in it refers to a file of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabSubmission {
    /// The workflow file, as it was named.
    pub file: String,
    /// Its text.
    pub text: String,
    /// The texts of the files that it includes, by the names that it includes them by.
    #[serde(default)]
    pub included: BTreeMap<String, String>,
    /// Overrides of its parameters, in order.
    #[serde(default)]
    pub params: Vec<(String, String)>,
    /// Only these jobs and what they need; empty for all.
    #[serde(default)]
    pub only: Vec<String>,
    /// Whether tasks run although their results are known.
    #[serde(default)]
    pub force: bool,
    /// Words to find the run by.
    #[serde(default)]
    pub tags: Vec<String>,
    /// A remark.
    #[serde(default)]
    pub note: String,
    /// The state of the repository that the workflow file lies in.
    #[serde(default)]
    pub git: Option<GitState>,
    /// The local files that its tasks name. Their contents were uploaded before.
    #[serde(default)]
    pub files: Vec<SubmittedFile>,
}

/// A local file of a submission.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmittedFile {
    /// Its path, as the workflow names it.
    pub path: PathBuf,
    /// BLAKE3 of its content, 64 hexadecimal digits.
    pub hash: String,
}

/// A submission as the server stores it, with everything else that decides the keys of its tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Saved {
    pub(super) submission: LabSubmission,
    /// What the backends of the workers computed on when the run was submitted.
    pub(super) devices: BTreeMap<String, Value>,
    /// The run's priority.
    #[serde(default)]
    pub(super) priority: i32,
}

impl LabSubmission {
    /// The checked workflow.
    ///
    /// # Errors
    /// What is wrong with it, for a person.
    pub(super) fn check(&self, kinds: &[StepKind]) -> Result<Workflow, String> {
        let load = |name: &str| {
            let missing = || "it was not submitted with the workflow".to_owned();
            self.included.get(name).cloned().ok_or_else(missing)
        };
        let checked = check_with_files(&self.file, &self.text, kinds, &self.params, &load);
        let workflow = checked.map_err(|problems| problems.to_string())?;
        if self.only.is_empty() { Ok(workflow) } else { workflow.only(&self.only) }
    }

    /// The jobs whose tasks run although their results are known.
    pub(super) fn forced(&self, workflow: &Workflow) -> BTreeSet<String> {
        match (self.force, self.only.is_empty()) {
            (false, _) => BTreeSet::new(),
            (true, true) => workflow.jobs.iter().map(|job| job.name.clone()).collect(),
            (true, false) => self.only.iter().cloned().collect(),
        }
    }

    /// The text with those of the included files, as the pages show it.
    pub(super) fn source(&self) -> String {
        let included = self.included.iter().map(|(file, text)| format!("\n# {file}:\n{text}"));
        std::iter::once(self.text.clone()).chain(included).collect()
    }

    pub(super) fn marks(&self) -> Marks {
        Marks { tags: self.tags.clone(), note: self.note.clone(), git: self.git.clone() }
    }
}

/// Where a path of a submission lies below the folder with its files: always inside that folder, whatever the path is.
#[must_use]
pub fn path_under(root: &Path, path: &Path) -> PathBuf {
    let mut place = root.to_owned();
    for part in path.components() {
        match part {
            Component::Normal(name) => place.push(name),
            Component::ParentDir => place.push("%parent"),
            Component::RootDir | Component::Prefix(_) => place.push("%root"),
            Component::CurDir => {}
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_out_of_the_submission() {
        let place = |path: &str| path_under(Path::new("/srv/run"), Path::new(path));
        assert_eq!(place("data/a.txt"), Path::new("/srv/run/data/a.txt"));
        assert_eq!(place("./data/a.txt"), place("data/a.txt"));
        assert_eq!(place("../../etc/passwd"), Path::new("/srv/run/%parent/%parent/etc/passwd"));
        assert_eq!(place("/etc/passwd"), Path::new("/srv/run/%root/etc/passwd"));
        assert_ne!(place("etc/passwd"), place("/etc/passwd"));
    }

    #[test]
    fn a_file_that_was_not_submitted_is_not_read() {
        let submission = LabSubmission {
            file: "flow.yaml".into(),
            text: "include: [/etc/hostname]\n".into(),
            included: BTreeMap::new(),
            params: Vec::new(),
            only: Vec::new(),
            force: false,
            tags: Vec::new(),
            note: String::new(),
            git: None,
            files: Vec::new(),
        };
        let error = submission.check(&[]).unwrap_err();
        assert!(error.contains("not submitted with the workflow"), "{error}");
    }
}
