//! A server and its workers as separate processes, which end with the test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Output, Stdio};

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
}

fn spawn_server(home: &Home, listen: &str, more: &[String]) -> (Process, String) {
    let mut args = vec!["server", "--listen", listen];
    args.extend(more.iter().map(String::as_str));
    let mut child = home.command(&args).stdout(Stdio::null()).spawn().expect("assay starts");
    let mut lines = BufReader::new(child.stderr.take().expect("its standard error")).lines();
    let url = lines.by_ref().find_map(|line| {
        let line = line.expect("text");
        let address = line.split(" on ").find(|part| part.starts_with("http"))?;
        address.split(',').next().map(str::to_owned)
    });
    // Its later output is read, so that it never blocks.
    std::thread::spawn(move || lines.for_each(drop));
    (Process(child), url.expect("the server says where it is"))
}

impl Server {
    pub fn start(more: &[&str]) -> Server {
        Self::start_on("127.0.0.1:0", more)
    }

    pub fn start_on(listen: &str, more: &[&str]) -> Server {
        let home = Home::new();
        let more: Vec<String> = more.iter().map(ToString::to_string).collect();
        let (process, url) = spawn_server(&home, listen, &more);
        Server { home, process, url, environment: Vec::new(), more }
    }

    /// Kills the server; workers detect that.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again, with the same address.
    pub fn restart(&mut self) {
        let listen = self.url.split("://").nth(1).expect("a scheme").to_owned();
        self.process = spawn_server(&self.home, &listen, &self.more).0;
    }

    /// A worker on a separate simulated machine.
    pub fn worker(&self, name: &str, more: &[&str]) -> Worker {
        let home = Home::new();
        let cache = home.store().display().to_string();
        let mut args = vec!["worker", "--server", &self.url, "--name", name, "--cache", &cache];
        args.extend(more);
        let mut command = home.command(&args);
        command.envs(self.environment.iter().cloned()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("assay starts");
        Worker { process: Process(child), _home: home }
    }

    pub fn output(&self, args: &[&str]) -> Output {
        // The local store is empty, so results can only come from the server.
        let home = Home::new();
        let mut command = home.command(args);
        command.args(["--server", &self.url]).envs(self.environment.iter().cloned());
        command.output().expect("assay starts")
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
