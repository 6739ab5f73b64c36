//! Finds the executor of a backend.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use assay_protocol::{Failure, FailureClass};

/// The prefix of the file name of a separate executor.
const PREFIX: &str = "assay-executor-";

/// The command that starts a backend's executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorCommand {
    /// The backend's name, which the executor's greeting must contain.
    pub backend: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Environment variables in addition to the inherited ones.
    pub env: Vec<(OsString, OsString)>,
    /// Whether it arranges to die with its worker, see [`assay_protocol::WORKER`]. Built-in executors do.
    pub dies_with_worker: bool,
}

/// The error if a backend has no executor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no executor for the backend `{backend}`: {reason}")]
pub struct NotFound {
    /// The requested backend.
    pub backend: String,
    /// The folders that were searched, as a fragment.
    pub reason: String,
    /// How to fix it.
    pub hint: String,
}

impl From<NotFound> for Failure {
    fn from(error: NotFound) -> Failure {
        let message = error.to_string();
        Failure { class: FailureClass::Unavailable, message, hint: Some(error.hint) }
    }
}

impl ExecutorCommand {
    /// The executor of `backend`: for a name in `built_in`, `own_exe executor NAME`; for any other name, the program
    /// `assay-executor-NAME` in the folder of `own_exe` or in one of `PATH`, in this order.
    ///
    /// # Errors
    /// [`NotFound`] lists the searched folders.
    pub fn find_backend(backend: &str, built_in: &[&str], own_exe: &Path) -> Result<ExecutorCommand, NotFound> {
        Self::find_in(backend, built_in, own_exe, &std::env::var_os("PATH").unwrap_or_default())
    }

    /// [`ExecutorCommand::find_backend`] with a given value of `PATH`.
    ///
    /// # Errors
    /// [`NotFound`] lists the searched folders.
    pub fn find_in(backend: &str, built_in: &[&str], own_exe: &Path, path: &OsStr) -> Result<Self, NotFound> {
        let command = |program: PathBuf, args: Vec<OsString>| ExecutorCommand {
            backend: backend.to_owned(),
            program,
            args,
            env: Vec::new(),
            dies_with_worker: false,
        };
        if built_in.contains(&backend) {
            let own = command(own_exe.to_path_buf(), vec!["executor".into(), backend.into()]);
            return Ok(ExecutorCommand { dies_with_worker: true, ..own });
        }
        let known = built_in.join("`, `");
        if backend.is_empty() || !backend.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) {
            return Err(NotFound {
                backend: backend.to_owned(),
                reason: "a backend's name is made of letters, digits, `-`, `_` and `.`".into(),
                hint: format!("built in: `{known}`"),
            });
        }
        let file = format!("{PREFIX}{backend}{}", std::env::consts::EXE_SUFFIX);
        let folders = search_folders(own_exe, path);
        match folders.iter().map(|folder| folder.join(&file)).find(|program| is_program(program)) {
            Some(program) => Ok(command(program, Vec::new())),
            None => Err(NotFound {
                backend: backend.to_owned(),
                reason: format!("`{file}` is not in {}", list_folders(&folders)),
                hint: format!("put `{file}` into one of these folders, or use a built-in backend (`{known}`)"),
            }),
        }
    }

    /// Every `assay-executor-NAME` in the folder of `own_exe` and on `PATH`, by name; for a duplicate name, the one
    /// that [`ExecutorCommand::find_backend`] finds.
    #[must_use]
    pub fn discover_all(own_exe: &Path) -> Vec<ExecutorCommand> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut names = std::collections::BTreeSet::new();
        for folder in search_folders(own_exe, &path) {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            names.extend(entries.filter_map(|entry| {
                let file = entry.file_name().into_string().ok()?;
                Some(file.strip_prefix(PREFIX)?.strip_suffix(std::env::consts::EXE_SUFFIX)?.to_owned())
            }));
        }
        names.iter().filter_map(|name| Self::find_in(name, &[], own_exe, &path).ok()).collect()
    }
}

/// The folders to search, without duplicates.
fn search_folders(own_exe: &Path, path: &OsStr) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = own_exe.parent().map(Path::to_path_buf).into_iter().collect();
    for folder in std::env::split_paths(path).filter(|folder| folder.is_absolute()) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

fn list_folders(folders: &[PathBuf]) -> String {
    let mut text = folders.iter().map(|f| format!("`{}`", f.display())).collect::<Vec<_>>().join(", ");
    if text.is_empty() {
        text.push_str("any folder (PATH is empty)");
    }
    text
}

#[cfg(unix)]
fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(file: &Path) -> bool {
    file.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    fn write_program(folder: &Path, name: &str, mode: u32) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let file = folder.join(name);
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn a_built_in_backend_is_the_own_binary_again() {
        let found = ExecutorCommand::find_backend("cpu", &["cpu", "reference"], Path::new("/opt/assay")).unwrap();
        assert_eq!(found.program, Path::new("/opt/assay"));
        assert_eq!(found.args, ["executor", "cpu"]);
    }

    #[cfg(unix)]
    #[test]
    fn beside_the_binary_comes_before_the_path_and_a_plain_file_is_no_program() {
        let (beside, on_path) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let own = beside.path().join("assay");
        let path = on_path.path().as_os_str();
        let far = write_program(on_path.path(), "assay-executor-torch", 0o755);
        write_program(beside.path(), "assay-executor-torch", 0o644);
        assert_eq!(ExecutorCommand::find_in("torch", &[], &own, path).unwrap().program, far);
        let near = write_program(beside.path(), "assay-executor-torch", 0o755);
        assert_eq!(ExecutorCommand::find_in("torch", &[], &own, path).unwrap().program, near);
    }

    #[test]
    fn a_missing_executor_says_where_was_looked() {
        let find = |name| ExecutorCommand::find_in(name, &["cpu"], Path::new("/opt/assay"), OsStr::new("/a:/b:/a:c"));
        insta::assert_snapshot!(find("rocm").unwrap_err(), @"no executor for the backend `rocm`: `assay-executor-rocm` is not in `/opt`, `/a`, `/b`");
        assert!(find("rocm").unwrap_err().hint.contains("`cpu`"));
        for hostile in ["", "../evil", "a b", "a/b"] {
            assert!(find(hostile).unwrap_err().reason.contains("letters"), "{hostile}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn discovery_lists_programs_only() {
        let folder = tempfile::tempdir().unwrap();
        let torch = write_program(folder.path(), "assay-executor-torch", 0o755);
        write_program(folder.path(), "assay-executor-notes", 0o644);
        let found = ExecutorCommand::discover_all(&folder.path().join("assay"));
        assert!(found.iter().any(|c| c.backend == "torch" && c.program == torch), "{found:?}");
        assert!(!found.iter().any(|c| c.backend == "notes"), "{found:?}");
    }
}
