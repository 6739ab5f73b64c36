//! A separate store for each test, and the binary's output as values.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use assay_core::{RunId, TaskIx};
use assay_store::{AttemptView, Store, TaskView};
use assay_tests::{assay, root};
use serde_json::Value;

/// A store that is removed at the end of the test.
pub struct Home {
    folder: tempfile::TempDir,
    /// The folder of the machine's locks: tests that run at the same time each have a separate simulated machine.
    machine: PathBuf,
}

impl Home {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Home { machine: folder.path().join("machine"), folder }
    }

    /// Another store on the same machine.
    pub fn neighbour(&self) -> Self {
        Home { machine: self.machine.clone(), ..Home::new() }
    }

    /// The store's folder.
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// The path of the content with this hash, if it is in the store.
    pub fn artifact(&self, hash: &str) -> Option<PathBuf> {
        let mut folders = vec![self.store().join("artifacts")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).ok()?.flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.to_string_lossy().replace('/', "").contains(hash) {
                    return Some(path);
                }
            }
        }
        None
    }

    /// `assay ARGS --home HERE`.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = assay();
        command.args(args).arg("--home").arg(self.store()).env("ASSAY_MACHINE", &self.machine);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("assay starts")
    }

    /// Runs a workflow with `--json` and returns its object, whatever the exit code.
    pub fn run(&self, file: &str, more: &[&str]) -> Ran {
        let file = fixture(file);
        let args: Vec<&str> = ["run", &file, "--json"].into_iter().chain(more.iter().copied()).collect();
        Ran::of(self.output(&args))
    }

    /// The output of `assay show --json` for a run.
    pub fn shown(&self, run: &str) -> Ran {
        Ran::of(self.output(&["show", run, "--json"]))
    }

    /// The attempts of a task of the store's first run.
    pub fn attempts(&self, ran: &Ran, address: &str) -> Vec<AttemptView> {
        let place = ran.tasks().iter().position(|task| task["address"] == address);
        let task = TaskIx(place.unwrap_or_else(|| panic!("no task `{address}`")) as u32);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let store = Store::open_read_only(&self.store()).await.expect("the store");
            store.attempts(RunId(1), task).await.expect("the attempts")
        })
    }

    /// A task of the store's latest run.
    pub fn task(&self, address: &str) -> Option<TaskView> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let store = Store::open_read_only(&self.store()).await.ok()?;
            let latest = store.runs(1, 0).await.ok()?.first()?.id;
            store.task(latest, address).await.ok()?
        })
    }

    pub fn spawn(&self, file: &str, more: &[&str]) -> Child {
        let file = fixture(file);
        let args: Vec<&str> = ["run", &file, "--json"].into_iter().chain(more.iter().copied()).collect();
        let run = self.command(&args);
        // With `nohup` SIGHUP is ignored, which `assay` respects.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(run.get_program()).args(run.get_args());
        command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("assay starts")
    }
}

/// A finished `assay run --json`.
pub struct Ran {
    pub code: Option<i32>,
    pub json: Value,
    pub stderr: String,
}

impl Ran {
    pub fn of(output: Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let json = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("stdout is not one JSON object ({error}); stderr:\n{stderr}"));
        Ran { code: output.status.code(), json, stderr }
    }

    pub fn state(&self) -> &str {
        self.json["state"].as_str().unwrap_or_default()
    }

    pub fn tasks(&self) -> &[Value] {
        self.json["tasks"].as_array().map_or(&[], Vec::as_slice)
    }

    pub fn task(&self, address: &str) -> &Value {
        let found = self.tasks().iter().find(|task| task["address"] == address);
        found.unwrap_or_else(|| panic!("no task `{address}` in {:#}", self.json))
    }

    /// The addresses of the tasks that did not come from the cache.
    pub fn worked(&self) -> Vec<&str> {
        let tasks = self.tasks().iter().filter(|task| task["cached"] == false);
        tasks.filter_map(|task| task["address"].as_str()).collect()
    }

    #[track_caller]
    pub fn succeeded(&self) -> &Self {
        assert_eq!((self.state(), self.code), ("succeeded", Some(0)), "{:#}\n{}", self.json, self.stderr);
        self
    }
}

pub fn fixture(name: &str) -> String {
    let own = root().join("tests/acceptance/fixtures").join(name);
    let path = if own.exists() { own } else { root().join("workflows/catalog").join(name) };
    path.display().to_string()
}

/// Waits until a condition is true; a minute is far more than any machine needs.
#[track_caller]
pub fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "waited a minute in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process is running; a zombie is not.
pub fn is_alive(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z")
}

/// The children of a process whose command line contains a word.
pub fn children(parent: u32, word: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let children = numbers.filter(|number| {
        let folder = PathBuf::from(format!("/proc/{number}"));
        let stat = std::fs::read_to_string(folder.join("stat")).unwrap_or_default();
        let line = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        // The fields after the name, which is in parentheses: state, parent.
        let above = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        above == Some(parent) && String::from_utf8_lossy(&line).contains(word)
    });
    children.collect()
}

/// Sends a signal by name.
pub fn signal(process: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "kill -{name} {process} failed");
}
