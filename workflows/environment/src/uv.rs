//! Environments that uv builds from `pyproject.toml` and `uv.lock`.
//!
//! An environment is in a folder of its content's name in a cache: `project/` with the two files, `venv/`, and `complete`, which is written
//! last. A lock file keeps two processes from building the same environment.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::EnvironmentError;

/// The files of a project that determine its environment.
pub const PROJECT_FILES: [&str; 2] = ["pyproject.toml", "uv.lock"];

/// An environment that is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UvEnvironment {
    /// The interpreter in it.
    pub interpreter: PathBuf,
    /// Whether uv built it just now.
    pub built: bool,
}

/// The folder of this user's environments: `$XDG_CACHE_HOME/assay/environments`, by default below `~/.cache`.
///
/// # Errors
/// If the user has no home folder.
pub fn cache_folder() -> Result<PathBuf, EnvironmentError> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("assay/environments")).ok_or_else(|| {
        EnvironmentError::new("there is no folder for environments".into(), "set the variable HOME or XDG_CACHE_HOME")
    })
}

/// The environment of a project: builds it with `uv` unless the cache has it. `files` has the content of [`PROJECT_FILES`] by name.
///
/// # Errors
/// If uv is not installed, a file is missing, or uv cannot build the environment; the message has the end of what uv printed.
pub fn prepare_environment(
    uv: &Path,
    files: &BTreeMap<String, Vec<u8>>,
    cache: &Path,
) -> Result<UvEnvironment, EnvironmentError> {
    let mut hasher = blake3::Hasher::new();
    for name in PROJECT_FILES {
        let content = files.get(name).ok_or_else(|| {
            EnvironmentError::new(
                format!("the environment lacks `{name}`"),
                "put it next to `uv.lock`; `uv lock` writes the lock file",
            )
        })?;
        hasher.update(&(content.len() as u64).to_le_bytes()).update(content);
    }
    let folder = cache.join(&hasher.finalize().to_hex()[..32]);
    let failed = |error: io::Error| {
        EnvironmentError::new(
            format!("cannot create `{}`: {error}", folder.display()),
            "free some space, or set XDG_CACHE_HOME",
        )
    };
    let ready = |built| UvEnvironment { interpreter: folder.join("venv/bin/python"), built };
    let complete = folder.join("complete");
    fs::create_dir_all(&folder).map_err(failed)?;
    let lock = File::create(folder.join("lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    // An environment that someone has damaged since is built again.
    if complete.is_file() && folder.join("venv/bin/python").exists() {
        return Ok(ready(false));
    }
    let project = folder.join("project");
    fs::create_dir_all(&project).map_err(failed)?;
    for (name, content) in files.iter().filter(|(name, _)| PROJECT_FILES.contains(&name.as_str())) {
        fs::write(project.join(name), content).map_err(failed)?;
    }
    build_environment(uv, &project, &folder.join("venv"))?;
    fs::write(&complete, "").map_err(failed)?;
    Ok(ready(true))
}

fn build_environment(uv: &Path, project: &Path, venv: &Path) -> Result<(), EnvironmentError> {
    let mut command = Command::new(uv);
    // The project itself is not installed: its source is not here, and the program's files are under `files:`.
    command.args([
        "sync",
        "--frozen",
        "--no-dev",
        "--no-install-project",
        "--no-progress",
        "--color",
        "never",
        "--project",
    ]);
    command.arg(project).env("UV_PROJECT_ENVIRONMENT", venv).env_remove("VIRTUAL_ENV").stdin(Stdio::null());
    let output = command.output().map_err(|error| {
        let hint = "install uv (https://docs.astral.sh/uv) on every node, or use `environment: {python: PATH}`";
        EnvironmentError::new(format!("cannot start `{}`: {error}", uv.display()), hint)
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    let last = lines[lines.len().saturating_sub(10)..].join("\n  ");
    let message = format!("uv cannot build the environment ({}):\n  {last}", output.status);
    Err(EnvironmentError::new(message, "try `uv sync --frozen` in the folder of `uv.lock`"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program in place of uv that counts its calls and creates the environment, or fails.
    fn fake_uv(folder: &Path, script: &str) -> PathBuf {
        let path = folder.join("uv");
        fs::write(&path, format!("#!/bin/sh\necho call >> {}/calls\n{script}\n", folder.display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn calls(folder: &Path) -> usize {
        fs::read_to_string(folder.join("calls")).map_or(0, |text| text.lines().count())
    }

    fn project(lock: &str) -> BTreeMap<String, Vec<u8>> {
        PROJECT_FILES.map(|name| (name.to_owned(), format!("{name} {lock}").into_bytes())).into()
    }

    const CREATE: &str = "mkdir -p $UV_PROJECT_ENVIRONMENT/bin; ln -s /bin/sh $UV_PROJECT_ENVIRONMENT/bin/python";

    #[test]
    fn an_environment_is_built_once_for_each_content() {
        let folder = tempfile::tempdir().unwrap();
        let uv = fake_uv(folder.path(), CREATE);
        let cache = folder.path().join("cache");
        let first = prepare_environment(&uv, &project("1"), &cache).unwrap();
        let again = prepare_environment(&uv, &project("1"), &cache).unwrap();
        assert!(first.built && !again.built && first.interpreter == again.interpreter);
        assert!(first.interpreter.exists());
        let other = prepare_environment(&uv, &project("2"), &cache).unwrap();
        assert_ne!(other.interpreter, first.interpreter);
        assert_eq!(calls(folder.path()), 2);
        // The lock file is where uv looks for it.
        let lock = first.interpreter.ancestors().nth(3).unwrap().join("project/uv.lock");
        assert_eq!(fs::read_to_string(lock).unwrap(), "uv.lock 1");
        fs::remove_file(&first.interpreter).unwrap();
        assert!(prepare_environment(&uv, &project("1"), &cache).unwrap().built);
    }

    #[test]
    fn a_failed_build_is_tried_again_and_says_what_uv_said() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("cache");
        let uv = fake_uv(folder.path(), "echo 'no such package: x' >&2; exit 2");
        for call in 1..3 {
            let error = prepare_environment(&uv, &project("1"), &cache).unwrap_err();
            assert!(error.message.contains("no such package: x"), "{error}");
            assert_eq!(calls(folder.path()), call);
        }
        let error = prepare_environment(&folder.path().join("none"), &project("1"), &cache).unwrap_err();
        assert!(error.message.contains("cannot start") && error.hint.contains("install uv"), "{error:?}");
        let error = prepare_environment(&uv, &BTreeMap::new(), &cache).unwrap_err();
        assert!(error.message.contains("lacks `pyproject.toml`"), "{error}");
    }

    #[test]
    fn processes_that_need_one_environment_build_it_once() {
        let folder = tempfile::tempdir().unwrap();
        let uv = fake_uv(folder.path(), CREATE);
        let cache = folder.path().join("cache");
        let prepared = || prepare_environment(&uv, &project("1"), &cache).unwrap().built;
        let built = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(prepared)).collect();
            threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum::<usize>()
        });
        assert_eq!((built, calls(folder.path())), (1, 1));
    }
}
