//! Checks that a reported output is a file inside the attempt's work folder.

use std::io;
use std::path::{Path, PathBuf};

/// The absolute path of a reported file, without links.
///
/// # Errors
/// Why the report is refused, as a fragment.
pub(crate) fn verify_path(workdir: &Path, reported: &Path) -> Result<PathBuf, String> {
    let shown = reported.display();
    let resolved = |path: &Path| {
        path.canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("there is no file `{shown}` in the work folder"),
            _ => format!("`{shown}` cannot be resolved: {error}"),
        })
    };
    let workdir = resolved(workdir)?;
    let file = resolved(&workdir.join(reported))?;
    if !file.starts_with(&workdir) {
        return Err(format!("`{shown}` is outside of the work folder, at `{}`", file.display()));
    }
    // The resolved path is not a link; a folder, a pipe or a device is still refused.
    let meta = std::fs::symlink_metadata(&file).map_err(|error| format!("`{shown}` cannot be read: {error}"))?;
    if meta.is_file() { Ok(file) } else { Err(format!("`{shown}` is not a regular file")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_inside_are_taken_and_everything_else_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let workdir = outer.path().join("work");
        std::fs::create_dir_all(workdir.join("deep")).unwrap();
        for file in ["secret", "work/a", "work/deep/b", "workaround"] {
            std::fs::write(outer.path().join(file), "x").unwrap();
        }
        let link = |to: &str, from: &str| std::os::unix::fs::symlink(to, workdir.join(from)).unwrap();
        link("../secret", "out");
        link("deep", "in");
        link("..", "up");
        link("loop", "loop");
        let real = workdir.canonicalize().unwrap();
        let check = |path: &str| {
            let root = outer.path().canonicalize().unwrap();
            verify_path(&workdir, Path::new(path)).map_err(|why| why.replace(root.to_str().unwrap(), "ROOT"))
        };
        assert_eq!(check("a"), Ok(real.join("a")));
        assert_eq!(check("in/b"), Ok(real.join("deep/b")));
        assert_eq!(check("deep/../a"), Ok(real.join("a")));
        assert_eq!(check(real.join("a").to_str().unwrap()), Ok(real.join("a")));
        let refusals = ["out", "up/secret", "../secret", "../workaround", "/etc/passwd", "deep", "nothing", "loop", ""];
        let refusals: String = refusals.iter().map(|path| format!("{}\n", check(path).unwrap_err())).collect();
        insta::assert_snapshot!(refusals, @"
        `out` is outside of the work folder, at `ROOT/secret`
        `up/secret` is outside of the work folder, at `ROOT/secret`
        `../secret` is outside of the work folder, at `ROOT/secret`
        `../workaround` is outside of the work folder, at `ROOT/workaround`
        `/etc/passwd` is outside of the work folder, at `/etc/passwd`
        `deep` is not a regular file
        there is no file `nothing` in the work folder
        `loop` cannot be resolved: Too many levels of symbolic links (os error 40)
        `` is not a regular file
        ");
    }
}
