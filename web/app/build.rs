//! Records the commit that the binary is built from, so that a number can be traced to it.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../../.git/HEAD");
    println!("cargo::rerun-if-changed=../../.git/index");
    // A build from a tarball has no commit, and says so by having none.
    let git = |args: &[&str]| {
        // Without its optional locks, git leaves the index as it is, which is watched.
        let output = Command::new("git")
            .arg("--no-optional-locks")
            .args(args)
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
        println!("cargo::rustc-env=ASSAY_COMMIT={commit}{}", if changed { "-modified" } else { "" });
    }
}
