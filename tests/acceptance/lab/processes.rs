//! A server and its workers as separate processes, which end with the test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::support::{Home, Ran, fixture, signal, wait_for};

/// A process that is killed at the end of the test.
pub struct Process(Child);

impl Process {
    /// The process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Kills it, and waits until it has exited.
    pub fn kill(&mut self) {
        signal(self.0.id(), "KILL");
        self.0.wait().expect("the process is gone");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server with a separate store.
pub struct Server {
    pub home: Home,
    pub process: Process,
    pub url: String,
    /// What workers and commands have in their environment.
    pub environment: Vec<(&'static str, String)>,
    more: Vec<String>,
    /// The network namespace in which it runs.
    host: Option<String>,
    said: Said,
}

/// What a process wrote to its standard error.
type Said = Arc<Mutex<String>>;

/// A command in a network namespace.
fn inside(host: Option<&str>, command: Command) -> Command {
    let Some(host) = host else { return command };
    let mut inner = Command::new("ip");
    inner.args(["netns", "exec", host]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inner.env(name, value),
            None => inner.env_remove(name),
        };
    }
    inner.current_dir(command.get_current_dir().unwrap_or(std::path::Path::new(".")));
    inner.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    inner
}

/// Collects the standard error of a process, so that it never blocks.
pub fn collect_lines(lines: impl Iterator<Item = std::io::Result<String>> + Send + 'static) -> Said {
    let said = Said::default();
    let kept = said.clone();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push_str(&line);
            kept.push('\n');
        }
    });
    said
}

fn spawn_server(home: &Home, listen: &str, more: &[String], host: Option<&str>) -> (Process, String, Said) {
    let mut args = vec!["server", "--listen", listen];
    args.extend(more.iter().map(String::as_str));
    let mut child = inside(host, home.command(&args)).stdout(Stdio::null()).spawn().expect("assay starts");
    let mut lines = BufReader::new(child.stderr.take().expect("its standard error")).lines();
    let url = lines.by_ref().find_map(|line| {
        let line = line.expect("text");
        let address = line.split(" on ").find(|part| part.starts_with("http"))?;
        address.split(',').next().map(str::to_owned)
    });
    let url = url.expect("the server says where it is");
    (Process(child), url, collect_lines(lines))
}

impl Server {
    pub fn start(more: &[&str]) -> Server {
        Self::start_on("127.0.0.1:0", more)
    }

    pub fn start_on(listen: &str, more: &[&str]) -> Server {
        Self::start_in(None, listen, more)
    }

    /// Starts it in a network namespace, in which the commands to it run, too.
    pub fn start_in(host: Option<&str>, listen: &str, more: &[&str]) -> Server {
        let home = Home::new();
        let more: Vec<String> = more.iter().map(ToString::to_string).collect();
        let (process, url, said) = spawn_server(&home, listen, &more, host);
        Server { home, process, url, environment: Vec::new(), more, host: host.map(str::to_owned), said }
    }

    /// What it wrote to its standard error after its first lines.
    pub fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills the server; workers detect that.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again, with the same address.
    pub fn restart(&mut self) {
        let listen = self.url.split("://").nth(1).expect("a scheme").to_owned();
        (self.process, _, self.said) = spawn_server(&self.home, &listen, &self.more, self.host.as_deref());
    }

    /// A worker on a separate simulated machine.
    pub fn worker(&self, name: &str, more: &[&str]) -> Worker {
        self.worker_in(self.host.as_deref(), name, more)
    }

    /// As [`Server::worker`], in a network namespace.
    pub fn worker_in(&self, host: Option<&str>, name: &str, more: &[&str]) -> Worker {
        let home = Home::new();
        let cache = home.store().display().to_string();
        let mut args = vec!["worker", "--server", &self.url, "--name", name, "--cache", &cache];
        args.extend(more);
        let mut command = inside(host, home.command(&args));
        command.envs(self.environment.iter().cloned()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("assay starts");
        Worker { process: Process(child), _home: home }
    }

    pub fn output(&self, args: &[&str]) -> Output {
        // The local store is empty, so results can only come from the server.
        let home = Home::new();
        let mut command = home.command(args);
        command.args(["--server", &self.url]).envs(self.environment.iter().cloned());
        inside(self.host.as_deref(), command).output().expect("assay starts")
    }

    pub fn json(&self, args: &[&str]) -> Value {
        let output = self.output(&[args, &["--json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}; {said}"))
    }

    /// Submits a workflow; returns the run's number.
    pub fn submit(&self, file: &str, more: &[&str]) -> String {
        let file = fixture(file);
        let args: Vec<&str> = ["submit", &file].into_iter().chain(more.iter().copied()).collect();
        self.json(&args)["run"].as_i64().expect("a number").to_string()
    }

    pub fn wait_for_workers(&self, count: usize) {
        wait_for("the workers", || {
            let workers = self.json(&["workers"]);
            let there = |worker: &&Value| worker["state"] == "connected";
            (workers["workers"].as_array()?.iter().filter(there).count() == count).then_some(())
        });
    }

    /// Waits until a run has ended.
    pub fn finished(&self, run: &str) -> Ran {
        wait_for("the run to end", || {
            let ran = Ran::of(self.output(&["show", run, "--json"]));
            (ran.state() != "running").then_some(ran)
        })
    }

    /// The log of a task.
    pub fn log(&self, run: &str, task: &str) -> String {
        String::from_utf8_lossy(&self.output(&["logs", run, task]).stdout).into_owned()
    }
}

/// A worker with a separate machine folder and work folder.
pub struct Worker {
    pub process: Process,
    /// Its folders exist as long as this value.
    _home: Home,
}
