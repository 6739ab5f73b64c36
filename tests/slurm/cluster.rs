//! A Slurm cluster of two nodes on this machine, with separate configuration and daemons that end with the test.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The time limit of every wait: far more than any machine needs.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// The cluster.
pub struct Cluster {
    folder: tempfile::TempDir,
    daemons: Vec<Child>,
}

/// Waits until a condition is true.
#[track_caller]
pub fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn run(program: &str, args: &[&str]) -> Output {
    let output = Command::new(program).args(args).env("DEBIAN_FRONTEND", "noninteractive").output();
    output.unwrap_or_else(|error| panic!("{program} cannot be started: {error}"))
}

fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).chain([PathBuf::from("/usr/sbin")]).any(|folder| folder.join(program).is_file())
}

/// Installs Debian's packages if they are missing.
fn install() {
    if ["slurmctld", "slurmd", "sbatch"].iter().all(|program| is_installed(program)) {
        return;
    }
    eprintln!("installing slurm-wlm (apt-get)");
    for args in [&["update", "-qq"][..], &["install", "-y", "-qq", "--no-install-recommends", "slurm-wlm"]] {
        let output = run("apt-get", args);
        assert!(output.status.success(), "apt-get {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// An unused port.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn configuration(folder: &Path, host: &str) -> String {
    let place = folder.display();
    let node = |name: &str, gres: &str| {
        let port = free_port();
        format!("NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=2000{gres}\n")
    };
    format!(
        "ClusterName=assay\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\nSlurmUser=root\nAuthType=auth/none\nCredType=cred/none\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
         AccountingStorageType=accounting_storage/none\nSlurmdParameters=config_overrides\nSelectType=select/cons_tres\n\
         SelectTypeParameters=CR_CPU\nMpiDefault=none\nReturnToService=2\nGresTypes=gpu\nMailProg=/bin/true\nKillWait=30\n\
         SlurmctldPidFile={place}/slurmctld.pid\nSlurmdPidFile={place}/slurmd-%n.pid\nSlurmdSpoolDir={place}/spool-%n\n\
         SlurmctldLogFile={place}/slurmctld.log\nSlurmdLogFile={place}/slurmd-%n.log\nStateSaveLocation={place}/state\n\
         {}{}PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP\n",
        free_port(),
        node("n1", " Gres=gpu:h200:2"),
        node("n2", ""),
    )
}

impl Cluster {
    /// Installs missing packages, and starts the daemons.
    pub fn start() -> Cluster {
        install();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = folder.path();
        let host = String::from_utf8_lossy(&run("hostname", &["-s"]).stdout).trim().to_owned();
        for name in ["state", "spool-n1", "spool-n2", "jobs"] {
            fs::create_dir_all(place.join(name)).expect("a folder");
        }
        // Fake devices: Slurm only counts them, and sets them in the environment of a job.
        for number in 0..2 {
            run("mknod", &[&place.join(format!("gpu{number}")).display().to_string(), "c", "1", "3"]);
        }
        let gres = format!("AutoDetect=off\nNodeName=n1 Name=gpu Type=h200 File={}/gpu[0-1]\n", place.display());
        fs::write(place.join("gres.conf"), gres).expect("a file");
        fs::write(place.join("slurm.conf"), configuration(place, &host)).expect("a file");
        let mut cluster = Cluster { folder, daemons: Vec::new() };
        cluster.start_daemon("slurmctld", &["-D", "-c"]);
        for node in ["n1", "n2"] {
            cluster.start_daemon("slurmd", &["-D", "-N", node]);
        }
        wait_for("the nodes of the cluster", || {
            let nodes = cluster.output("sinfo", &["--noheader", "--Node", "--format=%N %T"]);
            (String::from_utf8_lossy(&nodes.stdout).matches("idle").count() == 2).then_some(())
        });
        cluster
    }

    fn start_daemon(&mut self, name: &str, args: &[&str]) {
        let log =
            fs::File::create(self.folder.path().join(format!("{name}-{}.out", self.daemons.len()))).expect("a file");
        let program =
            if Path::new("/usr/sbin").join(name).exists() { format!("/usr/sbin/{name}") } else { name.to_owned() };
        let mut command = Command::new(program);
        command.args(args).env("SLURM_CONF", self.conf()).stdin(Stdio::null());
        let child = command.stdout(log.try_clone().expect("a file")).stderr(log).spawn();
        self.daemons.push(child.unwrap_or_else(|error| panic!("{name} cannot be started: {error}")));
    }

    /// The configuration, for `SLURM_CONF`.
    pub fn conf(&self) -> PathBuf {
        self.folder.path().join("slurm.conf")
    }

    /// A folder that all nodes share.
    pub fn shared(&self) -> PathBuf {
        self.folder.path().join("jobs")
    }

    /// Runs a command of Slurm.
    pub fn output(&self, program: &str, args: &[&str]) -> Output {
        Command::new(program).args(args).env("SLURM_CONF", self.conf()).output().expect("Slurm's command starts")
    }

    /// The ids of the jobs in the queue.
    pub fn jobs(&self) -> Vec<String> {
        let queue = self.output("squeue", &["--noheader", "--format=%i"]);
        String::from_utf8_lossy(&queue.stdout).split_whitespace().map(str::to_owned).collect()
    }

    /// The output of the daemons and the jobs, for a failed test.
    fn logs(&self) -> String {
        let mut text = String::new();
        for folder in [self.folder.path().to_owned(), self.shared()] {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.ends_with(".log") || name.ends_with(".out") {
                    let content = fs::read_to_string(entry.path()).unwrap_or_default();
                    let lines: Vec<&str> = content.lines().collect();
                    let last = lines[lines.len().saturating_sub(30)..].join("\n");
                    text.push_str(&format!("--- {name}\n{last}\n"));
                }
            }
        }
        text
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        for job in self.jobs() {
            let _ = self.output("scancel", &["--signal=KILL", "--full", &job]);
            let _ = self.output("scancel", &[&job]);
        }
        let start = Instant::now();
        while !self.jobs().is_empty() && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(200));
        }
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
