//! The commands of a lab: their options, and how commands on runs are answered by a server instead of the store of this machine.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use assay_store::Store;
use assay_ui::Limits;
use assay_worker::ServerAddress;
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde_json::{Value, json};

use crate::cli::{Cli, Command, CommandError, JsonArg, StartArgs, parse_tag};
use crate::commands::{self, Printed};
use crate::remote::{Remote, Target};

/// How often new lines of a followed log are requested.
const PAUSE: Duration = Duration::from_millis(300);

/// The commands of a lab.
#[derive(Subcommand)]
pub enum LabCommand {
    /// Send a workflow file to a server
    ///
    /// The files that it includes, and the local files that its tasks name by fixed paths, are uploaded with it.
    #[command(after_help = "\
Examples:
  assay submit experiment.yaml --server http://lab:7177
  assay submit experiment.yaml -P seed=18 --follow
  assay submit experiment.yaml --json           {\"run\": 3}")]
    Submit(SubmitArgs),
    /// Run tasks of a server on this machine, as a worker node
    ///
    /// The worker connects to the server and needs no open port. Its tasks continue while the server cannot be reached.
    #[command(after_help = "\
Examples:
  assay worker --server http://lab:7177
  assay worker --server http://lab:7177 --name bench-01 --label quiet --cache /scratch/assay")]
    Worker(WorkerArgs),
    /// List the worker nodes of a server, drain or resume them
    ///
    /// A drained worker gets no new tasks. Its running tasks save a checkpoint if they can, and continue on other workers.
    #[command(after_help = "\
Examples:
  assay workers --server http://lab:7177
  assay workers --json
  assay workers drain bench-01
  assay workers resume bench-01     also lifts the exclusion of a worker on which tasks failed")]
    Workers(WorkersArgs),
    /// Pause a run on a server: it starts no tasks until it is resumed
    ///
    /// Tasks that are running continue.
    #[command(after_help = "\
Examples:
  assay pause 3 --server http://lab:7177")]
    Pause(RunArg),
    /// Resume a paused run on a server
    #[command(after_help = "\
Examples:
  assay resume 3 --server http://lab:7177")]
    Resume(RunArg),
    /// Change the priority of a run on a server
    ///
    /// Tasks of runs with a higher priority start first. Runs with the same priority share the workers evenly. The default is 0.
    #[command(after_help = "\
Examples:
  assay priority 3 10 --server http://lab:7177
  assay priority 4 -5")]
    Priority(PriorityArgs),
    /// Let a server start workers as jobs of a cluster when tasks wait
    ///
    /// Arguments after `--` are passed to the cluster's command, such as `sbatch`.
    #[command(
        subcommand,
        after_help = "\
Examples:
  assay allocate slurm --name gpu --max 4 --cpus 8 --backend cuda -- --partition gpu --gres=gpu:1 --time=4:00:00
  assay allocate list
  assay allocate remove gpu        cancels its jobs"
    )]
    Allocate(AllocateCommand),
    /// Explain why a task of a run on a server is not running
    #[command(after_help = "\
Examples:
  assay why latest 'train[states=16]#1' --server http://lab:7177")]
    Why(WhyArgs),
    /// Run the failed tasks of a run on a server again
    ///
    /// The workflow is submitted again; the results of tasks that succeeded are taken from the cache.
    #[command(after_help = "\
Examples:
  assay retry 3 --server http://lab:7177")]
    Retry(RetryArgs),
    /// Create, list or revoke the tokens with which other machines use this machine's server
    #[command(
        subcommand,
        after_help = "\
Examples:
  assay token create --scope worker
  assay token create --scope submit --expires 30d
  assay token list
  assay token revoke 3"
    )]
    Token(TokenCommand),
    /// List who changed what on a server: submissions, changed runs, workers, pools and tokens
    ///
    /// With --server, this needs a token with the scope `admin`. Without it, the log in the store of this machine is listed.
    #[command(after_help = "\
Examples:
  assay audit --server http://lab:7177
  assay audit --limit 1000 --json")]
    Audit(AuditArgs),
}

/// `assay audit`
#[derive(Args)]
pub struct AuditArgs {
    /// The largest number of actions; the latest comes first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// Options of `assay server` as the server of a lab.
#[derive(Args)]
pub struct ListenArgs {
    /// Accept submissions and worker nodes on this address, such as 127.0.0.1:7177
    #[arg(long, value_name = "ADDR", conflicts_with = "port")]
    pub listen: Option<SocketAddr>,
    /// Use TLS with the certificate chain in this PEM file
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_key"])]
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_cert"])]
    pub tls_key: Option<PathBuf>,
    #[command(flatten)]
    pub limits: LimitArgs,
    /// The address at which the jobs of `assay allocate` reach this server; by default the machine's name and the port
    #[arg(long, value_name = "URL", requires = "listen", value_parser = parse_address)]
    pub url: Option<String>,
    /// Which machines run tasks
    #[arg(long, value_enum, default_value_t = WorkersOfServer::None, requires = "listen")]
    pub workers: WorkersOfServer,
    /// How many seconds a worker node may be disconnected before other workers get its tasks
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, requires = "listen", value_parser = parse_seconds)]
    pub lease: f64,
}

/// The limits of one client of a server.
#[derive(Args)]
pub struct LimitArgs {
    /// Requests per second that one token may send, or one address without a token; more are answered with 429
    #[arg(long, value_name = "N", default_value_t = LimitArgs::default().max_rate, requires = "listen", value_parser = parse_rate)]
    pub max_rate: f64,
    /// Simultaneous requests of one token, or of one address without a token; each worker is one
    #[arg(long, value_name = "N", default_value_t = LimitArgs::default().max_streams, requires = "listen", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_streams: u32,
    /// The largest uploaded file, in GiB
    #[arg(long, value_name = "GIB", default_value_t = LimitArgs::default().max_upload, requires = "listen", value_parser = parse_gib)]
    pub max_upload: f64,
}

impl Default for LimitArgs {
    fn default() -> Self {
        LimitArgs { max_rate: 5000.0, max_streams: 1000, max_upload: 64.0 }
    }
}

impl LimitArgs {
    /// The limits that they mean.
    pub fn limits(&self) -> Limits {
        // The conversion saturates.
        let upload = (self.max_upload * f64::from(1 << 30)) as u64;
        Limits { rate: self.max_rate, streams: self.max_streams, upload }
    }
}

/// Which machines run tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorkersOfServer {
    /// Only worker nodes
    None,
    /// The server's machine as well
    Local,
}

/// `assay submit`
#[derive(Args)]
pub struct SubmitArgs {
    #[command(flatten)]
    pub start: StartArgs,
    /// Wait for the end of the run; the exit code is that of `assay run`
    #[arg(long)]
    pub follow: bool,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `assay worker`
#[derive(Args)]
pub struct WorkerArgs {
    /// The worker's name; by default the machine's name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// A word that describes the worker; may be given several times
    #[arg(long = "label", value_name = "WORD", value_parser = parse_tag)]
    pub labels: Vec<String>,
    /// The folder for its files; by default `worker` in the store's folder
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// The largest cache of downloaded artifacts, in GiB
    #[arg(long, value_name = "GIB", default_value_t = 20)]
    pub cache_gib: u64,
    /// The largest number of tasks that run at the same time
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: Option<u32>,
    /// The number of processors to use; by default all of the machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub cpus: Option<u32>,
    /// The memory to use, in GiB; by default all of the machine
    #[arg(long, value_name = "GIB", value_parser = parse_gib)]
    pub memory_gib: Option<f64>,
    /// Exit after this many seconds without a task
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub idle: Option<f64>,
    /// The worker is a job of a cluster, which signals all of its processes when the job ends
    #[arg(long)]
    pub pilot: bool,
}

/// `assay workers`
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct WorkersArgs {
    #[command(subcommand)]
    pub action: Option<WorkersAction>,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// What to do with a worker.
#[derive(Subcommand)]
pub enum WorkersAction {
    /// Give a worker no new tasks, and move its running tasks to other workers
    #[command(after_help = "Example:\n  assay workers drain bench-01")]
    Drain {
        /// Its name, or its number
        name: String,
    },
    /// Give tasks to a drained or excluded worker again
    #[command(after_help = "Example:\n  assay workers resume bench-01")]
    Resume {
        /// Its name, or its number
        name: String,
    },
}

/// `assay allocate`
#[derive(Subcommand)]
pub enum AllocateCommand {
    /// Create or change a pool of workers that run as jobs of Slurm
    #[command(after_help = "\
Example:
  assay allocate slurm --name gpu --max 4 --backend cuda -- --partition gpu --gres=gpu:1 --time=4:00:00")]
    Slurm(Box<PoolArgs>),
    /// Create or change a pool of workers that run as jobs of Kubernetes
    ///
    /// Arguments after `--` that start with `-` are passed to `kubectl`; others are resource limits of a pilot, such as
    /// nvidia.com/gpu=1.
    #[command(after_help = "\
Example:
  assay allocate kubernetes --name gpu --max 4 --image registry.test/assay:1 --program assay -- --namespace=lab nvidia.com/gpu=1")]
    Kubernetes(Box<PoolArgs>),
    /// List the pools
    #[command(after_help = "Example:\n  assay allocate list --json")]
    List(JsonArg),
    /// Remove a pool, and cancel its jobs
    #[command(after_help = "Example:\n  assay allocate remove gpu")]
    Remove {
        /// Its name
        name: String,
    },
}

/// A pool.
#[derive(Args)]
pub struct PoolArgs {
    /// The pool's name: letters, digits and `-`
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// The largest number of jobs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub max: u32,
    /// How many seconds a task waits before a job is submitted for it
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    pub grow: f64,
    /// End a job after this many seconds without a task
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0)]
    pub idle: f64,
    /// How many seconds before its time limit a job returns its tasks
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub signal: u32,
    /// The processors of a job
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub cpus: u32,
    /// A backend of its jobs; may be given several times (default: `cpu`)
    #[arg(long = "backend", value_name = "NAME")]
    pub backends: Vec<String>,
    /// A label of its jobs; may be given several times
    #[arg(long = "label", value_name = "WORD", value_parser = parse_tag)]
    pub labels: Vec<String>,
    /// The server's address, as the nodes of the cluster reach it
    #[arg(long = "reach", value_name = "URL")]
    pub reach: Option<String>,
    /// The path of the `assay` program on the nodes of the cluster [default: its path on the server]
    #[arg(long, value_name = "PATH")]
    pub program: Option<String>,
    /// The image of a pilot's container (Kubernetes)
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Options of the cluster's command
    #[arg(last = true, value_name = "OPTION")]
    pub options: Vec<String>,
}

/// A run.
#[derive(Args)]
pub struct RunArg {
    /// The run's number, or `latest`
    pub run: String,
}

/// `assay priority`
#[derive(Args)]
pub struct PriorityArgs {
    /// The run's number, or `latest`
    pub run: String,
    /// The priority: a whole number, which may be negative
    #[arg(allow_negative_numbers = true)]
    pub priority: i32,
}

/// `assay why`
#[derive(Args)]
pub struct WhyArgs {
    /// The run's number, or `latest`
    pub run: String,
    /// The task's address, as `assay show` prints it
    pub task: String,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `assay retry`
#[derive(Args)]
pub struct RetryArgs {
    /// The run's number, or `latest`
    pub run: String,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `assay token`
#[derive(Subcommand)]
pub enum TokenCommand {
    /// Create a token; it is printed only once
    #[command(after_help = "Example:\n  assay token create --scope worker --expires 90d")]
    Create {
        /// What it allows; each scope includes reading
        #[arg(long, value_enum)]
        scope: Scope,
        /// How long it is valid, such as 12h or 90d; by default it does not expire
        #[arg(long, value_name = "TIME", value_parser = parse_period)]
        expires: Option<Duration>,
    },
    /// List the tokens
    #[command(after_help = "Example:\n  assay token list --json")]
    List {
        /// Print one JSON object on standard output
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token
    #[command(after_help = "Example:\n  assay token revoke 3")]
    Revoke {
        /// Its number, as `assay token list` prints it
        token: i64,
    },
}

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scope {
    /// Read runs
    Read,
    /// Submit and stop runs
    Submit,
    /// Run tasks as a worker node
    Worker,
    /// Everything
    Admin,
}

impl Scope {
    /// The name in the store.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Submit => "submit",
            Scope::Worker => "worker",
            Scope::Admin => "admin",
        }
    }
}

fn parse_address(text: &str) -> Result<String, String> {
    ServerAddress::parse(text).map(|address| address.to_string())
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let known = text.parse().ok().filter(|rate| (0.001..=1e9).contains(rate));
    known.ok_or_else(|| "give a number of requests per second, at least 0.001".to_owned())
}

fn parse_gib(text: &str) -> Result<f64, String> {
    let known = text.parse().ok().filter(|size| (1e-6..=1e9).contains(size));
    known.ok_or_else(|| "give a number of GiB, at least 0.000001".to_owned())
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: Option<f64> = text.parse().ok();
    let known = seconds.filter(|seconds| (0.1..=1e7).contains(seconds));
    known.ok_or_else(|| "give a number of seconds, at least 0.1".to_owned())
}

fn parse_period(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a period: give a whole number with `h` or `d`, as in 12h or 90d");
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let number: u64 = number.parse().ok().filter(|number| (1..=1_000_000).contains(number)).ok_or_else(wrong)?;
    match unit {
        "h" => Ok(Duration::from_secs(number * 3600)),
        "d" => Ok(Duration::from_secs(number * 24 * 3600)),
        _ => Err(wrong()),
    }
}

impl Command {
    /// Whether the command goes to a server if one is named. `run`, `plan` and `server` always work here; of the others, those that a
    /// server cannot answer are refused, since they would read or change the store of this machine instead.
    pub fn is_remote(&self) -> bool {
        use Command as C;
        !matches!(self, C::Lab(_) | C::Run(_) | C::Plan(_) | C::Server(_))
    }
}

/// Carries out a command of a lab.
///
/// # Errors
/// If it needs a server and none is named, or the server refuses.
pub async fn run(home: &Path, server: Option<&Target>, command: LabCommand) -> Result<ExitCode, CommandError> {
    if let LabCommand::Token(command) = command {
        return commands::token::run(home, command).await;
    }
    if let LabCommand::Audit(args) = &command {
        let remote = server.map(Remote::new).transpose()?;
        return commands::audit::run(home, remote.as_ref(), args).await;
    }
    let server = server.ok_or("no server is named: give --server http://HOST:PORT, or set ASSAY_SERVER")?;
    let remote = Remote::new(server)?;
    match command {
        LabCommand::Submit(args) => commands::submit::run(&remote, args).await,
        LabCommand::Worker(args) => commands::worker::run(home, &remote, args).await,
        LabCommand::Workers(args) => commands::workers::run(&remote, &args).await,
        LabCommand::Allocate(command) => commands::allocate::run(&remote, command).await,
        LabCommand::Pause(args) => commands::pause::run(&remote, &args, true).await,
        LabCommand::Resume(args) => commands::pause::run(&remote, &args, false).await,
        LabCommand::Priority(args) => commands::pause::prioritize(&remote, &args).await,
        LabCommand::Why(args) => commands::why::run(&remote, &args).await,
        LabCommand::Retry(args) => commands::retry::run(&remote, &args).await,
        LabCommand::Token(_) | LabCommand::Audit(_) => unreachable!("handled above"),
    }
}

/// Carries out a command on runs on a server.
///
/// # Errors
/// If the server refuses, or only the store of this machine can answer the command.
pub async fn run_on_server(server: &Target, command: &Command) -> Result<ExitCode, CommandError> {
    let remote = Remote::new(server)?;
    match command {
        Command::Cancel(args) => {
            let run = remote.find_run(&args.run).await?;
            remote.post(format!("/api/v1/runs/{run}/cancel"), &json!({})).await?;
            commands::cancel::wait_for_server(&remote, run).await
        }
        Command::Show(_) | Command::Results(_) | Command::Runs(_) | Command::Logs(_) => {
            // The server reads the same command line, without the program's name.
            let args: Vec<String> =
                std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
            let follow = matches!(command, Command::Logs(args) if args.follow);
            let mut cursor = Value::Null;
            loop {
                let (printed, over, next) = remote.run_command(&args, &cursor).await?;
                printed.print()?;
                if over || !follow {
                    return Ok(ExitCode::SUCCESS);
                }
                cursor = next;
                tokio::time::sleep(PAUSE).await;
            }
        }
        _ => Err("a server cannot answer this command, which reads the store of this machine; omit --server and unset ASSAY_SERVER".into()),
    }
}

/// Answers a reading command of another machine: its output, whether that is all, and the cursor for the next request.
///
/// # Errors
/// If the command does not only read, or fails.
pub async fn answer_request(store: &Store, request: &Value) -> Result<Value, CommandError> {
    let words = request["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let cli = Cli::try_parse_from(std::iter::once("assay").chain(words))?;
    let width = request["width"].as_u64().map_or(usize::MAX, |width| width as usize);
    // The answer may suggest commands. They are typed on the other machine, where the store of this one has no path.
    let home = Path::new(".assay");
    let server = request["server"].as_str();
    let (printed, over, cursor) = match &cli.command {
        Command::Show(args) => (commands::show::render_run(store, home, server, args, width).await?, true, Value::Null),
        Command::Results(args) => (commands::results::render_results(store, args, width).await?, true, Value::Null),
        Command::Runs(args) => (commands::runs::text(store, home, args).await?, true, Value::Null),
        Command::Logs(args) => commands::logs::render_log(store, args, &request["cursor"]).await?,
        _ => return Err("a server answers only `show`, `results`, `runs` and `logs`".into()),
    };
    let Printed { out, err } = printed;
    Ok(json!({"out": out, "err": err, "over": over, "cursor": cursor}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_and_seconds_are_read_and_others_refused() {
        assert_eq!(parse_period("12h"), Ok(Duration::from_secs(43_200)));
        assert_eq!(parse_period("90d"), Ok(Duration::from_secs(7_776_000)));
        for bad in ["", "h", "0d", "-1h", "5", "1w", "é", "99999999999999999999d"] {
            assert!(parse_period(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_seconds("0.5"), Ok(0.5));
        for bad in ["", "0", "-1", "NaN", "inf", "x"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }
}
