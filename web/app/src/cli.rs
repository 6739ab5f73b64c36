//! The command line: its subcommands, their options and their help.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::commands;

/// An error on its way to the person who typed the command; its text says what, where and what to do.
pub type CommandError = Box<dyn Error + Send + Sync>;

/// A workflow-driven experiment platform for sequence models.
///
/// A workflow file says what to prepare, train, quantize, export and measure, and over which values to sweep; Assay runs
/// what is not yet known, and shows every number with its uncertainty.
#[derive(Parser)]
#[command(
    name = "assay",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  assay run workflows/catalog/quickstart.yaml     run a workflow here
  assay plan workflows/catalog/quickstart.yaml    what would run, and what is known already
  assay server                                    look at the results in a browser

Exit codes: 0 all that was asked succeeded; 1 a task failed; 2 the command or its file is wrong; 130 stopped by Ctrl-C, SIGTERM, SIGHUP or \
`assay cancel`."
)]
struct Cli {
    /// The folder that holds the store
    #[arg(long, global = true, value_name = "DIR", env = "ASSAY_HOME", default_value = ".assay")]
    home: PathBuf,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a workflow file here
    ///
    /// Tasks whose inputs and config have not changed are taken from the cache. Ctrl-C stops within two seconds;
    /// what is finished stays, and the next `assay run` goes on from there.
    #[command(after_help = "\
Examples:
  assay run experiment.yaml
  assay run experiment.yaml -P seed=18 -P model.dim=32
  assay run experiment.yaml --only train --force
  assay run experiment.yaml --json > result.json")]
    Run(RunArgs),
    /// Say what would run and what is cached, and start nothing
    #[command(after_help = "\
Examples:
  assay plan experiment.yaml
  assay plan experiment.yaml -P seed=18 --json")]
    Plan(PlanArgs),
    /// Serve the store's runs to a browser on this machine
    #[command(after_help = "\
Examples:
  assay server                       http://127.0.0.1:7177
  assay server --port 0              any free port; the address is printed
  assay server --home results/a      another store")]
    Server(ServerArgs),
    /// List the runs in the store
    #[command(after_help = "\
Examples:
  assay runs
  assay runs --limit 100 --json")]
    Runs(RunsArgs),
    /// Show a run: its tasks, their states and results
    #[command(after_help = "\
Examples:
  assay show 3                       run 3
  assay show latest --json")]
    Show(ShowArgs),
    /// Print the log of a task
    #[command(after_help = "\
Examples:
  assay logs 3 'train[chunk=64,states=16]#2'
  assay logs latest train -f --tail 20
  assay logs latest data --level warn")]
    Logs(LogsArgs),
    /// Stop a run that is under way in another terminal, as Ctrl-C there would
    #[command(after_help = "\
Examples:
  assay cancel 3
  assay cancel latest")]
    Cancel(CancelArgs),
    /// Say which backends this machine can run
    #[command(after_help = "\
Examples:
  assay backends
  assay backends --json")]
    Backends(JsonArg),
    /// Print the JSON Schema of the workflow file, for editors
    #[command(after_help = "\
Example:
  assay schema > assay.schema.json
  then begin a workflow file with: # yaml-language-server: $schema=assay.schema.json")]
    Schema,
    /// Be an executor: run one step for a worker (internal)
    ///
    /// Speaks the executor protocol on standard input and output. With --step it runs one step alone instead, for
    /// debugging.
    #[command(after_help = "\
Example:
  assay executor cpu --step step.json     run one step alone; see ARCHITECTURE.md for the file")]
    Executor(ExecutorArgs),
}

/// `assay run`
#[derive(Args)]
pub struct RunArgs {
    /// The workflow file
    pub file: PathBuf,
    #[command(flatten)]
    pub overrides: Overrides,
    /// Run this job and what it needs, and no other; may be given several times
    #[arg(long, value_name = "JOB")]
    pub only: Vec<String>,
    /// Run tasks although their results are known: those of the jobs named by --only, or all
    #[arg(long)]
    pub force: bool,
    /// Run at most so many tasks at the same time
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: Option<u32>,
    /// Show failures and results alone
    #[arg(long, short, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Show each task from the cache and every line of the tasks' logs
    #[arg(long, short)]
    pub verbose: bool,
    /// Print one JSON object on standard output at the end, and no live display
    #[arg(long)]
    pub json: bool,
}

/// What takes the place of a file's parameters.
#[derive(Args)]
pub struct Overrides {
    /// Override a parameter of the file, or a part of one: -P model.dim=32
    #[arg(short = 'P', long = "param", value_name = "KEY=VALUE", value_parser = parameter)]
    pub params: Vec<(String, String)>,
    /// Override parameters by those of a JSON or YAML file; -P comes after it
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
    /// The port on 127.0.0.1; 0 takes any free one
    #[arg(long, default_value_t = 7177)]
    pub port: u16,
}

/// `assay runs`
#[derive(Args)]
pub struct RunsArgs {
    /// How many runs at most, the latest first
    #[arg(long, default_value_t = 20)]
    pub limit: u32,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
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
    /// Go on with new lines until the task is over
    #[arg(long, short)]
    pub follow: bool,
    /// Only the last lines
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
    /// Only lines that matter so much at least; what a step prints on standard error counts as info
    #[arg(long, value_enum, default_value_t = Level::Info)]
    pub level: Level,
}

/// How much a line of a log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Level {
    /// Everything.
    Info,
    /// Warnings and errors.
    Warn,
    /// Errors alone.
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

/// `assay executor`
#[derive(Args)]
pub struct ExecutorArgs {
    /// The backend's name, as `assay backends` lists it
    pub backend: String,
    /// Run the one step that this JSON file describes, and exit
    #[arg(long, value_name = "FILE")]
    pub step: Option<PathBuf>,
}

fn parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not of the form KEY=VALUE, as in -P seed=18")),
    }
}

/// Parses the command line and does what it says.
///
/// # Errors
/// Whatever keeps the command from being carried out at all; a run whose tasks fail is an exit code, not an error.
pub fn parse_and_run() -> Result<ExitCode, CommandError> {
    let cli = Cli::parse();
    let home = cli.home.as_path();
    match cli.command {
        // An executor has no store and no runtime of its own: it is a plain process.
        Command::Executor(args) => return commands::executor::run(&args),
        Command::Schema => return commands::schema::run(),
        Command::Backends(args) => return commands::backends::run(args.json),
        _ => {}
    }
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(async {
        match cli.command {
            Command::Run(args) => commands::run::run(home, args).await,
            Command::Plan(args) => commands::plan::run(home, args).await,
            Command::Server(args) => commands::server::run(home, &args).await,
            Command::Runs(args) => commands::runs::run(home, &args).await,
            Command::Show(args) => commands::show::run(home, &args).await,
            Command::Logs(args) => commands::logs::run(home, &args).await,
            Command::Cancel(args) => commands::cancel::run(home, &args).await,
            Command::Executor(_) | Command::Schema | Command::Backends(_) => unreachable!("handled above"),
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_has_examples() {
        for command in Cli::command().get_subcommands().filter(|command| command.get_name() != "help") {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "`assay {}` has no example in its help", command.get_name());
        }
    }

    #[test]
    fn a_parameter_may_contain_further_equals_signs() {
        assert_eq!(parameter("a=b=c").unwrap(), ("a".into(), "b=c".into()));
        assert!(parameter("=b").is_err());
        assert!(parameter("seed").unwrap_err().contains("KEY=VALUE"));
    }
}
