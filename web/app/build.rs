//! Records the commit that the binary is built from, so that a number can be traced to it.

use std::process::Command;

fn main() {
    let of_target = |name: &str| std::env::var(name).unwrap_or_default();
    if of_target("CARGO_CFG_TARGET_OS") == "linux" && of_target("CARGO_CFG_TARGET_ENV") == "gnu" {
        // Each attempt starts this program again. At a fixed address the linker resolves its 180,000 relocations once;
        // otherwise the loader does at each start, which is most of what the start takes.
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
    println!("cargo::rerun-if-changed=../../.git/HEAD");
    println!("cargo::rerun-if-changed=../../.git/index");
    // A build from a tarball has no commit.
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
