//! A real Slurm: two nodes on this machine, and a server that submits pilots to them.
//!
//! The packages are installed if they are missing, which requires root. No test depends on the speed of the machine: tasks wait for each
//! other if they must run at the same time, and for the end of their attempt if that is part of the test.

mod cluster;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use assay_tests::assay;
use serde_json::Value;

use cluster::{Cluster, wait_for};

/// A server with a separate store, which ends with the test.
struct Server<'a> {
    cluster: &'a Cluster,
    home: tempfile::TempDir,
    process: Child,
    url: String,
}

/// `assay ARGS` with a separate store on the login node of a cluster.
fn command(cluster: &Cluster, home: &Path, args: &[&str]) -> Command {
    let mut command = assay();
    // Arguments after `--` belong to the cluster.
    command.arg("--home").arg(home.join("store")).args(args);
    command.env("SLURM_CONF", cluster.conf()).env("ASSAY_MACHINE", home.join("machine"));
    // Slurm writes the output of a job to the folder in which it was submitted.
    command.current_dir(cluster.shared());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl<'a> Server<'a> {
    fn start(cluster: &'a Cluster) -> Server<'a> {
        let home = tempfile::tempdir().expect("a temporary folder");
        let mut process = command(cluster, home.path(), &["server", "--listen", "127.0.0.1:0"]);
        let mut process = process.stdout(Stdio::null()).spawn().expect("assay starts");
        let mut lines = BufReader::new(process.stderr.take().expect("its standard error")).lines();
        let url = lines.by_ref().find_map(|line| {
            let line = line.expect("text");
            let address = line.split(" on http://").nth(1)?.split(',').next()?;
            Some(format!("http://{address}"))
        });
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("server: {line}")));
        Server { cluster, home, process, url: url.expect("the server says where it is") }
    }

    fn output(&self, args: &[&str]) -> Output {
        command(self.cluster, self.home.path(), args).env("ASSAY_SERVER", &self.url).output().expect("assay starts")
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.output(&[args, &["--json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}; {said}"))
    }

    fn allocate(&self, more: &[&str]) {
        let args = [&["allocate", "slurm", "--name", "main", "--grow", "0", "--idle", "60"], more].concat();
        let output = self.output(&args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn submit(&self, file: &Path) -> String {
        self.json(&["submit", &file.display().to_string()])["run"].as_i64().expect("a number").to_string()
    }

    fn finished(&self, run: &str) -> Value {
        wait_for("the run to end", || {
            let shown: Value = serde_json::from_slice(&self.output(&["show", run, "--json"]).stdout).ok()?;
            (shown["state"] != "running").then_some(shown)
        })
    }

    fn log(&self, run: &str, task: &str) -> String {
        String::from_utf8_lossy(&self.output(&["logs", run, task]).stdout).into_owned()
    }

    /// Removes the pool, and waits until its jobs are gone.
    fn stop_pilots(&self) {
        let output = self.output(&["allocate", "remove", "main"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        wait_for("the queue to be empty", || self.cluster.jobs().is_empty().then_some(()));
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write(folder: &Path, name: &str, text: &str) -> std::path::PathBuf {
    fs::write(folder.join(name), text).expect("a file");
    folder.join(name)
}

/// Two tasks that wait for each other: they can only end if two pilots run them at the same time.
fn write_sweep(folder: &Path) -> std::path::PathBuf {
    let meet = folder.join("meet");
    fs::create_dir_all(&meet).expect("a folder");
    let script = format!(
        "touch '{0}'/$1; while [ $(ls '{0}' | wc -l) -lt 2 ]; do sleep 0.2; done; \
         echo SLURM_JOB_ID=$SLURM_JOB_ID; echo value=$1 > \"$ASSAY_OUTPUTS/value.txt\"\n",
        meet.display()
    );
    write(folder, "meet.sh", &script);
    let flow = "name: sweep\njobs:\n  meet:\n    strategy: {matrix: {side: [1, 2]}}\n    uses: command\n    with:\n      \
                run: [sh, meet.sh, \"${{ matrix.side }}\"]\n      files: [meet.sh]\n      outputs: {value: value.txt}\n";
    write(folder, "sweep.yaml", flow)
}

/// A program that never ends in its first attempt, and continues from that attempt's state in the next one.
fn write_resumed(folder: &Path) -> std::path::PathBuf {
    let script = "if [ -f \"$ASSAY_RESUME/begun\" ]; then echo continued > \"$ASSAY_OUTPUTS/said.txt\"; exit 0; fi\n\
                  mkdir -p \"$ASSAY_RESUME\"; touch \"$ASSAY_RESUME/begun\"; echo the first attempt waits\n\
                  while true; do sleep 1; done\n";
    write(folder, "resumed.sh", script);
    let flow = "name: resumed\njobs:\n  work:\n    uses: command\n    with: {run: [sh, resumed.sh], files: [resumed.sh], outputs: \
                {said: said.txt}}\n";
    write(folder, "resumed.yaml", flow)
}

/// A training that saves its state often, and takes a quarter of a minute on an idle machine: its pilot is cancelled after the first
/// state, a second or two after the start.
fn write_training(folder: &Path) -> std::path::PathBuf {
    let flow = "name: training\njobs:\n  data:\n    uses: prepare\n    with: {dataset: recall, train: 400, valid: 40, test: 40, keys: 8, \
                values: 8, pairs: 3, distance: 6}\n  train:\n    needs: [data]\n    uses: train\n    with:\n      \
                data: \"${{ needs.data.outputs.dataset }}\"\n      model: {family: ten, dim: 16, layers: 1, states: 8, chunk: 8}\n      \
                optimizer: {name: adamw, lr: 3e-3, clip_norm: 1.0}\n      batch_size: 8\n      \
                curriculum: [{until_step: 60000, max_length: 64}]\n      log_every: 1000\n      eval_every: 20000\n      \
                checkpoints: {every_steps: 400}\n";
    write(folder, "training.yaml", flow)
}

/// `assay run --on slurm`: a sweep over two pilots, after which no jobs are left on the cluster.
fn run_a_sweep_over_two_pilots(cluster: &Cluster) {
    let home = tempfile::tempdir().expect("a temporary folder");
    let flow = write_sweep(home.path());
    let mut run = command(
        cluster,
        home.path(),
        &["run", &flow.display().to_string(), "--on", "slurm", "--pilots", "2", "--json"],
    );
    let output = run.current_dir(home.path()).output().expect("assay starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!((&shown["state"], output.status.code()), (&Value::from("succeeded"), Some(0)), "{shown:#}\n{said}");
    let mut jobs = Vec::new();
    for side in 1..=2 {
        let task = format!("meet[side={side}]");
        let log = command(cluster, home.path(), &["logs", "1", &task]).output().expect("assay starts").stdout;
        let log = String::from_utf8_lossy(&log).into_owned();
        jobs.extend(log.lines().find_map(|line| line.split("SLURM_JOB_ID=").nth(1)).map(str::to_owned));
    }
    assert!(jobs.len() == 2 && jobs[0] != jobs[1], "the tasks ran in the jobs {jobs:?}\n{said}");
    wait_for("the queue to be empty", || cluster.jobs().is_empty().then_some(()));
}

/// A pilot is cancelled in the middle of a training: the next pilot resumes from the checkpoint.
fn cancel_a_pilot_during_training(cluster: &Cluster) {
    let server = Server::start(cluster);
    server.allocate(&["--max", "1", "--", "--time=30"]);
    let run = server.submit(&write_training(server.home.path()));
    let states = server.home.path().join("store/resume");
    wait_for("the training's state to come to the server", || {
        let mut folders = fs::read_dir(&states).ok()?.flatten();
        folders.find(|folder| folder.path().join("checkpoint.safetensors").is_file()).map(drop)
    });
    let jobs = cluster.jobs();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    assert!(cluster.output("scancel", &[&jobs[0]]).status.success());
    let shown = server.finished(&run);
    let log = server.log(&run, "train");
    assert_eq!(shown["state"], "succeeded", "{shown:#}\n{log}");
    assert!(log.contains(&format!("attempt 1 on main-{}", jobs[0])), "{log}");
    assert!(log.contains("attempt 2 on main-") && log.contains("resuming from the checkpoint at step "), "{log}");
    server.stop_pilots();
}

/// A pilot reaches its time limit: it drains before that, and the next pilot resumes.
fn reach_a_time_limit(cluster: &Cluster) {
    let server = Server::start(cluster);
    // Slurm may send the signal up to a minute early: after half a minute at the earliest.
    server.allocate(&["--max", "1", "--signal", "30", "--", "--time=2"]);
    let run = server.submit(&write_resumed(server.home.path()));
    let shown = server.finished(&run);
    let log = server.log(&run, "work");
    assert_eq!(shown["state"], "succeeded", "{shown:#}\n{log}");
    assert!(shown["tasks"][0]["attempts"].as_u64() >= Some(2), "{log}");
    assert!(log.contains("preempted"), "{log}");
    server.stop_pilots();
}

#[test]
fn pilots_run_on_slurm_and_what_ends_them_costs_no_work() {
    let cluster = Cluster::start();
    run_a_sweep_over_two_pilots(&cluster);
    cancel_a_pilot_during_training(&cluster);
    reach_a_time_limit(&cluster);
}
