//! The command line: its subcommands, their options and their help.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use assay_server::RunStateName;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

pub use self::compare::{CompareArgs, CompareFormat};
pub use self::export::{ExportArgs, ExportFormat};
pub use self::files::{ArtifactsArgs, GcArgs, GetArgs, RmArgs};
pub use self::import::ImportArgs;
pub use self::results::{Format, ResultsArgs};
pub use self::start::{ClusterArgs, StartArgs};
use crate::commands;
use crate::commands::plugin::{PluginArgs, PluginHostArgs};
use crate::lab_args::{LabCommand, ListenArgs};
use crate::remote::Target;

mod compare;
mod export;
mod files;
mod import;
mod results;
mod start;

/// How long the end of the program waits for threads that block on the network or on files.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// An error on its way to the person who typed the command; its text says what, where and what to do.
pub type CommandError = Box<dyn Error + Send + Sync>;

/// A workflow-driven experiment platform for sequence models.
///
/// A workflow file says what to prepare, train, quantize, export and measure, and over which values to sweep; Assay runs
/// what has no result yet, and shows every number with its uncertainty.
#[derive(Parser)]
#[command(
    name = "assay",
    version,
    max_term_width = 100,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  assay run workflows/catalog/quickstart.yaml     run a workflow here
  assay plan workflows/catalog/quickstart.yaml    what would run, and what is cached
  assay server                                    show the results in a browser

Exit codes: 0 success; 1 a task failed; 2 the command or its file is wrong; 28 the disk is full; \
130 stopped by Ctrl-C, SIGTERM, SIGHUP or `assay cancel`."
)]
pub struct Cli {
    /// The folder that holds the store
    #[arg(long, global = true, value_name = "DIR", env = "ASSAY_HOME", default_value = ".assay")]
    home: PathBuf,

    /// The server for `submit`, `worker` and the commands on runs, instead of this machine's store
    #[arg(long, global = true, value_name = "URL", env = "ASSAY_SERVER", hide_env_values = true)]
    server: Option<String>,

    /// For a server with TLS: a PEM file with the certificate authorities to trust instead of those of the system
    #[arg(long, global = true, value_name = "FILE", env = "ASSAY_CA", hide_env_values = true)]
    ca: Option<PathBuf>,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a workflow file here
    ///
    /// Tasks whose inputs and config have not changed are taken from the cache. Ctrl-C stops within two seconds;
    /// finished tasks are kept, and the next `assay run` reuses them.
    #[command(after_help = "\
Examples:
  assay run experiment.yaml
  assay run experiment.yaml -P seed=18 -P model.dim=32
  assay run experiment.yaml --only train --force
  assay run experiment.yaml --json > result.json
  assay run experiment.yaml --on slurm --pilots 8 --cluster-option=--time=1:00:00")]
    Run(Box<RunArgs>),
    /// Show what would run and what is cached, without running it
    #[command(after_help = "\
Examples:
  assay plan experiment.yaml
  assay plan experiment.yaml -P seed=18 --json")]
    Plan(PlanArgs),
    /// Serve the store's runs to a browser on this machine, or serve a lab
    ///
    /// With --listen it accepts workflows (`assay submit`) and gives their tasks to worker nodes (`assay worker`). Except on a
    /// loopback address, each request needs a token (`assay token`).
    #[command(after_help = "\
Examples:
  assay server --listen 127.0.0.1:7177 --workers local     submissions, run on this machine
  assay server --listen 0.0.0.0:7177                       submissions, run on worker nodes
  assay server --listen 0.0.0.0:7177 --tls-cert chain.pem --tls-key key.pem
  assay server                       http://127.0.0.1:7177
  assay server --port 0              any free port; the address is printed
  assay server --home results/a      another store")]
    Server(ServerArgs),
    /// List the runs in the store
    #[command(after_help = "\
Examples:
  assay runs
  assay runs --limit 100 --json
  assay runs --tag baseline --state succeeded --sort took")]
    Runs(RunsArgs),
    /// Tag a run, or show its tags
    #[command(after_help = "\
Examples:
  assay tag latest baseline paper
  assay tag 3 --remove baseline --note 'the learning rate was too high'")]
    Tag(TagArgs),
    /// Show a run: its tasks, their states and results
    #[command(after_help = "\
Examples:
  assay show 3                       run 3
  assay show latest --json")]
    Show(ShowArgs),
    /// Print the results of a run: one row a cell
    ///
    /// Axes are columns. Each metric has its number of observations, mean, 95 % interval, unit and failures. The JSON
    /// format lists, for each metric, the best cell and those that are not distinguishable from it.
    #[command(after_help = "\
Examples:
  assay results latest
  assay results 3 --format csv > results.csv
  assay results 3 --metrics 'train/loss,latency/*' --format json")]
    Results(ResultsArgs),
    /// Compare two runs, jobs or cells
    ///
    /// Shows the differences of the configs, then for each metric B - A with its 95 % interval, the smallest difference
    /// that the data can detect, and whether A and B differ significantly. The test pools the error of a metric's cells if
    /// their variances are similar, removes what replicates with the same seed share, and is corrected by Holm's method for
    /// all comparisons.
    ///
    /// A commit or branch of the repository in the working folder selects the latest complete run with that commit. With
    /// --threshold, the exit code is 1 if a metric is significantly worse by that much or more.
    #[command(after_help = "\
Examples:
  assay compare 3 4                                            every cell that both runs have
  assay compare '3:train[states=16]' '3:train[states=32]'      two cells of a run
  assay compare 3:transformer 3:ten                            all cells of two jobs
  assay compare 3:train 4:train --metrics 'test/*' --json
  assay compare 3 4 --metric test/loss --threshold 5%          exit code 1 on a regression, for a pull request
  assay compare main HEAD --threshold 5% --format markdown     the text to post there")]
    Compare(CompareArgs),
    /// Judge the claims of workflow files, and run the tasks that this needs
    ///
    /// Each claim is supported, refuted, undecided, impossible, consistent or not tested. Without a file, it judges the
    /// claims of the store's latest runs and runs nothing. Exit code 1 if a claim is refuted.
    #[command(after_help = "\
Examples:
  assay claims experiment.yaml
  assay claims workflows/catalog/claims --json
  assay claims workflows/catalog/claims --write docs/claims.md
  assay claims                                                  those of the stored runs")]
    Claims(commands::claims::ClaimsArgs),
    /// Print the log of a task
    #[command(after_help = "\
Examples:
  assay logs 3 'train[chunk=64,states=16]#2'
  assay logs latest train -f --tail 20
  assay logs latest data --level warn")]
    Logs(LogsArgs),
    /// List the files that a run's tasks made
    #[command(after_help = "\
Examples:
  assay artifacts 3
  assay artifacts latest --json")]
    Artifacts(ArtifactsArgs),
    /// Copy an output of a task out of the store
    ///
    /// Its hash is checked first. A plain value is printed as JSON.
    #[command(after_help = "\
Examples:
  assay get latest 'export[states=16]#1' onnx                   to the file's own name, here
  assay get 3 'train[states=16]#1' model -o model.safetensors
  assay get 3 benchmark results                                 a plain value, as JSON
  assay get 3 data dataset -o - | sha256sum")]
    Get(GetArgs),
    /// Write a run's metrics, parameters and tasks in the formats of other tools
    ///
    /// csv, jsonl and parquet are the tables `metrics` (times in milliseconds since 1970), `params` and `tasks`.
    #[command(after_help = "\
Examples:
  assay export latest --format csv -o tables
  assay export 3 --format mlflow -o mlruns        then: mlflow ui --backend-store-uri mlruns
  assay export 3 --format tensorboard -o events   then: tensorboard --logdir events")]
    Export(ExportArgs),
    /// Add runs that other trackers stored: MLflow, TensorBoard, W&B. A run that was imported before is not added again
    #[command(after_help = "Examples:
  assay import mlruns                  a file store of MLflow
  assay import mlflow.db               a database of MLflow (SQLite)
  assay import runs                    event files of TensorBoard; each folder is a run
  assay import wandb                   offline runs of W&B")]
    Import(ImportArgs),
    /// Check every hash in the store
    ///
    /// Reads every artifact and every metric segment. Exit code 1 if one is damaged or missing.
    #[command(after_help = "\
Examples:
  assay verify
  assay verify --json")]
    Verify(JsonArg),
    /// List the files that no run refers to, or remove them with --delete
    #[command(after_help = "\
Examples:
  assay gc                 what could be removed
  assay gc --delete        remove it")]
    Gc(GcArgs),
    /// Remove runs from the store
    ///
    /// Removes their tasks, logs and metrics; the next `assay gc --delete` removes the files that no other run refers
    /// to. Results that other runs took from the cache are kept for those runs.
    #[command(after_help = "\
Examples:
  assay rm 3
  assay rm 3 4 5")]
    Rm(RmArgs),
    /// Stop a run that was started in another terminal, like Ctrl-C there
    #[command(after_help = "\
Examples:
  assay cancel 3
  assay cancel latest")]
    Cancel(CancelArgs),
    #[command(flatten)]
    Lab(LabCommand),
    /// List the backends that this machine can run
    #[command(after_help = "\
Examples:
  assay backends
  assay backends --json")]
    Backends(JsonArg),
    /// Print the JSON Schema of the workflow file, for editors
    #[command(after_help = "\
Example:
  assay schema > assay.schema.json
  then start a workflow file with: # yaml-language-server: $schema=assay.schema.json
  assay schema --pages docs/src/reference     the reference pages of the documentation")]
    Schema(SchemaArgs),
    /// Show the help of a subcommand, or describe a step kind
    ///
    /// For a step kind: what it does, its options with types, ranges and defaults, its inputs, outputs and metrics, and an
    /// example.
    #[command(after_help = "\
Examples:
  assay help run          the options of `assay run`
  assay help train        the step kind `train`")]
    Help(HelpArgs),
    /// Create, build, run and check plugins
    #[command(after_help = "\
Examples:
  assay plugin new sort --for dataset --lang c      a folder with an example source
  assay plugin build sort                           sort/sort.wasm
  assay plugin run sort/sort.wasm --count 5
  assay plugin check sort/sort.wasm --config '{\"kinds\": 3}'")]
    Plugin(PluginArgs),
    /// Run one plugin for another process (internal)
    #[command(
        hide = true,
        name = "plugin-host",
        after_help = "\
Example:
  assay plugin-host --memory 268435456     uses the messages of assay-protocol on standard input and output"
    )]
    PluginHost(PluginHostArgs),
    /// Run one step for a worker, as an executor (internal)
    ///
    /// Uses the executor protocol on standard input and output. With --step it runs a single step instead, for
    /// debugging.
    #[command(after_help = "\
Example:
  assay executor cpu --step step.json     run a single step; see ARCHITECTURE.md for the file")]
    Executor(ExecutorArgs),
}

/// `assay run`
#[derive(Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub start: StartArgs,
    /// The largest number of tasks that run at the same time
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: Option<u32>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Show only failures and results
    #[arg(long, short, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Also show cached tasks and every line of the tasks' logs
    #[arg(long, short)]
    pub verbose: bool,
    /// Print one JSON object on standard output at the end, without a live display
    #[arg(long)]
    pub json: bool,
}

/// Values that override a file's parameters.
#[derive(Args)]
pub struct Overrides {
    /// Override a parameter of the file, or a part of one: -P model.dim=32
    #[arg(short = 'P', long = "param", value_name = "KEY=VALUE", value_parser = parse_parameter)]
    pub params: Vec<(String, String)>,
    /// Override parameters with those of a JSON or YAML file; -P takes precedence
    #[arg(long = "params", value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// `assay plan`
#[derive(Args)]
pub struct PlanArgs {
    /// The workflow file
    pub file: PathBuf,
    #[command(flatten)]
    pub overrides: Overrides,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `assay server`
#[derive(Args)]
pub struct ServerArgs {
    /// The port on 127.0.0.1; 0 selects any free one
    #[arg(long, default_value_t = 7177)]
    pub port: u16,
    #[command(flatten)]
    pub lab: ListenArgs,
}

/// `assay runs`
#[derive(Args)]
pub struct RunsArgs {
    /// The largest number of runs
    #[arg(long, default_value_t = 20)]
    pub limit: u32,
    /// Only runs that match, such as 'state:failed states>32 accuracy>0.5 tag:x name~quick'
    ///
    /// All conditions must hold. `:` means equal (separate several values with commas), `!=` differs, `~` contains, and `<`, `<=`, `>`,
    /// `>=` compare numbers. Fields: state, name, file, note, commit, tag, run, tasks, failed, cached, took and age (5m, 2h, 7d),
    /// started and ended (dates). Other names are parameters, axes of a matrix or metrics. A single word matches a part of the
    /// workflow's name.
    #[arg(long, value_name = "FILTER")]
    pub filter: Option<String>,
    /// Only runs with this tag; may be given several times
    #[arg(long = "tag", value_name = "TAG", value_parser = parse_tag)]
    pub tags: Vec<String>,
    /// Only runs in this state
    #[arg(long, value_name = "STATE", value_parser = parse_state)]
    pub state: Option<RunStateName>,
    /// Only runs whose workflow's name contains this
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// The sort key; by default the latest run comes first
    #[arg(long, value_enum, default_value_t = Order::Run)]
    pub sort: Order,
    /// Reverse the order
    #[arg(long)]
    pub reverse: bool,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// What runs are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    /// When they started, the latest first
    Run,
    /// Their workflow's name
    Name,
    /// Their state
    State,
    /// How many tasks they have, the most first
    Tasks,
    /// How many tasks failed, the most first
    Failed,
    /// How long they took, the longest first
    Took,
}

/// `assay tag`
#[derive(Args)]
pub struct TagArgs {
    /// The run's number, or `latest`
    pub run: String,
    /// Tags to add
    #[arg(value_name = "TAG", value_parser = parse_tag)]
    pub tags: Vec<String>,
    /// A tag to remove; may be given several times
    #[arg(long, value_name = "TAG", value_parser = parse_tag)]
    pub remove: Vec<String>,
    /// A note that replaces the present one
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
}

/// `assay show`
#[derive(Args)]
pub struct ShowArgs {
    /// The run's number, or `latest`
    pub run: String,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `assay logs`
#[derive(Args)]
pub struct LogsArgs {
    /// The run's number, or `latest`
    pub run: String,
    /// The task's address, as `assay show` prints it
    pub task: String,
    /// Print new lines until the task has ended
    #[arg(long, short)]
    pub follow: bool,
    /// Only the last lines
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
    /// Only lines of at least this level; what a step prints on standard error has the level info
    #[arg(long, value_enum, default_value_t = Level::Info)]
    pub level: Level,
}

/// The level of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Level {
    /// Everything.
    Info,
    /// Warnings and errors.
    Warn,
    /// Only errors.
    Error,
}

/// `assay cancel`
#[derive(Args)]
pub struct CancelArgs {
    /// The run's number, or `latest`
    pub run: String,
}

/// A subcommand with no other option.
#[derive(Args)]
pub struct JsonArg {
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `assay schema`
#[derive(Args)]
pub struct SchemaArgs {
    /// Write the reference pages of the documentation into this folder instead
    #[arg(long, value_name = "DIR")]
    pub pages: Option<PathBuf>,
}

/// `assay help`
#[derive(Args)]
pub struct HelpArgs {
    /// A subcommand, or a step kind as in `uses:`
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// `assay executor`
#[derive(Args)]
pub struct ExecutorArgs {
    /// The backend's name, as `assay backends` lists it
    pub backend: String,
    /// Run the one step that this JSON file describes, and exit
    #[arg(long, value_name = "FILE")]
    pub step: Option<PathBuf>,
}

pub fn parse_tag(text: &str) -> Result<String, String> {
    let good = |c: char| !c.is_whitespace() && !c.is_control() && c != ',';
    match !text.is_empty() && text.chars().count() <= 64 && text.chars().all(good) {
        true => Ok(text.to_owned()),
        false => Err("a tag is a word of at most 64 characters, without spaces and commas".to_owned()),
    }
}

fn parse_state(text: &str) -> Result<RunStateName, String> {
    let known = || RunStateName::ALL.iter().map(|state| state.name()).collect::<Vec<_>>().join(", ");
    RunStateName::from_name(text).ok_or_else(|| format!("give one of {}", known()))
}

fn parse_parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not of the form KEY=VALUE, as in -P seed=18")),
    }
}

/// Parses the command line and runs the command.
///
/// # Errors
/// If the command cannot be run at all; a run with failed tasks is an exit code, not an error.
pub fn parse_and_run() -> Result<ExitCode, CommandError> {
    let cli = Cli::parse();
    let home = cli.home.as_path();
    match cli.command {
        // An executor has no store and no runtime: it is a plain process.
        Command::Executor(args) => return commands::executor::run(&args),
        Command::Plugin(args) => return commands::plugin::run(&args),
        Command::PluginHost(args) => return commands::plugin::serve(&args),
        Command::Schema(args) => return commands::schema::run(&args),
        Command::Help(args) => return commands::help::run(Cli::command(), args.name.as_deref()),
        Command::Backends(args) => return commands::backends::run(args.json),
        _ => {}
    }
    let ca = cli.ca.filter(|file| !file.as_os_str().is_empty());
    let server = cli.server.filter(|server| !server.is_empty()).map(|address| Target { address, ca });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let done = runtime.block_on(async {
        if let Some(server) = server.as_ref().filter(|_| cli.command.is_remote()) {
            return crate::lab_args::run_on_server(server, &cli.command).await;
        }
        match cli.command {
            Command::Run(args) if args.cluster.on.is_some() => commands::on::run(home, *args).await,
            Command::Run(args) => commands::run::run(home, *args).await,
            Command::Plan(args) => commands::plan::run(home, args).await,
            Command::Server(args) => commands::server::run(home, &args).await,
            Command::Runs(args) => commands::runs::run(home, &args).await,
            Command::Show(args) => commands::show::run(home, &args).await,
            Command::Results(args) => commands::results::run(home, &args).await,
            Command::Claims(args) => commands::claims::run(home, args).await,
            Command::Compare(args) => commands::compare::run(home, &args).await,
            Command::Logs(args) => commands::logs::run(home, &args).await,
            Command::Export(args) => commands::export::run(home, &args).await,
            Command::Import(args) => commands::import::run(home, &args).await,
            Command::Artifacts(args) => commands::artifacts::run(home, &args).await,
            Command::Get(args) => commands::get::run(home, &args).await,
            Command::Verify(args) => commands::verify::run(home, args.json).await,
            Command::Gc(args) => commands::gc::run(home, &args).await,
            Command::Tag(args) => commands::tag::run(home, args).await,
            Command::Rm(args) => commands::rm::run(home, &args).await,
            Command::Cancel(args) => commands::cancel::run(home, &args).await,
            Command::Lab(command) => crate::lab_args::run(home, server.as_ref(), command).await,
            Command::Executor(_)
            | Command::Schema(_)
            | Command::Backends(_)
            | Command::Help(_)
            | Command::Plugin(_)
            | Command::PluginHost(_) => {
                unreachable!("handled above")
            }
        }
    });
    // A transfer that blocks on the network must not keep a stopped worker alive.
    runtime.shutdown_timeout(SHUTDOWN);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_has_examples() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "`assay {}` has no example in its help", command.get_name());
        }
    }

    #[test]
    fn a_parameter_may_contain_further_equals_signs() {
        assert_eq!(parse_parameter("a=b=c").unwrap(), ("a".into(), "b=c".into()));
        assert!(parse_parameter("=b").is_err());
        assert!(parse_parameter("seed").unwrap_err().contains("KEY=VALUE"));
    }
}
