//! Helpers for tests of the whole repository: the paths of the repository and of the built binary.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

/// The folder of the binaries that were built with this test: `target/release` or `target/debug`.
///
/// # Panics
/// If the test does not run from a cargo target folder.
#[must_use]
pub fn bin_dir() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let deps = test.parent().expect("a test lies in a folder");
    deps.parent().expect("target/PROFILE/deps has a parent").to_path_buf()
}

/// The built `assay`, with a clean environment as far as it is relevant.
///
/// # Panics
/// If it was not built: `tests/run` builds it first.
#[must_use]
pub fn assay() -> Command {
    let binary = bin_dir().join("assay");
    assert!(binary.exists(), "{} is missing; run `tests/run`, which builds it", binary.display());
    let mut command = Command::new(binary);
    command.env_remove("ASSAY_HOME").env_remove("ASSAY_SERVER").env_remove("ASSAY_TOKEN");
    command.env("NO_COLOR", "1").current_dir(root());
    command
}

/// Every file of the repository that git tracks or would track.
///
/// # Panics
/// If git cannot list them.
#[must_use]
pub fn files() -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git lists the files");
    assert!(output.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("file names are UTF-8");
    // A file that was deleted and not yet committed is still listed.
    names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).filter(|p| root().join(p).exists()).collect()
}
