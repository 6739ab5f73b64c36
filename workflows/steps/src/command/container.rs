//! `environment: {container: IMAGE@DIGEST}`: a program runs in a container of podman or docker.
//!
//! The container sees the folders of the attempt at the same paths as the executor, and the network of the machine. Its processes inherit
//! `ASSAY_OUTPUTS`, so that they are found and killed like those of any other program.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::folders::Folders;
use crate::context::StepError;

/// The programs that run containers, in the order of preference.
const RUNTIMES: [&str; 2] = ["podman", "docker"];

/// Exit codes of both programs: the container could not be created, the program could not be executed, it was not found.
const NOT_CREATED: i32 = 125;
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

/// An image, and the program that runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Container {
    runtime: PathBuf,
    image: String,
}

/// A container that exists until this is dropped, even if this process is killed.
pub(super) struct RunningContainer {
    /// A shell that waits for the end of its standard input, and then removes the container.
    guard: Child,
}

/// Whether an image is given by its content: `NAME@sha256:DIGEST`, or `sha256:ID` for an image that exists on the node.
pub(super) fn is_pinned(image: &str) -> bool {
    let (name, hash) = image.rsplit_once("sha256:").unwrap_or_default();
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | ':' | '_' | '-');
    let is_name = |name: &str| !name.is_empty() && !name.starts_with('-') && name.chars().all(fits);
    is_hash && (name.is_empty() || name.strip_suffix('@').is_some_and(is_name))
}

impl Container {
    /// Finds podman or docker on `path`.
    ///
    /// # Errors
    /// If there is neither, or the image is not given by its content.
    pub fn find(image: &str, path: Option<&OsStr>) -> Result<Self, StepError> {
        if !is_pinned(image) {
            return Err(StepError::failed(format!("the image `{image}` has no digest")));
        }
        let folders: Vec<PathBuf> = path.map(|path| std::env::split_paths(path).collect()).unwrap_or_default();
        let find = |name: &&str| folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
        match RUNTIMES.iter().find_map(find) {
            Some(runtime) => Ok(Container { runtime, image: image.to_owned() }),
            None => Err(StepError::Failed {
                message: "neither `podman` nor `docker` was found on PATH".into(),
                hint: Some(
                    "install one of them on this node, or select another node with `resources: [{label: ..}]`".into(),
                ),
            }),
        }
    }

    fn is_docker(&self) -> bool {
        self.runtime.file_name().is_some_and(|name| name == "docker")
    }

    /// The command that runs another command in the container, and the container, which exists from the start of that command.
    ///
    /// # Errors
    /// If a path cannot be mounted, or the guard cannot be started.
    pub fn wrap(
        &self,
        command: &Command,
        folders: &Folders,
        backend: &str,
    ) -> Result<(Command, RunningContainer), StepError> {
        let name = format!("assay-{}", &blake3::hash(folders.outputs.as_os_str().as_encoded_bytes()).to_hex()[..24]);
        let mut wrapped = Command::new(&self.runtime);
        wrapped.args(["run", "--rm", "--name", &name, "--network", "host", "--security-opt", "label=disable"]);
        wrapped.arg("--workdir").arg(&folders.start).current_dir(&folders.start);
        for (path, mode) in mounted_paths(folders)? {
            wrapped.arg("--volume").arg(volume(&path, mode)?);
        }
        match (backend, self.is_docker()) {
            ("cuda", true) => drop(wrapped.args(["--gpus", "all"])),
            ("cuda", false) => drop(wrapped.args(["--device", "nvidia.com/gpu=all"])),
            ("rocm", _) => drop(wrapped.args(["--device", "/dev/kfd", "--device", "/dev/dri"])),
            _ => {}
        }
        if self.is_docker() {
            // Otherwise the files of the program belong to root. With podman, root in the container is the user who started it.
            let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
            wrapped.arg("--user").arg(format!("{user}:{group}"));
        }
        for (name, value) in command.get_envs() {
            let Some(value) = value else {
                wrapped.env_remove(name);
                continue;
            };
            let mut argument = name.to_owned();
            if changes_runtime(name) {
                argument.push("=");
                argument.push(value);
            } else {
                // The value is inherited and not an argument, since arguments are visible to all users: it may be a secret.
                wrapped.env(name, value);
            }
            wrapped.arg("--env").arg(argument);
        }
        wrapped.arg("--entrypoint").arg(command.get_program()).arg(&self.image).args(command.get_args());
        Ok((wrapped, self.guard(&name)?))
    }

    fn guard(&self, name: &str) -> Result<RunningContainer, StepError> {
        let mut guard = Command::new("sh");
        guard.args(["-c", "read -r line; exec \"$0\" rm --force \"$1\""]).arg(&self.runtime).arg(name);
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // The worker kills the process group of the executor, and the guard must survive that.
        let guard = guard.process_group(0).spawn();
        let guard = guard.map_err(|error| StepError::failed(format!("cannot start `sh`: {error}")))?;
        Ok(RunningContainer { guard })
    }

    /// Explains an exit code with which the runtime reports that it could not run the program; `None` for any other.
    pub fn explain_exit(&self, code: i32, program: &str) -> Option<(String, &'static str)> {
        let runtime = self.runtime.file_name().unwrap_or_default().to_string_lossy();
        match code {
            NOT_CREATED => Some((
                format!("{runtime} could not create a container of `{}`", self.image),
                "the lines below say why; try the image by hand: `podman run --rm IMAGE`",
            )),
            NOT_EXECUTABLE | NOT_FOUND => Some((
                format!(
                    "`{program}` exited with code {code}, which {runtime} also reports if it cannot start a program"
                ),
                "the image must contain the program, or `files:` must list it",
            )),
            _ => None,
        }
    }
}

impl Drop for RunningContainer {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // It fails only if the guard was already waited for.
        let _ = self.guard.wait();
    }
}

/// The paths that a container sees, and how: the folders of the run, and each input, to which a link leads.
fn mounted_paths(folders: &Folders) -> Result<Vec<(PathBuf, &'static str)>, StepError> {
    let unreadable = |path: &Path, error: &std::io::Error| {
        StepError::failed(format!("cannot read the folder of inputs `{}`: {error}", path.display()))
    };
    let work = folders.outputs.parent().unwrap_or(&folders.outputs);
    let mut paths = vec![(work.to_owned(), "rw")];
    if !folders.resume.starts_with(work) {
        paths.push((folders.resume.clone(), "rw"));
    }
    let entries = std::fs::read_dir(&folders.inputs).map_err(|error| unreadable(&folders.inputs, &error))?;
    for entry in entries {
        let link = entry.map_err(|error| unreadable(&folders.inputs, &error))?.path();
        paths.push((std::fs::read_link(&link).map_err(|error| unreadable(&link, &error))?, "ro"));
    }
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// `PATH:PATH:MODE`.
fn volume(path: &Path, mode: &str) -> Result<String, StepError> {
    match path.to_str() {
        Some(text) if !text.contains(':') => Ok(format!("{text}:{text}:{mode}")),
        _ => Err(StepError::Failed {
            message: format!(
                "`{}` cannot be mounted in a container, since its name has a colon or is not UTF-8",
                path.display()
            ),
            hint: Some("move the store to another folder: `--home FOLDER`".into()),
        }),
    }
}

/// Whether a variable changes what podman or docker itself does.
fn changes_runtime(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let prefixes = ["LD_", "XDG_", "CONTAINER", "DOCKER_", "REGISTRY_", "STORAGE_", "SSL_", "GO"];
    matches!(name.as_ref(), "PATH" | "HOME" | "TMPDIR" | "USER")
        || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_given_by_its_content() {
        let hash = "a".repeat(64);
        assert!(
            is_pinned(&format!("docker.io/library/python:3.12@sha256:{hash}")) && is_pinned(&format!("sha256:{hash}"))
        );
        for image in [
            "python:3.12",
            &hash,
            &format!("@sha256:{hash}"),
            &format!("-v@sha256:{hash}"),
            &format!("a b@sha256:{hash}"),
        ] {
            assert!(!is_pinned(image), "{image}");
        }
        assert!(
            !is_pinned(&format!("python@sha256:{}", &hash[1..]))
                && !is_pinned(&format!("python@sha256:{}", hash.to_uppercase()))
        );
    }

    #[test]
    fn a_container_sees_the_folders_and_inputs_and_its_secrets_are_not_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        let at = |name: &str| work.join(name);
        let folders = Folders {
            start: at("start"),
            inputs: at("inputs"),
            outputs: at("outputs"),
            resume: folder.path().join("resume"),
            metrics: at("metrics.jsonl"),
            params: at("params.json"),
        };
        std::fs::create_dir_all(&folders.inputs).unwrap();
        std::fs::create_dir_all(&folders.start).unwrap();
        std::os::unix::fs::symlink("/store/data", folders.inputs.join("data")).unwrap();
        let container = Container { runtime: "/bin/true".into(), image: "image".into() };
        let mut command = Command::new("python");
        command.arg("train.py").env("TOKEN", "secret").env("PATH", "/opt/bin").env_remove("ASSAY_X");
        let (wrapped, _running) = container.wrap(&command, &folders, "cpu").unwrap();
        let arguments: Vec<String> =
            wrapped.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
        let has = |pair: [&str; 2]| arguments.windows(2).any(|two| two == pair);
        let mounted = |path: &Path, mode: &str| format!("{0}:{0}:{mode}", path.display());
        assert!(
            has(["--volume", &mounted(&work, "rw")]) && has(["--volume", &mounted(&folders.resume, "rw")]),
            "{arguments:?}"
        );
        assert!(has(["--volume", "/store/data:/store/data:ro"]), "{arguments:?}");
        assert!(
            has(["--env", "TOKEN"])
                && has(["--env", "PATH=/opt/bin"])
                && !arguments.iter().any(|text| text.contains("secret"))
        );
        assert_eq!(arguments[arguments.len() - 4..], ["--entrypoint", "python", "image", "train.py"]);
        assert!(wrapped.get_envs().any(|(name, value)| name == "TOKEN" && value == Some("secret".as_ref())));
        assert!(wrapped.get_envs().any(|(name, value)| name == "ASSAY_X" && value.is_none()));
        assert_eq!(container.explain_exit(1, "python"), None);
        assert!(container.explain_exit(125, "python").unwrap().0.contains("could not create a container of `image`"));
    }
}
