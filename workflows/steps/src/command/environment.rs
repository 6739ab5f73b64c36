//! Where a program finds its interpreter and packages: the option `environment`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use assay_environment::{EnvironmentError, PythonDescription, uv};
use assay_spec::{ArtifactRef, COMPANIONS, LOCAL_FILES, LOCAL_PYTHON};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::container::Container;
use crate::context::{Context, StepError};

/// An environment, as a workflow file names it (paths), or once its files are in the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Environment {
    /// An interpreter that exists on the node.
    Python(LocalContent<ArtifactRef>),
    /// The lock file of uv, with its project file.
    Uv(LocalContent<BTreeMap<String, ArtifactRef>>),
    /// An image with its digest.
    Container(String),
}

/// An environment that is ready on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PreparedEnvironment {
    /// The interpreter of a Python environment.
    Interpreter(PathBuf),
    /// The container in which the program runs.
    Container(Container),
}

/// A path, or the content of its files once they are in the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)] // Paths are written by people, and checked by the schema; contents are ours.
pub(super) enum LocalContent<T> {
    Content(T),
    Path(String),
}

impl<T> LocalContent<T> {
    fn content(&self) -> Result<&T, StepError> {
        match self {
            LocalContent::Content(content) => Ok(content),
            LocalContent::Path(path) => Err(StepError::Failed {
                message: format!("`environment` names `{path}`, whose content is not in the store"),
                hint: Some("run the workflow file with `assay run`".into()),
            }),
        }
    }
}

impl JsonSchema for Environment {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Environment".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "properties": {
                "python": {
                    "type": "string",
                    "format": LOCAL_PYTHON,
                    "description": "An interpreter such as `.venv/bin/python`, relative to the folder of the workflow file. It must \
                        exist on every node. Its path, its version and the versions of its packages are part of the cache key.",
                },
                "uv": {
                    "type": "string",
                    "format": LOCAL_FILES,
                    (COMPANIONS): ["pyproject.toml"],
                    "description": "A lock file of uv, in the same folder as its `pyproject.toml`. Each node builds the environment \
                        once, without the project itself. The content of both files is part of the cache key.",
                },
                "container": {
                    "type": "string",
                    "pattern": "sha256:[0-9a-f]{64}$",
                    "description": "An image with its digest, `IMAGE@sha256:..`, which podman or docker runs on the node and fetches if it is \
                        missing; `sha256:..` alone is the ID of an image that exists on the node.",
                },
            },
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": false,
        })
    }
}

impl Environment {
    /// Makes the environment ready on this machine.
    ///
    /// # Errors
    /// If the interpreter differs from the one that the run was planned with, uv cannot build the environment, or no program for
    /// containers is installed.
    pub fn prepare(&self, context: &mut dyn Context) -> Result<PreparedEnvironment, StepError> {
        match self {
            Environment::Python(content) => {
                let path = context.input(content.content()?)?;
                let text = read(&path)?;
                let description = PythonDescription::parse(&String::from_utf8_lossy(&text)).map_err(failure)?;
                description.verify().map_err(failure)?;
                Ok(PreparedEnvironment::Interpreter(description.interpreter))
            }
            Environment::Uv(content) => {
                let mut files = BTreeMap::new();
                for (path, artifact) in content.content()? {
                    // uv needs these names, even if the lock file has another name in the workflow's folder.
                    let is_project = path.ends_with("pyproject.toml");
                    let name = uv::PROJECT_FILES[usize::from(!is_project)];
                    files.insert(name.to_owned(), read(&context.input(artifact)?)?);
                }
                let cache = uv::cache_folder().map_err(failure)?;
                let environment = uv::prepare_environment(Path::new("uv"), &files, &cache).map_err(failure)?;
                let how =
                    if environment.built { "uv built the environment" } else { "the environment was built earlier" };
                context.log(&format!("{how}: {}", environment.interpreter.display()));
                Ok(PreparedEnvironment::Interpreter(environment.interpreter))
            }
            Environment::Container(image) => {
                Container::find(image, std::env::var_os("PATH").as_deref()).map(PreparedEnvironment::Container)
            }
        }
    }
}

/// The variables with which a program finds an interpreter as `python`, and the packages of its environment.
pub(super) fn variables(interpreter: &Path, path: Option<OsString>) -> Vec<(&'static str, OsString)> {
    let Some(bin) = interpreter.parent() else { return Vec::new() };
    let mut variables = Vec::new();
    let folders = std::iter::once(bin.to_owned()).chain(path.iter().flat_map(std::env::split_paths));
    // A folder whose name has a colon cannot be in the variable.
    if let Ok(path) = std::env::join_paths(folders) {
        variables.push(("PATH", path));
    }
    if let Some(prefix) = bin.parent().filter(|prefix| prefix.join("pyvenv.cfg").is_file()) {
        variables.push(("VIRTUAL_ENV", prefix.into()));
    }
    variables
}

fn read(path: &Path) -> Result<Vec<u8>, StepError> {
    std::fs::read(path).map_err(|error| StepError::failed(format!("cannot read `{}`: {error}", path.display())))
}

fn failure(error: EnvironmentError) -> StepError {
    StepError::Failed { message: error.message, hint: Some(error.hint) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_comes_first_in_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let interpreter = folder.path().join("bin/python");
        let found = variables(&interpreter, Some("/usr/bin:/bin".into()));
        let expected = format!("{}/bin:/usr/bin:/bin", folder.path().display());
        assert_eq!(found, [("PATH", expected.clone().into())]);
        std::fs::write(folder.path().join("pyvenv.cfg"), "").unwrap();
        let found = variables(&interpreter, Some("/usr/bin:/bin".into()));
        assert_eq!(found, [("PATH", expected.into()), ("VIRTUAL_ENV", folder.path().into())]);
    }
}
