//! `assay plugin`: new plugins, building them, and trying them alone. `assay plugin-host` is the process in which one runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use assay_host::{
    PluginCommand, PluginProcess, StepFiles, Violation, check_curriculum, check_dataset, check_metric, check_searcher,
    check_step, demonstrate_curriculum, demonstrate_metric, demonstrate_searcher, demonstrate_step,
};
use assay_protocol::{PluginFailure, PluginLimits, PluginSplit};
use assay_spec::printable_lines;
use assay_wasm::{BuildError, PluginLanguage, PluginWorld, build_plugin, write_template};
use clap::{Args, Subcommand, ValueEnum};

use super::print_out;
use crate::cli::CommandError;

/// `assay plugin`
#[derive(Args)]
pub struct PluginArgs {
    #[command(subcommand)]
    command: PluginSubcommand,
}

#[derive(Subcommand)]
enum PluginSubcommand {
    /// Create a plugin: a folder with a source that builds and runs unchanged
    New(NewArgs),
    /// Build the plugin in a folder, if its source has changed
    Build(BuildArgs),
    /// Load a plugin and show what it does
    ///
    /// For a dataset, the first sequences; for a metric, its values on generated predictions; for a curriculum, its stages in a
    /// simulated training with falling loss; for a step, its result, metrics and outputs; for a searcher, the trials of a few
    /// rounds with simulated results.
    Run(RunPluginArgs),
    /// Check that a plugin obeys the laws of its interface
    ///
    /// A batch equals its parts in any order, merged metrics equal those of the whole, a restored state equals the uninterrupted
    /// one, a repeated step gives the same outputs, and two instances give the same answers. Exit code 1 if a law is broken.
    Check(CheckArgs),
}

#[derive(Args)]
struct NewArgs {
    /// The folder to create; its name becomes the plugin's name
    folder: PathBuf,
    /// What the plugin is for
    #[arg(long = "for", value_enum)]
    purpose: Purpose,
    /// The language
    #[arg(long, value_enum, default_value_t = Language::Python)]
    lang: Language,
}

#[derive(Args)]
struct BuildArgs {
    /// The plugin's folder
    #[arg(default_value = ".")]
    folder: PathBuf,
}

#[derive(Args)]
struct RunPluginArgs {
    #[command(flatten)]
    plugin: LoadArgs,
    /// How many sequences, stages or trials per round
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: u32,
}

#[derive(Args)]
struct CheckArgs {
    #[command(flatten)]
    plugin: LoadArgs,
}

#[derive(Args)]
struct LoadArgs {
    /// The component
    file: PathBuf,
    /// Its config, as JSON
    #[arg(long, value_name = "JSON", default_value = "{}", value_parser = parse_object)]
    config: String,
    /// The seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A file that a step reads, repeatable
    #[arg(long = "input", value_name = "NAME=FILE", value_parser = parse_file)]
    inputs: Vec<(String, PathBuf)>,
    /// A file that a step writes, repeatable
    #[arg(long = "output", value_name = "NAME=FILE", value_parser = parse_file)]
    outputs: Vec<(String, PathBuf)>,
    /// The parameters of a search, as JSON
    #[arg(long, value_name = "JSON", default_value = SPACE, value_parser = parse_object)]
    space: String,
}

/// The parameters of a search without `--space`.
const SPACE: &str = r#"{"x": [1, 2, 3, 4], "y": [0.1, 0.2, 0.3]}"#;

/// Reads a JSON object, and writes it as plugins get it: without spaces.
fn parse_object(text: &str) -> Result<String, String> {
    let object: Result<serde_json::Map<String, serde_json::Value>, _> = serde_json::from_str(text);
    object
        .map(|object| serde_json::Value::Object(object).to_string())
        .map_err(|error| format!("it is not a JSON object: {error}"))
}

/// Reads `NAME=FILE`.
fn parse_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.to_owned(), file.into())),
        _ => Err("write NAME=FILE, such as data=text.txt".into()),
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Purpose {
    /// Generates sequences
    Dataset,
    /// Chooses the sequences of a training
    Curriculum,
    /// Computes metrics of predictions
    Metric,
    /// Runs as a whole step: reads inputs, writes outputs and metrics
    Step,
    /// Proposes the parameters of trials
    Searcher,
}

#[derive(Clone, Copy, ValueEnum)]
enum Language {
    /// Built with clang; small and fast
    C,
    /// Built with componentize-py
    Python,
    /// Built with componentize-qjs
    Javascript,
}

/// `assay plugin-host`
#[derive(Args)]
pub struct PluginHostArgs {
    /// Bytes of memory that the plugin may have
    #[arg(long)]
    memory: u64,
}

/// Answers the calls of another process until its input ends.
pub fn serve(args: &PluginHostArgs) -> Result<ExitCode, CommandError> {
    assay_wasm::limit_own_memory(args.memory)?;
    assay_wasm::serve_plugin(&mut std::io::stdin().lock(), std::io::stdout())?;
    Ok(ExitCode::SUCCESS)
}

pub fn run(args: &PluginArgs) -> Result<ExitCode, CommandError> {
    match &args.command {
        PluginSubcommand::New(args) => begin(args),
        PluginSubcommand::Build(args) => build(&args.folder),
        PluginSubcommand::Run(args) => demonstrate(&args.plugin, args.count),
        PluginSubcommand::Check(args) => check(&args.plugin),
    }
}

fn begin(args: &NewArgs) -> Result<ExitCode, CommandError> {
    let world = match args.purpose {
        Purpose::Dataset => PluginWorld::Dataset,
        Purpose::Curriculum => PluginWorld::Curriculum,
        Purpose::Metric => PluginWorld::Metric,
        Purpose::Step => PluginWorld::Step,
        Purpose::Searcher => PluginWorld::Searcher,
    };
    let language = match args.lang {
        Language::C => PluginLanguage::C,
        Language::Python => PluginLanguage::Python,
        Language::Javascript => PluginLanguage::JavaScript,
    };
    write_template(&args.folder, world, language).map_err(explain_build)?;
    let (folder, name) = (args.folder.display(), args.folder.file_name().unwrap_or_default().to_string_lossy());
    print_out(&format!(
        "created {folder}; next: `assay plugin build {folder}`, `assay plugin check {folder}/{name}.wasm`"
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn build(folder: &Path) -> Result<ExitCode, CommandError> {
    let built = build_plugin(folder).map_err(explain_build)?;
    let file = built.file.display();
    let bytes = std::fs::metadata(&built.file)?.len();
    let done = if built.is_unchanged { "is up to date" } else { "built" };
    print_out(&format!("{file}: {done} ({bytes} bytes)"))?;
    Ok(ExitCode::SUCCESS)
}

fn explain_build(error: BuildError) -> CommandError {
    error.hint.map_or(error.message.clone(), |hint| format!("{}\nhint: {hint}", error.message)).into()
}

fn explain_failure(failure: PluginFailure) -> CommandError {
    let text = failure.to_string();
    let text = failure.hint.map_or(text.clone(), |hint| format!("{text}\nhint: {hint}"));
    printable_lines(&text).into_owned().into()
}

/// Prints text of a plugin, whose control characters must not reach a terminal.
fn print_plugin_text(text: &str) -> Result<(), CommandError> {
    print_out(&printable_lines(text))
}

fn load(args: &LoadArgs) -> Result<PluginProcess, CommandError> {
    let name = args.file.file_stem().unwrap_or_default().to_string_lossy();
    let command = PluginCommand::find()?;
    let process =
        PluginProcess::start(&command, &name, &args.file, PluginLimits::default()).map_err(explain_failure)?;
    let about = process.about();
    let uses = about.interfaces.join(", ");
    print_plugin_text(&format!("{} {} ({uses}): {}", about.name, about.version, about.description))?;
    if !about.config_schema.is_empty() {
        print_plugin_text(&format!("  config: {}", about.config_schema))?;
    }
    Ok(process)
}

/// Prints what the plugin logged.
fn print_log(process: &mut PluginProcess) -> Result<(), CommandError> {
    process.drain_log().iter().try_for_each(|(level, text)| print_plugin_text(&format!("  {level}: {text}")))
}

fn demonstrate(args: &LoadArgs, count: u32) -> Result<ExitCode, CommandError> {
    let mut process = load(args)?;
    for interface in process.about().interfaces.clone() {
        match interface.as_str() {
            "dataset" => print_sequences(&mut process, args, count)?,
            "metric" => {
                let values = demonstrate_metric(&mut process, &args.config).map_err(explain_failure)?;
                values
                    .iter()
                    .try_for_each(|value| print_plugin_text(&format!("  {} = {}", value.name, value.value())))?;
            }
            "step" => print_step(&mut process, args)?,
            "searcher" => {
                let search = (args.config.as_str(), args.space.as_str());
                let rounds = demonstrate_searcher(&mut process, search, args.seed, count).map_err(explain_failure)?;
                for (number, round) in rounds.iter().enumerate() {
                    let end = if round.finished { " (the last one)" } else { "" };
                    print_out(&format!("  round {}{end}", number + 1))?;
                    round.params.iter().try_for_each(|params| print_plugin_text(&format!("    {params}")))?;
                }
            }
            _ => {
                let stages = demonstrate_curriculum(&mut process, &args.config, args.seed, count);
                for stage in stages.map_err(explain_failure)? {
                    let (until, length) = (stage.until_step, stage.max_length);
                    print_plugin_text(&format!("  until step {until}: at most {length} tokens ({})", stage.note))?;
                }
            }
        }
        print_log(&mut process)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_sequences(process: &mut PluginProcess, args: &LoadArgs, count: u32) -> Result<(), CommandError> {
    let facts = process.open_dataset(0, &args.config).map_err(explain_failure)?;
    let made = process.batch(0, args.seed, PluginSplit::Train, 0, count).map_err(explain_failure)?;
    for (index, pair) in made.offsets.windows(2).enumerate() {
        let tokens = &made.tokens[pair[0] as usize..pair[1] as usize];
        let words: Vec<&str> = tokens.iter().map(|token| facts.vocabulary[*token as usize].as_str()).collect();
        let label = made.labels.get(index).map(|label| format!(" = {label}")).unwrap_or_default();
        print_plugin_text(&format!("  {}{label}", words.join(" ")))?;
    }
    print_out(&format!("  {} units of fuel", process.fuel()))
}

fn print_step(process: &mut PluginProcess, args: &LoadArgs) -> Result<(), CommandError> {
    let files = StepFiles { inputs: read_files(&args.inputs), outputs: read_files(&args.outputs) };
    let made = demonstrate_step(process, &args.config, files.clone()).map_err(explain_failure)?;
    print_plugin_text(&format!("  result: {}", made.result))?;
    for (step, values) in &made.metrics {
        let at = if *step == 0 { String::new() } else { format!(" at step {step}") };
        values.iter().try_for_each(|value| print_plugin_text(&format!("  {} = {}{at}", value.name, value.value())))?;
    }
    for name in &made.written {
        let bytes = files.outputs.get(name).and_then(|path| path.metadata().ok()).map_or(0, |data| data.len());
        print_plugin_text(&format!("  output {name}: {bytes} bytes"))?;
    }
    print_out(&format!("  {} units of fuel", process.fuel()))
}

fn read_files(named: &[(String, PathBuf)]) -> BTreeMap<String, PathBuf> {
    named.iter().cloned().collect()
}

/// Runs a step twice, and compares what it made. Its outputs are written into temporary files.
fn check_step_twice(process: &mut PluginProcess, args: &LoadArgs) -> Result<Vec<Violation>, CommandError> {
    let folder = std::env::temp_dir().join(format!("assay-plugin-check-{}", std::process::id()));
    let files = |run: usize| {
        let folder = folder.join(run.to_string());
        std::fs::create_dir_all(&folder)?;
        let outputs = args.outputs.iter().enumerate();
        let outputs = outputs.map(|(index, (name, _))| (name.clone(), folder.join(index.to_string()))).collect();
        Ok::<_, std::io::Error>(StepFiles { inputs: read_files(&args.inputs), outputs })
    };
    let checked = check_step(process, &args.config, [files(0)?, files(1)?]);
    // If this fails, the files stay among the temporary files.
    let _ = std::fs::remove_dir_all(&folder);
    checked.map_err(explain_failure)
}

fn check(args: &LoadArgs) -> Result<ExitCode, CommandError> {
    let mut process = load(args)?;
    print_out(&format!("  BLAKE3 {}", process.about().hash))?;
    let mut broken = Vec::new();
    for interface in process.about().interfaces.clone() {
        let violations = match interface.as_str() {
            "dataset" => check_dataset(&mut process, &args.config, args.seed).map_err(explain_failure)?,
            "metric" => check_metric(&mut process, &args.config).map_err(explain_failure)?,
            "step" => check_step_twice(&mut process, args)?,
            "searcher" => {
                let search = (args.config.as_str(), args.space.as_str());
                check_searcher(&mut process, search, args.seed).map_err(explain_failure)?
            }
            _ => check_curriculum(&mut process, &args.config, args.seed).map_err(explain_failure)?,
        };
        broken.extend(violations);
        print_log(&mut process)?;
    }
    for violation in &broken {
        print_out(&format!("broken: {}: {}", violation.law, violation.detail))?;
    }
    if broken.is_empty() {
        print_out("all laws hold")?;
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
