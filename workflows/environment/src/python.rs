//! An existing interpreter of Python and the packages that it finds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::EnvironmentError;

/// What an interpreter is and has installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonDescription {
    /// The absolute path of the interpreter.
    pub interpreter: PathBuf,
    /// The implementation and its version, such as `cpython 3.13.5`.
    pub version: String,
    /// `NAME==VERSION` of each installed distribution, sorted.
    pub packages: Vec<String>,
}

/// Prints a description without the path. `-I` keeps the current folder and the user's packages out.
const DESCRIBE: &str = r#"
import importlib.metadata, json, platform, sys
found = {(d.metadata["Name"] or "?") + "==" + d.version for d in importlib.metadata.distributions()}
version = sys.implementation.name + " " + platform.python_version()
print(json.dumps({"version": version, "packages": sorted(found)}))
"#;

/// What the script prints.
#[derive(Deserialize)]
struct Printed {
    version: String,
    packages: Vec<String>,
}

impl PythonDescription {
    /// Asks an interpreter for its version and packages.
    ///
    /// # Errors
    /// If the file is not an interpreter of Python 3.8 or later.
    pub fn read(interpreter: &Path) -> Result<PythonDescription, EnvironmentError> {
        let hint = "name the interpreter, such as `.venv/bin/python`; `python3 -m venv .venv` creates an environment";
        let refused = |why: String| {
            EnvironmentError::new(format!("`{}` is not a Python interpreter: {why}", interpreter.display()), hint)
        };
        // A link to the interpreter is kept: its place tells Python which environment it belongs to.
        let interpreter = std::path::absolute(interpreter).map_err(|error| refused(error.to_string()))?;
        if !interpreter.is_file() {
            return Err(refused("there is no such file".into()));
        }
        let mut command = Command::new(&interpreter);
        command.args(["-I", "-c", DESCRIBE]).stdin(Stdio::null());
        let output = command.output().map_err(|error| refused(error.to_string()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(refused(said.lines().last().unwrap_or("it fails without a message").to_owned()));
        }
        let printed: Printed =
            serde_json::from_slice(&output.stdout).map_err(|_| refused("it does not run Python code".into()))?;
        Ok(PythonDescription { interpreter, version: printed.version, packages: printed.packages })
    }

    /// As [`PythonDescription::read`], once for each interpreter in the life of this process: a run sees one state of it.
    ///
    /// # Errors
    /// As [`PythonDescription::read`].
    pub fn read_once(interpreter: &Path) -> Result<Arc<PythonDescription>, EnvironmentError> {
        static KNOWN: Mutex<BTreeMap<PathBuf, Arc<PythonDescription>>> = Mutex::new(BTreeMap::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(description) = known.get(interpreter) {
            return Ok(Arc::clone(description));
        }
        let description = Arc::new(PythonDescription::read(interpreter)?);
        known.insert(interpreter.to_owned(), Arc::clone(&description));
        Ok(description)
    }

    /// The content that represents the interpreter in a cache key.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Reads what [`PythonDescription::to_json`] wrote.
    ///
    /// # Errors
    /// If the text is something else.
    pub fn parse(text: &str) -> Result<PythonDescription, EnvironmentError> {
        serde_json::from_str(text).map_err(|error| {
            let message = format!("the description of the Python interpreter cannot be read: {error}");
            EnvironmentError::new(message, "run the workflow file with `assay run`")
        })
    }

    /// Checks that the interpreter on this machine is the one described.
    ///
    /// # Errors
    /// If it does not exist here, or its version or packages differ.
    pub fn verify(&self) -> Result<(), EnvironmentError> {
        let here = PythonDescription::read(&self.interpreter)?;
        let missing = self.packages.iter().filter(|package| !here.packages.contains(package));
        let added = here.packages.iter().filter(|package| !self.packages.contains(package));
        let mut differences: Vec<String> = Vec::new();
        if here.version != self.version {
            differences.push(format!("{} instead of {}", here.version, self.version));
        }
        differences.extend(missing.map(|package| format!("{package} is missing")));
        differences.extend(added.map(|package| format!("{package} was added")));
        if differences.is_empty() {
            return Ok(());
        }
        let more = differences.len().saturating_sub(5);
        differences.truncate(5);
        let more = if more > 0 { format!(" and {more} more differences") } else { String::new() };
        let message = format!(
            "`{}` differs from what the run was planned with: {}{more}",
            self.interpreter.display(),
            differences.join(", ")
        );
        Err(EnvironmentError::new(message, "run the workflow again, or install the same packages on every node"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program that prints this text, whatever its arguments.
    fn interpreter(folder: &Path, printed: &str) -> PathBuf {
        let path = folder.join("python");
        std::fs::write(&path, format!("#!/bin/sh\ncat <<'END'\n{printed}\nEND\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn the_interpreter_of_this_machine_is_described() {
        let python = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|folder| folder.join("python3"))
            .find(|file| file.is_file())
            .expect("tests need python3");
        let description = PythonDescription::read(&python).unwrap();
        assert!(description.version.contains(" 3."), "{description:?}");
        assert!(description.packages.is_sorted());
        assert_eq!(PythonDescription::parse(&description.to_json()).unwrap(), description);
        description.verify().unwrap();
    }

    #[test]
    fn another_package_is_another_environment() {
        let folder = tempfile::tempdir().unwrap();
        let python = interpreter(folder.path(), r#"{"version": "cpython 3.13.5", "packages": ["a==1", "b==2"]}"#);
        let planned = PythonDescription::read(&python).unwrap();
        planned.verify().unwrap();
        assert_eq!(PythonDescription::read_once(&python).unwrap().packages, ["a==1", "b==2"]);
        interpreter(folder.path(), r#"{"version": "cpython 3.14.0", "packages": ["a==1", "b==3"]}"#);
        let error = planned.verify().unwrap_err().message;
        for part in ["cpython 3.14.0 instead of cpython 3.13.5", "b==2 is missing", "b==3 was added"] {
            assert!(error.contains(part), "{error}");
        }
        assert_ne!(PythonDescription::read(&python).unwrap().to_json(), planned.to_json());
        // A run sees one state.
        assert_eq!(PythonDescription::read_once(&python).unwrap().packages, ["a==1", "b==2"]);
    }

    #[test]
    fn what_is_not_an_interpreter_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let check = |path: &Path, why: &str| {
            let error = PythonDescription::read(path).unwrap_err();
            assert!(error.message.contains(why) && error.hint.contains(".venv"), "{error}");
        };
        check(&folder.path().join("none"), "there is no such file");
        check(folder.path(), "there is no such file");
        check(Path::new("/bin/true"), "does not run Python code");
        check(Path::new("/bin/false"), "fails without a message");
        assert!(PythonDescription::parse("{}").is_err());
    }
}
