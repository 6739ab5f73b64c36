//! The state of the repository that a workflow file lies in: part of what makes its numbers traceable.

use std::path::Path;
use std::process::{Command, Stdio};

use assay_server::GitState;

/// The commit that is checked out where the file lies, and whether the file or anything that is tracked there differs
/// from it. `None` if it is outside every repository, or git is not installed.
pub fn state_of(file: &Path) -> Option<GitState> {
    let file = std::path::absolute(file).ok()?;
    let folder = file.parent()?;
    let commit = run_git(folder, &["rev-parse", "HEAD"])?;
    let changed = run_git(folder, &["status", "--porcelain", "--untracked-files=no"])?;
    // What is not tracked differs from every commit.
    let tracked = run_git(folder, &["ls-files", "--error-unmatch", "--", file.to_str()?]).is_some();
    Some(GitState { commit, dirty: !changed.is_empty() || !tracked })
}

/// Resolves a name or an abbreviated hash to a full commit hash, in the repository that contains the folder.
pub fn resolve_commit(folder: &Path, name: &str) -> Option<String> {
    // A name that starts with a dash would be an option.
    let wanted = (!name.is_empty() && !name.starts_with('-')).then(|| format!("{name}^{{commit}}"))?;
    run_git(folder, &["rev-parse", "--verify", "--quiet", "--end-of-options", &wanted])
}

/// What git answers; `None` if it does not succeed.
fn run_git(folder: &Path, args: &[&str]) -> Option<String> {
    // Only asked: no lock is taken, and no program that the repository names is started.
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(["-c", "core.fsmonitor=false"]).args(args).env("GIT_OPTIONAL_LOCKS", "0");
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
